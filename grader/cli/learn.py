"""``kit start``, ``kit hint`` and ``kit reset``."""

from __future__ import annotations

from pathlib import Path

import click

from grader.catalogue import HINT_LEVELS, Catalogue, Found, read_hints
from grader.cli.common import find, journal_of, print_markdown, record, shown, stub_of
from grader.errors import RequestError
from grader.workspace import Workspace


@click.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Write the stub even over your file, which is backed up first.")
def start(name: str, force: bool) -> None:
    """Write the stub of the exercise NAME into your workspace; never over a file that is there."""
    workspace = Workspace.find()
    exercise = find(Catalogue(), name).exercise
    stub = stub_of(exercise)
    path = workspace.file(exercise.slug)
    if path.is_dir():
        raise RequestError(f"{shown(path)} is a directory; the stub would have to stand there")
    if workspace.write_new(exercise.slug, stub):
        record(workspace, "record_start", exercise.slug)
        click.echo(f"wrote {shown(path)}")
    elif force:
        backup = workspace.replace(exercise.slug, stub)
        record(workspace, "record_reset", exercise.slug, str(backup or ""))
        click.echo(f"wrote {shown(path)}" + (f"; your file is kept as {shown(backup)}" if backup else ""))
    else:
        click.echo(f"{shown(path)} is there already and was left alone; kit reset {exercise.slug} starts over")
    first = exercise.parts[0]
    click.echo(f"part 1, {first.title}: {', '.join(first.symbols)}; {exercise.minutes} minutes")
    click.echo(f"then: kit grade {exercise.slug}")


@click.command()
@click.argument("name")
@click.option("--part", type=click.IntRange(min=1), help="The part; the first one you have not passed if not given.")
@click.option("--again", is_flag=True, help="Show the hints you have had, and no further one.")
def hint(name: str, part: int | None, again: bool) -> None:
    """The next hint for the exercise NAME: a nudge first, then the idea, then the line. Each is recorded."""
    workspace = Workspace.find()
    found = find(Catalogue(), name, workspace)
    exercise = found.exercise
    hints = read_hints(exercise)
    with journal_of(workspace) as journal:
        if part is None:
            passed = journal.parts_passed(exercise.slug) if journal else set()
            part = _part_in_question(found, passed)
        if part not in hints:
            raise RequestError(f"{exercise.slug} has parts 1 to {len(exercise.parts)}, not {part}")
        had = journal.hint_level(exercise.slug, part) if journal else 0
    if again and not had:
        raise RequestError(f"no hint was shown yet for part {part} of {exercise.slug}")
    last = had if again else min(had + 1, len(HINT_LEVELS))
    first = 1 if again or had == len(HINT_LEVELS) else last
    for level in range(first, last + 1):
        click.secho(f"part {part}, {HINT_LEVELS[level - 1].lower()} ({level} of {len(HINT_LEVELS)})", bold=True)
        print_markdown(hints[part][level - 1])
    if last > had:
        record(workspace, "record_hint", exercise.slug, part, last)
    if last < len(HINT_LEVELS):
        click.echo(f"\nstill stuck: kit hint {exercise.slug} --part {part}")


@click.command()
@click.argument("name")
@click.option("--restore", is_flag=True, help="Put the newest backup back instead of the stub.")
@click.option("--backup", type=click.Path(path_type=Path), help="With --restore: this backup, not the newest.")
def reset(name: str, restore: bool, backup: Path | None) -> None:
    """Start the exercise NAME over: your file is backed up, and the stub written in its place.

    kit reset NAME --restore undoes it, and is itself undone by --restore again.
    """
    workspace = Workspace.find()
    exercise = find(Catalogue(), name, workspace).exercise
    path = workspace.file(exercise.slug)
    if backup is not None and not restore:
        raise click.UsageError("--backup goes with --restore")
    if restore:
        known = workspace.backups(exercise.slug)
        chosen = backup or (known[0] if known else None)
        if chosen is None:
            raise RequestError(f"there is no backup of {shown(path)}")
        replaced = workspace.restore(exercise.slug, chosen)
        click.echo(f"{shown(path)} is {shown(chosen)} again")
    else:
        if not path.exists():
            raise RequestError(f"there is no {shown(path)} to reset", f"kit start {exercise.slug}")
        replaced = workspace.replace(exercise.slug, stub_of(exercise))
        click.echo(f"{shown(path)} is the stub again")
    record(workspace, "record_reset", exercise.slug, str(replaced or ""))
    if replaced is not None:
        click.echo(f"your file is kept as {shown(replaced)}; kit reset {exercise.slug} --restore puts it back")


def _part_in_question(found: Found, passed: set[int]) -> int:
    """The part NAME's symbol belongs to, else the first one that no attempt passed, else the last."""
    if found.part is not None:
        return found.part
    numbers = [part.number for part in found.exercise.parts]
    return next((number for number in numbers if number not in passed), numbers[-1])
