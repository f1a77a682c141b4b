"""``kit``: the group of commands, and the one place where errors become text and an exit code.

Commands are imported when they run, so that ``kit --help`` and ``kit list`` load little.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from grader.errors import KitError

INTERRUPTED = 130
"""The exit code after Ctrl-C: no verdict, as shells report it."""

TRACEBACK_VARIABLE = "KIT_TRACEBACK"
"""Environment variable that makes an unexpected fault show its traceback."""


class Lazy(NamedTuple):
    """Where a command lives, and what ``kit --help`` says of it."""

    module: str
    attribute: str
    help: str
    section: str


PRACTICE, AUTHORS, TEACHERS = "Practice", "For people who add exercises", "For instructors"

COMMANDS = {
    "list": Lazy("grader.cli.browse", "list_command", "The exercises, and how far you are.", PRACTICE),
    "show": Lazy("grader.cli.browse", "show", "The statement of one exercise.", PRACTICE),
    "start": Lazy("grader.cli.learn", "start", "Write an exercise's stub into your workspace.", PRACTICE),
    "grade": Lazy("grader.cli.grade", "grade", "Grade your file: verdict, and the mistake by name.", PRACTICE),
    "watch": Lazy("grader.cli.watch", "watch", "Grade on every save.", PRACTICE),
    "drill": Lazy("grader.cli.drill", "drill", "Retype against the clock.", PRACTICE),
    "debug": Lazy("grader.cli.debug", "debug", "Mend a solution that holds a known mistake.", PRACTICE),
    "prove": Lazy("grader.cli.prove", "prove", "Write the tests; see which mistakes they catch.", PRACTICE),
    "quiz": Lazy("grader.cli.quiz", "quiz", "Work out numbers, answer questions aloud.", PRACTICE),
    "interview": Lazy("grader.cli.interview", "interview", "A mock interview under one clock.", PRACTICE),
    "due": Lazy("grader.cli.drill", "due", "What to practise now.", PRACTICE),
    "status": Lazy("grader.cli.status", "status", "How far you are, and how ready.", PRACTICE),
    "report": Lazy("grader.cli.report", "report", "It all on one page; export and import.", PRACTICE),
    "hint": Lazy("grader.cli.learn", "hint", "The next hint, from a nudge to the line.", PRACTICE),
    "reveal": Lazy("grader.cli.reveal", "reveal", "The solution, after a pass or a real try.", PRACTICE),
    "reset": Lazy("grader.cli.learn", "reset", "Back your file up and write the stub again.", PRACTICE),
    "doctor": Lazy("grader.cli.doctor", "doctor", "What this machine has, and what is missing.", PRACTICE),
    "author": Lazy("grader.cli.author", "author", "Make, stub and check exercises.", AUTHORS),
    "class": Lazy("grader.cli.teach", "classroom", "Release exercises to a class, grade what comes back.", TEACHERS),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are first needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself, imported now; None when there is no such command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(importlib.import_module(entry.module), entry.attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with the nearest commands named when there is no such one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=3)
            ctx.fail(f"there is no command {args[0]!r}" + (f"; did you mean {' or '.join(close)}?" if close else "."))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by section, without importing any."""
        for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
            with formatter.section(section):
                formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items() if entry.section == section])


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"kit {version('kit-grader')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, callback=_print_version, expose_value=False, is_eager=True, help="The version."
)
def kit() -> None:
    """Retype and re-derive the parts of modern language models, and learn which mistake you made.

    NAME is an exercise (gqa) or something it asks for (load_balancing_loss).

    \b
    kit list                 what there is
    kit start gqa            a stub in your workspace
    kit grade gqa            the verdict

    Exit codes: 0 passed, 1 graded and something failed, 2 the request was wrong, 3 the grader itself failed.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run ``kit`` with these arguments (the process's own by default) and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        result = kit.main(args=None if arguments is None else list(arguments), prog_name="kit", standalone_mode=False)
        sys.stdout.flush()
    except KitError as error:
        _complain(error.message, error.hint)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted; nothing was decided")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader left (kit list | head): what it read is all it wanted.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        if type(error).__module__ == "sqlite3" and (kept := _damaged_journal()):
            _complain(f"the journal is damaged ({error}); it is kept as {kept}", "run it again: a new journal begins")
            return 3
        _complain(
            f"the grader itself failed: {type(error).__name__}: {error}",
            f"{TRACEBACK_VARIABLE}=1 shows where; this is not your code's fault",
        )
        return 3
    return result if isinstance(result, int) else 0


def main() -> None:
    """The entry point of the ``kit`` command."""
    sys.exit(run())


def _damaged_journal() -> str:
    """Where the journal now lies if it was damaged, else an empty string."""
    from grader.journal.store import Journal
    from grader.workspace import Workspace

    try:
        kept = Journal.set_aside(Workspace.find().journal_path)
    except OSError:
        return ""
    return str(kept) if kept is not None else ""


def _complain(message: str, hint: str = "") -> None:
    click.secho("kit: ", fg="red", bold=True, nl=False, err=True)
    click.echo(message, err=True)
    if hint:
        click.echo(f"     {hint}", err=True)


if __name__ == "__main__":
    main()
