"""``kit interview``: code to mend, code to write, questions; one clock, no hints, a scorecard at the end."""

from __future__ import annotations

import queue
import secrets
import sys
import time
from contextlib import suppress
from pathlib import Path

import click
import msgspec
from rich.table import Table
from rich.text import Text

from grader import paths
from grader.catalogue import Catalogue
from grader.cli import quiz
from grader.cli.common import console, note, shown
from grader.cli.drill import LOCK
from grader.cli.escape import visible
from grader.cli.grade import MAX_SEED
from grader.cli.watch import Screen, key_presses
from grader.cli.words import minutes
from grader.errors import KitError, RequestError
from grader.journal import drills as journal_drills
from grader.journal import sessions
from grader.journal.hold import held
from grader.journal.sessions import InterviewRow, Item
from grader.journal.store import Journal
from grader.judge.client import JudgeClient
from grader.model import Attempt, Exercise
from grader.review import drills, hunts, interviews
from grader.review.cards import cards
from grader.review.cards import interview as interview_date
from grader.review.drills import Mode
from grader.review.numbers import Unreadable
from grader.review.quiz import Bank, Numeric, Spoken, rate_numeric, rate_spoken
from grader.watch import Event, Exit, FileEvents, Watching, must_poll
from grader.workspace import Workspace

KEYS = "n next failure   s skip this task   p pause"
NAMES = {"coding": "write", "debugging": "mend", "number": "work out", "spoken": "answer aloud"}


class Paused(Exception):
    """The learner stops for now; the clock stands."""


class Session:
    """A running interview: its clock, which beats in the journal, and how its tasks stand."""

    def __init__(self, journal: Journal, row: InterviewRow) -> None:
        self.journal, self.row, self.items = journal, row, list(row.items)
        self.elapsed_seconds = row.elapsed_seconds
        self._last: float | None = None

    def run(self) -> None:
        """Let the clock run."""
        self._last = time.monotonic()

    def stop(self) -> None:
        """Stop the clock, after a last beat."""
        self.beat()
        self._last = None

    def beat(self, number: int | None = None, attempts: int = 0) -> None:
        """Write the time since the last beat, as time of task `number` too."""
        seconds = 0.0
        if self._last is not None:
            now = time.monotonic()
            seconds, self._last = now - self._last, now
        self.elapsed_seconds += seconds
        if number is not None:
            item = self.items[number]
            elapsed = item.elapsed_seconds + seconds
            self.items[number] = msgspec.structs.replace(
                item, elapsed_seconds=elapsed, attempts=item.attempts + attempts
            )
        sessions.beat(self.journal, self.row.id, seconds, tuple(self.items))

    def change(self, number: int, **changes: object) -> Item:
        """Keep how a task stands."""
        self.items[number] = msgspec.structs.replace(self.items[number], **changes)
        self.beat()
        return self.items[number]

    @property
    def left_seconds(self) -> float:
        """What is left on the clock; at most 0 when the time is up."""
        running = time.monotonic() - self._last if self._last is not None else 0.0
        return self.row.limit_seconds - self.elapsed_seconds - running


class TaskScreen(Screen):
    """A watch screen with the interview's clock on it; no mistake is named and no hint is given."""

    def __init__(self, session: Session, number: int, exercise: Exercise, path: Path, workspace: Workspace) -> None:
        item = session.items[number]
        super().__init__(console(), exercise, path, workspace, "", f"interview ({NAMES[item.kind]})", KEYS)
        self._session, self._number = session, number

    def tick(self) -> None:
        """Let the clock run on the screen and in the journal."""
        self._session.beat(self._number)
        if sys.stdout.isatty():
            click.echo("\r" + left(self._session) + "   ", nl=False)

    def verdict(self, attempt: Attempt, shown: int, seconds: float, whole: bool) -> None:
        """The verdict, with the clock under it."""
        super().verdict(attempt, shown, seconds, whole=True)
        click.echo(left(self._session), nl=not sys.stdout.isatty())


@click.command()
@click.option("--minutes", "length", type=click.IntRange(min=15, max=240), default=60, show_default=True)
@click.option("--resume", "resume_", is_flag=True, help="Go on with the interview that was paused or cut off.")
@click.option("--give-up", is_flag=True, help="End the open interview; what was not reached counts as nothing.")
@click.option("--seed", type=click.IntRange(min=0, max=MAX_SEED - 1), help="Draw an earlier interview's tasks again.")
def interview(length: int, resume_: bool, give_up: bool, seed: int | None) -> int:
    """A mock interview: mend a solution, write another from its signatures, answer questions, all under one clock.

    No hints, and no mistake is named before the end. A scorecard closes it. Exit code 0: it would have passed.
    """
    workspace = Workspace.find()
    workspace.prepare()
    catalogue = Catalogue()
    bank = Bank(paths.content_root())
    with Journal.open(workspace.journal_path) as journal, held(workspace.state / LOCK, "a drill or an interview"):
        for remark in journal.notes:
            note(remark)
        running = sessions.interviews(journal, "running")
        if resume_ or give_up:
            if not running:
                raise RequestError("there is no interview to go on with", "kit interview begins one")
            row = running[-1]
            if give_up:
                sessions.finish_interview(journal, row.id, True, time.time_ns())
                return _scorecard(journal, row.id, catalogue)
            click.echo(f"going on; {minutes(row.limit_seconds - row.elapsed_seconds)} left")
        else:
            if running:
                row = running[-1]
                raise RequestError(
                    f"an interview is not finished; {minutes(row.limit_seconds - row.elapsed_seconds)} are left",
                    "kit interview --resume goes on with it, kit interview --give-up ends it",
                )
            row = _begin(journal, catalogue, bank, length, secrets.randbelow(MAX_SEED) if seed is None else seed)
        session = Session(journal, row)
        try:
            _tasks(session, workspace, catalogue, bank)
        except (Paused, quiz.Stop, click.Abort, KeyboardInterrupt):
            session.stop()
            click.echo(f"\npaused with {left(session)}; kit interview --resume goes on")
            return 1
        sessions.finish_interview(journal, row.id, False, time.time_ns())
        return _scorecard(journal, row.id, catalogue)


def left(session: Session) -> str:
    """The clock."""
    seconds = session.left_seconds
    return f"{minutes(seconds)} left of {minutes(session.row.limit_seconds)}" if seconds > 0 else "the time is up"


def _begin(journal: Journal, catalogue: Catalogue, bank: Bank, length: int, seed: int) -> InterviewRow:
    exercises = []
    for slug in catalogue.slugs:
        with suppress(KitError):
            exercises.append(catalogue.exercise(slug))
    exercises = [exercise for exercise in exercises if exercise.solution_path.exists()]
    now_ns = time.time_ns()
    last_seen = {row.exercise: row.finished_ns or 0 for row in journal_drills.history(journal)}
    due = {card.name: card.due_ns for card in cards(journal, now_ns)}
    items = interviews.draw(exercises, bank, length, seed, last_seen, due, now_ns)
    number = sessions.begin_interview(journal, items, seed, 60.0 * length, now_ns)
    out = console()
    out.print(Text(f"{length} minutes, {len(items)} tasks:", "bold"))
    for place, item in enumerate(items, start=1):
        out.print(Text(f"  {place}. {NAMES[item.kind]}, about {max(1, round(item.seconds / 60))} min"))
    return next(row for row in sessions.interviews(journal, "running") if row.id == number)


def _tasks(session: Session, workspace: Workspace, catalogue: Catalogue, bank: Bank) -> None:
    """The tasks that are open, one after the other, until the time is up."""
    coding = [number for number, item in enumerate(session.items) if item.kind in ("coding", "debugging")]
    if any(session.items[number].state == "open" for number in coding):
        with JudgeClient() as client:
            for number in coding:
                if session.items[number].state == "open":
                    _code(session, number, workspace, catalogue.exercise(session.items[number].subject), client)
    for number, item in enumerate(session.items):
        if item.state == "open":
            _question(session, number, bank)


def _code(session: Session, number: int, workspace: Workspace, exercise: Exercise, client: JudgeClient) -> None:
    item = session.items[number]
    if session.left_seconds <= 0:
        session.change(number, state="late")
        return
    if not item.file or not Path(item.file).exists():
        item = _write_page(session, number, workspace, exercise)
    path = Path(item.file)
    out = console()
    what = "mend it: it holds one mistake" if item.kind == "debugging" else f"write part {item.part}"
    out.print(Text(f"\n{number + 1} of {len(session.items)}: {exercise.title}, {what}", "bold"))
    click.echo(f"{shown(path)}; {left(session)}")
    events: queue.Queue[Event] = queue.Queue()
    page = path.read_bytes()

    def keep(attempt: Attempt, source: bytes) -> None:
        session.beat(number, attempts=int(source != page))

    def done(attempt: Attempt) -> bool:
        return attempt.passed if item.kind == "debugging" else drills.done(attempt, item.part)

    with FileEvents(path, events, bool(must_poll(path))), key_presses(events):
        watching = Watching(
            exercise,
            path,
            item.seed,
            client,
            TaskScreen(session, number, exercise, path, workspace),
            keep,
            item.part or None,
            exits={"s": Exit.GIVE_UP, "p": Exit.PAUSE, "q": Exit.PAUSE},
            until=done,
            expired=lambda: session.left_seconds <= 0,
            hints=False,
            diagnose=False,
        )
        session.run()
        try:
            ended = watching.run(events)
        finally:
            session.beat(number)
            session.stop()
    click.echo()
    if ended is Exit.PAUSE:
        raise Paused
    passed = ended is Exit.DONE
    points = 1.0 if passed else _part_of_the_tests(watching.attempt, item)
    state = "passed" if passed else "late" if ended is Exit.TIME else "skipped"
    with session.journal.transaction():
        session.change(number, state=state, points=points)
        _count_as_drill(session, number, exercise, passed)
    click.secho({"passed": "done", "late": "the time is up", "skipped": "skipped"}[state], bold=True)


def _write_page(session: Session, number: int, workspace: Workspace, exercise: Exercise) -> Item:
    """Write the task's page into a file of its own; what was there is backed up."""
    item = session.items[number]
    if item.kind == "debugging":
        hunt = hunts.draw(exercise, item.seed)
        session.change(number, seed=hunt.seed)  # the seed tells which mistake it holds
        page = hunt.page
    else:
        page = drills.plan(exercise, drills.solution_of(exercise), Mode.BLANK, "", item.part).page
    stem = f"{exercise.slug}_interview"
    backup = workspace.replace(stem, page)
    if backup:
        click.echo(f"what was in {shown(workspace.file(stem))} is kept as {shown(backup)}")
    return session.change(number, file=str(workspace.file(stem)))


def _part_of_the_tests(attempt: Attempt | None, item: Item) -> float:
    """Half credit at most for unfinished code: the share of its tests that pass."""
    if attempt is None or item.kind == "debugging" or not attempt.tests or item.attempts == 0:
        return 0.0
    return 0.5 * sum(test.outcome == "passed" for test in attempt.tests) / len(attempt.tests)


def _count_as_drill(session: Session, number: int, exercise: Exercise, passed: bool) -> None:
    """What was done under an interview's clock is a drill too: it enters the history and the reviews."""
    item, journal, now_ns = session.items[number], session.journal, time.time_ns()
    mode = hunts.mode(hard=False) if item.kind == "debugging" else str(Mode.BLANK)
    row = journal_drills.begin(
        journal, exercise.slug, item.part, "", mode, item.file, item.seed, item.seconds, session.row.started_ns
    )
    journal_drills.beat(journal, row.id, item.elapsed_seconds, now_ns, item.attempts)
    drills.conclude(journal, row, passed, now_ns, None, interview_date(journal))


def _question(session: Session, number: int, bank: Bank) -> None:
    item = session.items[number]
    if session.left_seconds <= 0:
        session.change(number, state="late")
        return
    question = interviews.question_of(bank, item.subject)
    click.secho(f"\n{number + 1} of {len(session.items)}: {question.topic}; {left(session)}", bold=True)
    session.run()
    try:
        if isinstance(question, Numeric):
            asked = bank.ask(question, item.seed)
            said, right, seconds = quiz.ask_number(asked)
        else:
            said, right, seconds = "", False, quiz.speak(question)
    finally:
        session.beat(number)
        session.stop()
    late = session.left_seconds <= 0
    if isinstance(question, Spoken):
        points = float(quiz.mark(question))  # the clock stands while the learner marks
        rating, passed = rate_spoken(points, question.max_points, seconds, question.minutes), points >= 5
    else:
        points, passed, rating = float(right), right, rate_numeric(right, seconds, question.minutes)
    with session.journal.transaction():
        quiz.keep(session.journal, question, item.seed, said, points, item.max_points, seconds, rating)
        state = "late" if late else "passed" if passed else "failed"
        session.change(number, state=state, points=0.0 if late else points)
    click.echo("noted, but the time was up" if late else "noted")


def _scorecard(journal: Journal, number: int, catalogue: Catalogue) -> int:
    row = next(found for found in sessions.interviews(journal) if found.id == number)
    share = interviews.score(row)
    out = console()
    verdict = interviews.band(share)
    style = "bold green" if share >= interviews.BANDS[1][0] else "bold yellow"
    out.print(Text(f"\nScorecard: {share:.0%}, {verdict}", style))
    out.print(Text(f"{minutes(min(row.elapsed_seconds, row.limit_seconds))} of {minutes(row.limit_seconds)}", "dim"))
    table = Table.grid(padding=(0, 2))
    for item in row.items:
        subject = item.subject.split(":")[-1]
        mark = {"passed": ("✓", "green"), "open": ("·", "dim")}.get(item.state, ("✗", "red"))
        state = "not reached" if item.state in ("open", "late") and not item.elapsed_seconds else item.state
        table.add_row(
            Text(*mark),
            Text(NAMES[item.kind]),
            Text(subject),
            Text(state),
            Text(f"{item.points:.2g} of {item.max_points:g}"),
            Text(f"{minutes(item.elapsed_seconds)} of {minutes(item.seconds)}", "dim"),
        )
    out.print(table)
    _explain(row, catalogue)
    return 0 if share >= interviews.BANDS[1][0] else 1


def _explain(row: InterviewRow, catalogue: Catalogue) -> None:
    """What can be told now that it is over: the hidden mistake, the worked answers."""
    out = console()
    bank = Bank(catalogue.root)
    for item in row.items:
        if item.state == "open":
            continue
        with suppress(KitError, Unreadable):
            if item.kind == "debugging" and item.file:
                for mistake in hunts.mistakes_of(catalogue.exercise(item.subject), item.seed):
                    out.print(Text(f"\n{item.subject} held: {visible(mistake.title)}", "magenta"))
                    out.print(Text(f"  {visible(mistake.says)}"))
            elif item.kind == "number" and item.elapsed_seconds:
                asked = bank.ask(_numeric(bank, item.subject), item.seed)
                out.print(Text(f"\n{item.subject.split(':')[-1]}: {quiz.number(asked.answer)} {asked.unit}", "magenta"))
                out.print(Text(f"  {visible(asked.worked)}"))


def _numeric(bank: Bank, card: str) -> Numeric:
    question = interviews.question_of(bank, card)
    if not isinstance(question, Numeric):
        raise RequestError(f"{card} is no question with numbers")
    return question
