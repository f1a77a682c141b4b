"""``kit class grade``: every submission of every exercise graded once, whatever happens in between."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import msgspec

from grader.catalogue import Catalogue
from grader.classroom.archives import Limits
from grader.classroom.identity import kit_fingerprint, pack_sha256
from grader.classroom.lanes import Lanes
from grader.classroom.ledger import Entry, Ledger
from grader.classroom.submissions import Collected, Wanted, collect
from grader.classroom.work import Done, Executor, Task
from grader.errors import RequestError
from grader.host import sandbox
from grader.model import Attempt, Exercise, Isolation, SpeedVerdict
from grader.stubs import stub_text

TRIES = 3
"""How often a task is tried when the grader itself fails at it."""


@dataclass(frozen=True)
class BatchOptions:
    """How to grade a class.

    Attributes:
        isolation: what stands between a submission and the judge; bwrap unless the instructor says otherwise.
        device: cpu or cuda.
        lanes: how many submissions are graded for correctness at once.
        seed: of every exercise's tests; None draws one for the batch, the same for the whole class.
        speed: whether to measure speed targets, in one serial lane after correctness.
        again: grade also what was graded before.
        only_found: leave out exercises that nobody handed in.
        limits: what one submission may hold.
    """

    isolation: Isolation = Isolation.BWRAP
    device: str = "cpu"
    lanes: int = 1
    seed: int | None = None
    speed: bool = True
    again: bool = False
    only_found: bool = False
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class BatchProgress:
    """Where the batch stands.  ``reused`` counts what was graded in an earlier run; `eta_seconds` is None at first."""

    phase: str
    done: int
    total: int
    passed: int
    failed: int
    faults: int
    reused: int
    running: tuple[str, ...]
    eta_seconds: float | None


class Status(StrEnum):
    """What became of one exercise of one student."""

    GRADED = "graded"
    MISSING = "missing"
    REFUSED = "refused"
    NOT_GRADED = "not graded"


@dataclass(frozen=True)
class Row:
    """One exercise of one student: what was handed in and the grade.

    ``points`` is None exactly where the grader failed: that is nobody's zero.
    """

    entry: Entry
    status: Status
    attempt: Attempt | None = None
    fault: str = ""

    @property
    def points(self) -> int | None:
        """The points, 0 for what was not handed in or refused."""
        if self.status is Status.NOT_GRADED:
            return None
        return self.attempt.points if self.attempt else 0


@dataclass(frozen=True)
class Gradebook:
    """A graded class: a row for each student and exercise, by student; names of entries that were nobody's."""

    exercises: tuple[Exercise, ...]
    rows: tuple[Row, ...]
    ignored: tuple[str, ...] = ()

    @property
    def students(self) -> tuple[str, ...]:
        """Every student, in order."""
        return tuple(dict.fromkeys(row.entry.student for row in self.rows))

    def of(self, student: str) -> tuple[Row, ...]:
        """One student's rows."""
        return tuple(row for row in self.rows if row.entry.student == student)


def check_isolation(isolation: Isolation) -> None:
    """Refuse to grade a class with less isolation than was asked for.

    Raises:
        RequestError: bwrap was asked for and does not work here, or the level keeps nothing apart.
    """
    if isolation is Isolation.NONE:
        raise RequestError("a class is not graded without isolation", "--isolation bwrap, or process if you must")
    if isolation is Isolation.BWRAP and (reason := sandbox.why_not()):
        raise RequestError(
            f"submissions cannot be kept from this machine: {reason}",
            "install bubblewrap; or say --isolation process, which keeps nobody from reading this disk or the network",
        )


def grade_class(
    folder: Path,
    out: Path,
    catalogue: Catalogue,
    exercises: Sequence[Exercise],
    options: BatchOptions,
    progress: Callable[[BatchProgress], None] = lambda state: None,
    executor: Executor | None = None,
) -> Gradebook:
    """Grade every submission in ``folder``; grades are kept in ``out`` as they are made.

    Stopped at any moment and called again, it goes on where it was: only what has no grade under the same file,
    tests, grader and options is graded.

    Args:
        folder: one entry per student.
        out: the folder of the ledger.
        catalogue: where the exercises are from.
        exercises: what to look for.
        options: how to grade.
        progress: told of every step, in the caller's thread.
        executor: who does the correctness work; lanes on this machine by default.

    Raises:
        RequestError: no submissions, isolation that cannot be had, or a batch already at work in ``out``.
    """
    if sealed := [item.slug for item in exercises if not item.solution_path.exists()]:
        raise RequestError(
            f"{', '.join(sealed[:3])} cannot be graded here: the solution is sealed", "grade from a checkout"
        )
    timed = {
        item.slug: {target.part for target in item.speeds if target.applies_to(options.device)}
        for item in exercises
        if options.speed and any(target.applies_to(options.device) for target in item.speeds)
    }
    if executor is None or timed:
        check_isolation(options.isolation)
    collected = collect(folder, [_wanted(item) for item in exercises], options.limits)
    if options.only_found:
        handed_in = {found.exercise for submission in collected.submissions for found in submission.found}
        exercises = [item for item in exercises if item.slug in handed_in]
        if not exercises:
            raise RequestError(
                f"no exercise was found in any submission in {folder}", "an answer is called like its exercise: gqa.py"
            )
    with Ledger(out) as ledger:
        entries, tasks = _plan(collected, exercises, options, ledger.secret())
        ledger.set_roster(entries)
        if options.again:
            ledger.forget(list(tasks))
        run = _Run(ledger, tasks, progress)
        run.correctness(executor or Lanes(options.lanes, catalogue.root))
        if timed:
            run.speed(Lanes(1, catalogue.root), timed)
        return gradebook(ledger, exercises, tuple(collected.ignored))


def gradebook(ledger: Ledger, exercises: Sequence[Exercise], ignored: tuple[str, ...] = ()) -> Gradebook:
    """The class as the ledger has it."""
    rows = []
    for entry in ledger.roster():
        if entry.refused:
            rows.append(Row(entry, Status.REFUSED))
        elif not entry.key:
            rows.append(Row(entry, Status.MISSING))
        elif (attempt := ledger.attempt(entry.key)) is not None:
            rows.append(Row(entry, Status.GRADED, attempt))
        else:
            rows.append(
                Row(entry, Status.NOT_GRADED, fault=ledger.last_fault(entry.key) or "the batch was stopped before it")
            )
    return Gradebook(tuple(exercises), tuple(rows), ignored)


def exercise_seed(secret: bytes, slug: str) -> int:
    """The seed of an exercise in a batch: the same for the whole class, unknown to it, the same on every machine."""
    return int.from_bytes(hmac.new(secret, slug.encode(), hashlib.sha256).digest()[:4], "big") >> 1


def _wanted(exercise: Exercise) -> Wanted:
    stub = stub_text(exercise, exercise.solution_path.read_text(encoding="utf-8"))
    return Wanted(exercise.slug, exercise.symbols, stub.encode())


def _plan(
    collected: Collected, exercises: Sequence[Exercise], options: BatchOptions, secret: bytes
) -> tuple[list[Entry], dict[str, Task]]:
    """The roster, and one task for each distinct piece of work (two identical files are one)."""
    kit = kit_fingerprint()
    packs = {item.slug: pack_sha256(item) for item in exercises}
    entries: list[Entry] = []
    tasks: dict[str, Task] = {}
    for submission in collected.submissions:
        found = {item.exercise: item for item in submission.found}
        for exercise in exercises:
            slug = exercise.slug
            seed = options.seed if options.seed is not None else exercise_seed(secret, slug)
            common = Entry(
                submission.student,
                submission.origin,
                slug,
                pack=packs[slug],
                kit=kit,
                seed=seed,
                max_points=exercise.max_points,
                refused=submission.refused,
                notes=submission.notes,
            )
            if slug not in found:
                entries.append(common)
                continue
            item = found[slug]
            label = f"{submission.student} · {slug}"
            task = Task(slug, item.source, item.path, label, seed, options.isolation, options.device, packs[slug], kit)
            tasks.setdefault(task.key, task)
            entries.append(msgspec.structs.replace(common, key=task.key, file=item.path, source_sha256=item.sha256))
    return entries, tasks


class _Run:
    """One run of a batch: what is open, what is counted."""

    def __init__(self, ledger: Ledger, tasks: dict[str, Task], progress: Callable[[BatchProgress], None]) -> None:
        self._ledger, self._tasks, self._progress = ledger, tasks, progress

    def correctness(self, executor: Executor) -> None:
        """Grade what has no grade; what the grader failed at is tried again, at the end."""
        open_tasks = {key: task for key, task in self._tasks.items() if self._ledger.attempt(key) is None}
        before = [attempt for key in self._tasks if key not in open_tasks and (attempt := self._ledger.attempt(key))]
        counts = _Counts("correctness", len(self._tasks), before)
        self._rounds(executor, list(open_tasks.values()), counts, speed=False)

    def speed(self, executor: Executor, timed: dict[str, set[int]]) -> None:
        """Measure the speed of what is right, one at a time: two at once would disturb each other."""
        open_tasks = []
        for key, task in self._tasks.items():
            attempt = self._ledger.attempt(key)
            if attempt is None or task.exercise not in timed or self._ledger.has_speed(key):
                continue
            if any(part.passed and part.number in timed[task.exercise] for part in attempt.parts):
                open_tasks.append(msgspec.structs.replace(task, speed=True))
        self._rounds(executor, open_tasks, _Counts("speed", len(open_tasks), []), speed=True)

    def _rounds(self, executor: Executor, tasks: list[Task], counts: _Counts, speed: bool) -> None:
        self._progress(counts.state())
        for trial in range(1, TRIES + 1):
            failed: list[Task] = []

            def done(task: Task, result: Done, trial: int = trial, failed: list[Task] = failed) -> None:
                if result.attempt is not None:
                    self._ledger.keep(task.key, result.attempt, speed)
                    counts.ended(task, result.attempt)
                else:
                    self._ledger.keep_fault(task.key, result.fault)
                    counts.faulted(task, for_good=trial == TRIES)
                    failed.append(task)
                self._progress(counts.state())

            def started(task: Task) -> None:
                counts.started(task)
                self._progress(counts.state())

            if tasks:
                executor.run(tasks, started, done)
            tasks = failed


class _Counts:
    """What a progress line shows."""

    def __init__(self, phase: str, total: int, before: Sequence[Attempt]) -> None:
        self._phase, self._total, self._reused = phase, total, len(before)
        self._passed = sum(attempt.passed for attempt in before)
        self._failed = len(before) - self._passed
        self._faults = self._ended = 0
        self._running: dict[str, str] = {}
        self._begun = time.monotonic()

    def started(self, task: Task) -> None:
        self._running[task.key] = task.label

    def ended(self, task: Task, attempt: Attempt) -> None:
        self._running.pop(task.key, None)
        self._ended += 1
        right = attempt.passed and not any(item.verdict is SpeedVerdict.FAIL for item in attempt.speed)
        self._passed += right
        self._failed += not right

    def faulted(self, task: Task, for_good: bool) -> None:
        self._running.pop(task.key, None)
        self._faults += for_good
        self._ended += for_good

    def state(self) -> BatchProgress:
        done = self._reused + self._ended
        elapsed = time.monotonic() - self._begun
        eta = elapsed / self._ended * (self._total - done) if self._ended else None
        return BatchProgress(
            self._phase,
            done,
            self._total,
            self._passed,
            self._failed,
            self._faults,
            self._reused,
            tuple(self._running.values()),
            0.0 if done == self._total else eta,
        )
