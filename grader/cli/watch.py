"""``kit watch``: the verdict on every save, on a screen that holds just what matters now."""

from __future__ import annotations

import contextlib
import hashlib
import queue
import secrets
import select
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from grader.catalogue import HINT_LEVELS, Catalogue, read_hints
from grader.cli.common import console, find, journal_of, literal_stars, note, record, shown
from grader.cli.escape import visible
from grader.cli.grade import MAX_SEED
from grader.cli.render import failure_block, ladder_block, mistake_blocks, target_blocks, unwritten_blocks
from grader.errors import RequestError
from grader.judge.client import JudgeClient
from grader.model import Attempt, Exercise
from grader.watch import Event, Exit, FileEvents, Key, SyntaxFault, Watching, failures, must_poll
from grader.workspace import Workspace

KEYS = "h hint   n next failure   t timing   g grade again   r reveal   q quit"


class Screen:
    """Draws one screen per verdict; older ones are gone, so that nothing stale stands beside it."""

    def __init__(
        self,
        target: Console,
        exercise: Exercise,
        path: Path,
        workspace: Workspace,
        remark: str = "",
        doing: str = "watching",
        keys: str = KEYS,
    ) -> None:
        self._console, self._exercise, self._path, self._workspace = target, exercise, path, workspace
        self._remark, self._doing, self._keys = remark, doing, keys

    def grading(self) -> None:
        """A save is being graded."""
        if self._console.is_terminal:
            self._console.print(Text("grading …", "dim"))

    def verdict(self, attempt: Attempt, shown: int, seconds: float, whole: bool) -> None:
        """The ladder, the named mistake, one failure in full."""
        self._clear()
        out = self._console
        style = "bold green" if attempt.passed else "bold"
        out.print(Text(f"{self._exercise.title}  {attempt.points}/{attempt.max_points}  {seconds:.1f} s", style))
        out.print(ladder_block(attempt))
        out.print()
        if attempt.load_error:
            out.print(Text(visible(attempt.load_error), "red"))
        else:
            for block in unwritten_blocks(attempt):
                out.print(block)
        failing = failures(attempt)
        for block in mistake_blocks(attempt):
            out.print(block)
        if failing and not attempt.load_error:
            if not whole:
                out.print(Text("which mistake is it? …", "dim"))
            out.print(failure_block(failing[shown]))
            out.print(Text(f"failure {shown + 1} of {len(failing)}", "dim"))
        for block in target_blocks(attempt, out.width):
            out.print(block)
        if attempt.passed and not whole:
            out.print(Text("The tests pass; costs are being measured …", "dim"))
        elif attempt.passed:
            out.print(Text("Everything passes. Press q, then kit list for the next one.", "green"))
        self._foot()

    def unreadable(self, message: str) -> None:
        """The file is gone or no text."""
        self._say(Text(visible(message), "yellow"), "Waiting for it to come back.")

    def broken(self, fault: SyntaxFault) -> None:
        """The file does not parse."""
        self._say(Text(f"{shown(self._path)}, line {fault.line}: {visible(fault.message)}", "red"), visible(fault.text))

    def fault(self, message: str, hint: str) -> None:
        """The grader failed."""
        self._say(Text(f"The grader failed, not your code: {visible(message)}", "red"), visible(hint))

    def hint(self, attempt: Attempt | None) -> None:
        """The next hint of the first part that does not pass."""
        parts = [part.number for part in attempt.parts if not part.passed] if attempt else []
        number = parts[0] if parts else 1
        hints = read_hints(self._exercise)[number]
        with journal_of(self._workspace) as journal:
            had = journal.hint_level(self._exercise.slug, number) if journal else 0
        level = min(had + 1, len(hints))
        if level > had:
            record(self._workspace, "record_hint", self._exercise.slug, number, level)
        from rich.markdown import Markdown

        self._console.print()
        self._console.print(Text(f"part {number}, {HINT_LEVELS[level - 1].lower()} ({level} of {len(hints)})", "bold"))
        self._console.print(Markdown(literal_stars(hints[level - 1])))

    def confirm(self, key: str) -> None:
        """Giving up takes the key twice."""
        self._console.print(Text(f"\nPress {key} again to end this unfinished", "yellow"))

    def tick(self) -> None:
        """Nothing happens by itself."""

    def _say(self, first: Text, second: str) -> None:
        self._clear()
        self._console.print(Text(self._exercise.title, "bold"))
        self._console.print(first)
        if second:
            self._console.print(Text(second, "dim"))
        self._foot()

    def _foot(self) -> None:
        self._console.print()
        if self._remark:
            self._console.print(Text(self._remark, "yellow"))
        self._console.print(Text(f"{self._doing} {shown(self._path)}   {self._keys}", "dim"))

    def _clear(self) -> None:
        if self._console.is_terminal:
            self._console.clear()


@click.command()
@click.argument("name")
@click.option("--part", type=click.IntRange(min=1), help="Only this part's tests.")
@click.option("--file", type=click.Path(path_type=Path), help="This file instead of the workspace's.")
@click.option("--poll", is_flag=True, help="Look at the file in turn instead of waiting for the system to report.")
def watch(name: str, part: int | None, file: Path | None, poll: bool) -> int:
    """Grade the exercise NAME whenever its file is saved. Keys: h hint, n next failure, t timing, r reveal, q quit."""
    workspace = Workspace.find()
    exercise = find(Catalogue(), name, workspace).exercise
    if part is not None and part > len(exercise.parts):
        raise RequestError(f"{exercise.slug} has parts 1 to {len(exercise.parts)}, not {part}")
    path = file or workspace.file(exercise.slug)
    if not path.parent.is_dir():
        raise RequestError(f"{path.parent} does not exist", f"kit start {exercise.slug} writes the stub")
    reason = "--poll was said" if poll else must_poll(path)
    remark = f"polling: {reason}" if reason else ""
    if remark:
        note(f"{remark}; saves are seen within a moment")
    events: queue.Queue[Event] = queue.Queue()

    def keep(attempt: Attempt, source: bytes) -> None:
        record(workspace, "record_attempt", attempt, hashlib.sha256(source).hexdigest(), part=part, source="watch")

    screen = Screen(console(), exercise, path, workspace, remark)
    seed = secrets.randbelow(MAX_SEED)
    with JudgeClient() as client, FileEvents(path, events, bool(reason)), key_presses(events):
        session = Watching(exercise, path, seed, client, screen, keep, part)
        ended = session.run(events)
    if ended is Exit.REVEAL:
        click.echo(f"kit reveal {exercise.slug}")
    return 0 if session.attempt is not None and session.attempt.passed else 1


@contextlib.contextmanager
def key_presses(events: queue.Queue[Event]) -> Iterator[None]:
    """Put single key presses into `events` while the block runs; the terminal is as before afterwards.

    Where stdin is no terminal its characters count as keys, and its end means quit.
    """
    stop = threading.Event()
    stream = sys.stdin
    restore = _cbreak(stream.fileno()) if stream.isatty() else None

    def read() -> None:
        while not stop.is_set():
            if not select.select([stream], [], [], 0.1)[0]:
                continue
            char = stream.read(1) if not stream.isatty() else _one(stream.fileno())
            events.put(Key(char or "q"))
            if not char:
                return

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(1.0)
        if restore is not None:
            restore()


def _one(descriptor: int) -> str:
    import os

    return os.read(descriptor, 1).decode("utf-8", "ignore")


def _cbreak(descriptor: int) -> Callable[[], None]:
    import termios
    import tty

    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    return lambda: termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
