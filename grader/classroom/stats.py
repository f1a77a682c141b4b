"""What a graded class shows: points, mistakes, tests that tell answers apart, slow parts."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from grader.classroom.batch import Gradebook, Row, Status
from grader.model import Attempt, Exercise, Outcome

MIN_ANSWERS = 5
"""Fewer answers than this say nothing about how well a test tells them apart."""


@dataclass(frozen=True)
class MistakeCount:
    """A known mistake and how many of the class made it."""

    id: str
    title: str
    says: str
    count: int


@dataclass(frozen=True)
class TestStatistic:
    """One hidden test over the class.

    ``discrimination`` is the correlation of passing it with the share of the other tests passed (-1 to 1);
    None where everybody or nobody passed, or there are too few answers.
    """

    id: str
    part: int
    passed: int
    answers: int
    discrimination: float | None


@dataclass(frozen=True)
class PartStatistic:
    """One part over the class: times are seconds of its tests together; ``speed`` the median ratio to the reference."""

    number: int
    title: str
    passed: int
    answers: int
    median_seconds: float
    slowest_seconds: float
    speed: float | None


@dataclass(frozen=True)
class ExerciseStatistics:
    """One exercise over the class; ``points`` are of everybody who has a grade in it, missing ones included."""

    exercise: Exercise
    points: tuple[int, ...]
    status: dict[Status, int]
    mistakes: tuple[MistakeCount, ...]
    outcomes: dict[Outcome, int]
    """Answers in which a test ended so."""
    load_errors: int
    tests: tuple[TestStatistic, ...]
    parts: tuple[PartStatistic, ...]
    identical: tuple[tuple[str, ...], ...]
    """Groups of students whose files are the same to the byte, where more than a stub was handed in."""

    @property
    def mean(self) -> float | None:
        """The mean of the points."""
        return statistics.fmean(self.points) if self.points else None

    @property
    def median(self) -> float | None:
        """The median of the points."""
        return statistics.median(self.points) if self.points else None


def class_statistics(book: Gradebook) -> tuple[ExerciseStatistics, ...]:
    """The statistics of every exercise, in the gradebook's order."""
    return tuple(
        _of_exercise(exercise, [row for row in book.rows if row.entry.exercise == exercise.slug])
        for exercise in book.exercises
    )


def _of_exercise(exercise: Exercise, rows: Sequence[Row]) -> ExerciseStatistics:
    attempts = [row.attempt for row in rows if row.attempt is not None]
    return ExerciseStatistics(
        exercise,
        tuple(row.points for row in rows if row.points is not None),
        dict(Counter(row.status for row in rows)),
        _mistakes(attempts),
        _outcomes(attempts),
        sum(bool(attempt.load_error) for attempt in attempts),
        _tests(attempts),
        _parts(exercise, attempts),
        _identical(rows),
    )


def _mistakes(attempts: Sequence[Attempt]) -> tuple[MistakeCount, ...]:
    counts: Counter[str] = Counter()
    words = {}
    for attempt in attempts:
        for item in {item.mistake: item for item in attempt.diagnosis}.values():
            counts[item.mistake] += 1
            words[item.mistake] = (item.title, item.says)
    return tuple(MistakeCount(name, *words[name], count) for name, count in sorted(counts.items(), key=_by_count))


def _by_count(item: tuple[str, int]) -> tuple[int, str]:
    return (-item[1], item[0])


def _outcomes(attempts: Sequence[Attempt]) -> dict[Outcome, int]:
    counts: Counter[Outcome] = Counter(
        outcome
        for attempt in attempts
        if not attempt.load_error
        for outcome in {test.outcome for test in attempt.tests}
        if outcome not in (Outcome.PASSED, Outcome.SKIPPED)
    )
    return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}


def _tests(attempts: Sequence[Attempt]) -> tuple[TestStatistic, ...]:
    started = [attempt for attempt in attempts if _is_an_answer(attempt)]
    passes: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    part_of: dict[str, int] = {}
    for attempt in started:
        passed = {test.id: test.outcome is Outcome.PASSED for test in attempt.tests}
        for test in attempt.tests:
            part_of[test.id] = test.part
            rest = len(passed) - 1
            share = (sum(passed.values()) - passed[test.id]) / rest if rest else 0.0
            passes[test.id].append((passed[test.id], share))
    found = [
        TestStatistic(name, part_of[name], sum(right for right, _ in seen), len(seen), discrimination(seen))
        for name, seen in passes.items()
    ]
    return tuple(
        sorted(found, key=lambda item: -2.0 if item.discrimination is None else item.discrimination, reverse=True)
    )


def discrimination(seen: Sequence[tuple[bool, float]]) -> float | None:
    """The correlation between passing a test and the share of the others passed; None where it is not defined."""
    if len(seen) < MIN_ANSWERS:
        return None
    right = [float(passed) for passed, _ in seen]
    rest = [share for _, share in seen]
    mean_right, mean_rest = statistics.fmean(right), statistics.fmean(rest)
    spread_right = math.sqrt(sum((value - mean_right) ** 2 for value in right))
    spread_rest = math.sqrt(sum((value - mean_rest) ** 2 for value in rest))
    if spread_right * spread_rest < 1e-12:
        return None
    both = sum((a - mean_right) * (b - mean_rest) for a, b in zip(right, rest, strict=True))
    return both / (spread_right * spread_rest)


def _is_an_answer(attempt: Attempt) -> bool:
    """Whether there is anything to learn from an attempt about the tests: it loaded, and is no untouched stub."""
    return not attempt.load_error and not all(test.not_started for test in attempt.tests)


def _parts(exercise: Exercise, attempts: Sequence[Attempt]) -> tuple[PartStatistic, ...]:
    found = []
    for part in exercise.parts:
        seconds, passed = [], 0
        ratios = [item.ratio for attempt in attempts for item in attempt.speed if item.part == part.number]
        for attempt in attempts:
            passed += any(item.passed for item in attempt.parts if item.number == part.number)
            if _is_an_answer(attempt):
                seconds.append(sum(test.seconds for test in attempt.tests if test.part == part.number))
        found.append(
            PartStatistic(
                part.number,
                part.title,
                passed,
                len(attempts),
                statistics.median(seconds) if seconds else 0.0,
                max(seconds, default=0.0),
                statistics.median(ratios) if ratios else None,
            )
        )
    return tuple(found)


def _identical(rows: Sequence[Row]) -> tuple[tuple[str, ...], ...]:
    groups: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row.attempt is not None and _is_an_answer(row.attempt):
            groups[row.entry.source_sha256].append(row.entry.student)
    return tuple(tuple(students) for students in groups.values() if len(students) > 1)
