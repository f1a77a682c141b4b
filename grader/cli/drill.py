"""``kit drill`` and ``kit due``: retype against the clock, and what to practise next."""

from __future__ import annotations

import hashlib
import queue
import secrets
import sys
import time
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from grader.catalogue import Catalogue
from grader.cli.common import console, find, note, shown
from grader.cli.grade import MAX_SEED
from grader.cli.watch import Screen, key_presses
from grader.cli.words import again, date, days, minutes
from grader.errors import RequestError
from grader.journal import drills as journal_drills
from grader.journal.drills import DrillRow
from grader.journal.hold import held
from grader.journal.store import Journal
from grader.judge.client import JudgeClient
from grader.model import Attempt, Exercise
from grader.review import drills
from grader.review.cards import cards, interview
from grader.review.drills import Mode
from grader.review.schedule import Rating, recall
from grader.watch import Event, Exit, FileEvents, Watching, must_poll
from grader.workspace import Workspace

KEYS = "h hint   n next failure   p pause   x give up"
LOCK = "drill.lock"


class DrillScreen(Screen):
    """A watch screen with the drill's clock on it, which also beats in the journal."""

    def __init__(
        self, journal: Journal, drill: DrillRow, exercise: Exercise, path: Path, workspace: Workspace, remark: str
    ) -> None:
        super().__init__(console(), exercise, path, workspace, remark, f"drill ({drill.mode})", KEYS)
        self._journal, self._drill = journal, drill
        self._last = time.monotonic()
        self.elapsed_seconds = drill.elapsed_seconds

    def beat(self, attempts: int = 0) -> None:
        """Write the time since the last beat into the journal."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        self.elapsed_seconds += seconds
        journal_drills.beat(self._journal, self._drill.id, seconds, time.time_ns(), attempts)

    def tick(self) -> None:
        """Let the clock run on the screen and in the journal."""
        self.beat()
        if sys.stdout.isatty():
            click.echo("\r" + self.clock() + "  ", nl=False)

    def clock(self) -> str:
        """The clock against the target."""
        over = self.elapsed_seconds > self._drill.target_seconds
        return f"{minutes(self.elapsed_seconds)} of {minutes(self._drill.target_seconds)}{' (over)' if over else ''}"

    def verdict(self, attempt: Attempt, shown: int, seconds: float, whole: bool) -> None:
        """The verdict, with the clock under it; a page not begun leaves the text to copy on the screen."""
        untouched = bool(attempt.tests) and all(test.not_started for test in attempt.tests)
        if self._drill.mode == Mode.COPY and untouched:
            if not whole:
                return
            self._foot()
        else:
            super().verdict(attempt, shown, seconds, whole)
        click.echo(self.clock(), nl=not sys.stdout.isatty())


@click.command()
@click.argument("name", required=False)
@click.option("--mode", type=click.Choice([mode.value for mode in Mode]), default="blank", show_default=True)
@click.option("--part", type=click.IntRange(min=1), default=1, show_default=True, help="The part to write.")
@click.option("--resume", "resume_", is_flag=True, help="Go on with the drill that was paused or cut off.")
@click.option("--give-up", is_flag=True, help="End the drill that was paused or cut off; it counts as Again.")
@click.option(
    "--rate", type=click.Choice([r.name.lower() for r in Rating]), help="This rating instead of the derived one."
)
def drill(name: str | None, mode: str, part: int, resume_: bool, give_up: bool, rate: str | None) -> int:
    """Write NAME (an exercise, a symbol, or exercise:symbol) against the clock, graded on every save.

    copy shows the solution beside a blank file, cloze blanks expressions of it, blank gives the signatures only.
    The drill has a file of its own; the exercise's file is not touched.
    """
    workspace = Workspace.find()
    workspace.prepare()
    catalogue = Catalogue()
    override = Rating[rate.upper()] if rate else None
    with Journal.open(workspace.journal_path) as journal:
        for remark in journal.notes:
            note(remark)
        open_drills = [row for row in journal_drills.unfinished(journal) if row.mode in set(Mode)]
        if resume_ or give_up:
            if not open_drills:
                raise RequestError("there is no drill to go on with", "kit drill NAME begins one")
            row = open_drills[0]
            exercise = catalogue.exercise(row.exercise)
            with held(workspace.state / LOCK, f"the drill of {row.exercise}"):
                if give_up:
                    return _end(journal, row, exercise, Path(row.file), False, override)
                journal_drills.resume(journal, row.id, time.time_ns())
                clock = minutes(row.elapsed_seconds)
                click.echo(f"going on with {exercise.title}, {row.mode}; the clock stood at {clock}")
                return _run(journal, workspace, exercise, journal_drills.drill(journal, row.id), override)
        if not name:
            raise click.UsageError("name an exercise or a symbol, or say --resume")
        with held(workspace.state / LOCK, "a drill"):
            if open_drills:
                row = open_drills[0]
                raise RequestError(
                    f"a drill of {row.exercise} ({row.mode}) is not finished; its clock stands at "
                    + minutes(row.elapsed_seconds),
                    "kit drill --resume goes on with it, kit drill --give-up ends it",
                )
            exercise, row = _begin(journal, workspace, catalogue, name, Mode(mode), part)
            return _run(journal, workspace, exercise, row, override)


def _begin(
    journal: Journal, workspace: Workspace, catalogue: Catalogue, name: str, mode: Mode, part: int
) -> tuple[Exercise, DrillRow]:
    slug, _, symbol = name.partition(":")
    found = find(catalogue, slug, workspace)
    exercise = found.exercise
    symbol = symbol or (found.symbol or "")
    seed = secrets.randbelow(MAX_SEED)
    solution = drills.solution_of(exercise)
    plan = drills.plan(exercise, solution, mode, symbol, part, seed)
    backup = workspace.replace(plan.file_stem, plan.page)
    path = workspace.file(plan.file_stem)
    click.echo(f"wrote {shown(path)}" + (f"; what was there is kept as {shown(backup)}" if backup else ""))
    if plan.beside:
        workspace.replace(f"{plan.file_stem}_text", plan.beside)
        click.echo(f"retype {shown(workspace.file(f'{plan.file_stem}_text'))}; it is shown here too:\n")
        from rich.syntax import Syntax

        console().print(Syntax(plan.beside, "python", theme="ansi_dark", line_numbers=True, word_wrap=True))
    row = journal_drills.begin(
        journal, exercise.slug, plan.part, symbol, str(mode), str(path), seed, plan.target_seconds, time.time_ns()
    )
    return exercise, row


def _run(journal: Journal, workspace: Workspace, exercise: Exercise, row: DrillRow, override: Rating | None) -> int:
    path = Path(row.file)
    reason = must_poll(path)
    if reason:
        note(f"polling: {reason}")
    remarks = [f"polling: {reason}"] if reason else []
    if row.mode == Mode.COPY:
        remarks.append(f"retype {shown(workspace.file(f'{exercise.slug}_drill_text'))}")
    screen = DrillScreen(journal, row, exercise, path, workspace, "; ".join(remarks))
    events: queue.Queue[Event] = queue.Queue()
    page = path.read_bytes() if path.exists() else b""

    def keep(attempt: Attempt, source: bytes) -> None:
        if source == page:
            return  # the page as it was written is no try
        if row.mode == Mode.BLANK and not row.symbol:  # a page that gave code away: passing it is no pass of the part
            journal.record_attempt(attempt, hashlib.sha256(source).hexdigest(), part=row.part, source="drill")
        screen.beat(attempts=1)

    click.echo(f"part {row.part}{f', {row.symbol}' if row.symbol else ''}: the clock runs, {screen.clock()}")
    with JudgeClient() as client, FileEvents(path, events, bool(reason)), key_presses(events):
        session = Watching(
            exercise,
            path,
            row.seed,
            client,
            screen,
            keep,
            row.part,
            exits={"p": Exit.PAUSE, "q": Exit.PAUSE, "x": Exit.GIVE_UP},
            until=lambda attempt: drills.done(attempt, row.part),
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
        click.echo(f"paused at {minutes(screen.elapsed_seconds)}; kit drill --resume goes on")
        return 1
    return _end(journal, row, exercise, path, ended is Exit.DONE, override)


def _end(journal: Journal, row: DrillRow, exercise: Exercise, path: Path, passed: bool, override: Rating | None) -> int:
    tokens = None
    if passed:
        names = (row.symbol,) if row.symbol else exercise.parts[row.part - 1].symbols
        solution = drills.solution_of(exercise)
        tokens = drills.differing_tokens(path.read_text(encoding="utf-8-sig"), solution, names)
    result = drills.conclude(journal, row, passed, time.time_ns(), tokens, interview(journal), override)
    if result is None:
        note("this drill has been ended in another terminal")
        return 1
    done = result.drill
    style = "bold green" if passed else "bold"
    out = console()
    out.print(Text(f"{exercise.title}, part {done.part}: {'passed' if passed else 'given up'}", style))
    table = Table.grid(padding=(0, 2))
    table.add_row("time", f"{minutes(done.elapsed_seconds)} of {minutes(done.target_seconds)}")
    if result.best_seconds is not None and result.previous_seconds is not None:
        table.add_row("before", f"last {minutes(result.previous_seconds)}, best {minutes(result.best_seconds)}")
    if tokens is not None:
        table.add_row("differs", f"{tokens} tokens from the solution (another way of writing it is no fault)")
    table.add_row("rated", result.rating.name.capitalize())
    table.add_row("next", f"{date(result.scheduled.due_ns)}, in {days(result.scheduled.due_ns - time.time_ns())}")
    out.print(table)
    return 0 if passed else 1


@click.command()
@click.option("--all", "every", is_flag=True, help="Also what is not due yet.")
def due(every: bool) -> int:
    """What to practise now: the cards that are due, the longest overdue first."""
    workspace = Workspace.find()
    if not workspace.exists:
        click.echo("nothing yet: kit drill gqa begins")
        return 0
    now = time.time_ns()
    with Journal.open(workspace.journal_path) as journal:
        for remark in journal.notes:
            note(remark)
        found = cards(journal, now)
    listed = [card for card in found if every or card.due_ns <= now]
    if not listed:
        following = (
            f"; on {date(found[0].due_ns)} comes {again(found[0].name)}"
            if found
            else "; a drill brings its review: kit drill NAME"
        )
        click.echo(f"nothing is due{following}")
        return 0
    for card in listed:
        when = "due now" if card.due_ns <= now else f"in {days(card.due_ns - now)}"
        click.echo(f"{when:<12}{date(card.due_ns)}  recall {recall(card.memory, now):>4.0%}  {again(card.name)}")
    return 0
