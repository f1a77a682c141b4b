"""``kit debug``: a solution that holds a known mistake; find and mend it against the clock."""

from __future__ import annotations

import queue
import secrets
import time
from pathlib import Path

import click
from rich.text import Text

from grader.catalogue import Catalogue
from grader.cli.common import console, find, note, shown
from grader.cli.drill import LOCK, DrillScreen
from grader.cli.escape import visible
from grader.cli.grade import MAX_SEED
from grader.cli.watch import key_presses
from grader.cli.words import date, days, minutes
from grader.errors import RequestError
from grader.journal import drills as journal_drills
from grader.journal.drills import DrillRow
from grader.journal.hold import held
from grader.journal.store import Journal
from grader.judge.client import JudgeClient
from grader.model import Attempt, Exercise, Mistake
from grader.review import drills, hunts
from grader.review.cards import interview
from grader.watch import Event, Exit, FileEvents, Watching, must_poll
from grader.workspace import Workspace


@click.command()
@click.argument("name", required=False)
@click.option("--hard", is_flag=True, help="Two mistakes at once.")
@click.option("--resume", "resume_", is_flag=True, help="Go on with the hunt that was paused or cut off.")
@click.option("--give-up", is_flag=True, help="End the open hunt and be told the mistake.")
def debug(name: str | None, hard: bool, resume_: bool, give_up: bool) -> int:
    """Mend a solution of NAME that holds one known mistake (--hard: two), against the clock.

    The hunt has a file of its own. It ends when every hidden test passes, and then tells the mistake's story.
    """
    workspace = Workspace.find()
    workspace.prepare()
    catalogue = Catalogue()
    with Journal.open(workspace.journal_path) as journal:
        for remark in journal.notes:
            note(remark)
        open_hunts = [row for row in journal_drills.unfinished(journal) if row.mode in hunts.MODES]
        if resume_ or give_up:
            if not open_hunts:
                raise RequestError("there is no hunt to go on with", "kit debug NAME begins one")
            row = open_hunts[0]
            exercise = catalogue.exercise(row.exercise)
            with held(workspace.state / LOCK, "a drill or a hunt"):
                if give_up:
                    return _end(journal, row, exercise, False)
                journal_drills.resume(journal, row.id, time.time_ns())
                return _run(journal, workspace, exercise, journal_drills.drill(journal, row.id))
        if not name:
            raise click.UsageError("name an exercise, or say --resume")
        with held(workspace.state / LOCK, "a drill or a hunt"):
            if open_hunts:
                row = open_hunts[0]
                raise RequestError(
                    f"a hunt in {row.exercise} is not finished; its clock stands at {minutes(row.elapsed_seconds)}",
                    "kit debug --resume goes on with it, kit debug --give-up ends it",
                )
            exercise, row = _begin(journal, workspace, find(catalogue, name, workspace).exercise, hard)
            return _run(journal, workspace, exercise, row)


def _begin(journal: Journal, workspace: Workspace, exercise: Exercise, hard: bool) -> tuple[Exercise, DrillRow]:
    seed = secrets.randbelow(MAX_SEED)
    past = [row.seed for row in journal_drills.history(journal, exercise.slug) if row.mode in hunts.MODES]
    hunt = hunts.draw(exercise, seed, hard, past)
    backup = workspace.replace(f"{exercise.slug}_debug", hunt.page)
    path = workspace.file(f"{exercise.slug}_debug")
    click.echo(f"wrote {shown(path)}" + (f"; what was there is kept as {shown(backup)}" if backup else ""))
    row = journal_drills.begin(
        journal, exercise.slug, 0, "", hunts.mode(hard), str(path), hunt.seed, hunt.target_seconds, time.time_ns()
    )
    return exercise, row


def _run(journal: Journal, workspace: Workspace, exercise: Exercise, row: DrillRow) -> int:
    path = Path(row.file)
    reason = must_poll(path)
    screen = DrillScreen(journal, row, exercise, path, workspace, f"polling: {reason}" if reason else "")
    events: queue.Queue[Event] = queue.Queue()

    def keep(attempt: Attempt, source: bytes) -> None:
        screen.beat(attempts=1)

    count = "two mistakes" if row.mode == hunts.mode(True) else "one mistake"
    click.echo(f"{count} in {shown(path)}: the clock runs, {screen.clock()}")
    with JudgeClient() as client, FileEvents(path, events, bool(reason)), key_presses(events):
        session = Watching(
            exercise,
            path,
            row.seed,
            client,
            screen,
            keep,
            exits={"p": Exit.PAUSE, "q": Exit.PAUSE, "x": Exit.GIVE_UP},
            until=lambda attempt: attempt.passed,
            diagnose=False,
        )
        try:
            ended = session.run(events)
        except BaseException:
            screen.beat()
            journal_drills.pause(journal, row.id)
            raise
    screen.beat()
    click.echo()
    if ended is Exit.PAUSE:
        journal_drills.pause(journal, row.id)
        click.echo(f"paused at {minutes(screen.elapsed_seconds)}; kit debug --resume goes on")
        return 1
    return _end(journal, row, exercise, ended is Exit.DONE)


def _end(journal: Journal, row: DrillRow, exercise: Exercise, passed: bool) -> int:
    result = drills.conclude(journal, row, passed, time.time_ns(), None, interview(journal))
    if result is None:
        note("this hunt has been ended in another terminal")
        return 1
    out = console()
    done = result.drill
    style = "bold green" if passed else "bold"
    took = f"{minutes(done.elapsed_seconds)} of {minutes(done.target_seconds)}, {result.rating.name.lower()}"
    out.print(Text(f"{exercise.title}: {'mended' if passed else 'given up'}, {took}", style))
    for mistake in hunts.mistakes_of(exercise, row.seed, row.mode == hunts.mode(True)):
        out.print(Text(f"\nIt held: {visible(mistake.title)}", "bold magenta"))
        for line in _story(mistake):
            out.print(Text(f"  {visible(line)}"))
    due_ns = result.scheduled.due_ns
    out.print(Text(f"\nnext hunt here: {date(due_ns)}, in {days(due_ns - time.time_ns())}"))
    return 0 if passed else 1


def _story(mistake: Mistake) -> list[str]:
    lines = [mistake.says]
    if mistake.seen_in:
        lines.append(f"Seen in {mistake.seen_in}.")
    for edit in mistake.edits:
        was, should = edit.replace.strip().splitlines() or [""], edit.find.strip().splitlines() or [""]
        lines += [f"- {line.strip()}" for line in was] + [f"+ {line.strip()}" for line in should]
    return lines
