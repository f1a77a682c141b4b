"""From a gradebook to pages: what a student may see of a grade, and what an instructor sees of a class.

A student's page never holds a hidden test's text, whatever the submission put into
its messages: text that quotes the tests is taken out.  How much it tells is the
instructor's choice (`Detail`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import date
from enum import StrEnum
from urllib.parse import quote

from grader.classroom.batch import Gradebook, Row, Status
from grader.classroom.fragments import Sealed, sealed_code, sealed_prose
from grader.classroom.identity import kit_version, pack_files
from grader.classroom.leaks import Scanner
from grader.classroom.stats import ExerciseStatistics, class_statistics
from grader.host.wire import bounded
from grader.model import Attempt, Exercise, Outcome, PartResult, SpeedVerdict, TestResult
from grader.report import class_pages as pages

REMOVED = "(taken out: it quotes the tests)"
_SHOWN_FAULTS = 3
_TEXT_CHARS = 600

OUTCOME_WORDS = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "gave a wrong value",
    Outcome.ERROR: "raised an error",
    Outcome.TIMEOUT: "ran out of time",
    Outcome.CRASHED: "ended the process",
    Outcome.MEMORY: "ran out of memory",
    Outcome.OUTPUT: "printed too much",
    Outcome.SKIPPED: "not judged",
}


class Detail(StrEnum):
    """How much a student is told.

    points: which parts passed.  cause: also the known mistakes found, and errors in the student's own lines.
    full: also each failed test as a sentence, with the call, the value and the expected value.
    """

    POINTS = "points"
    CAUSE = "cause"
    FULL = "full"


class Redactor:
    """Takes out of a text whatever quotes the sealed side of the exercises."""

    def __init__(self, exercises: Sequence[Exercise]) -> None:
        sealed: list[Sealed] = []
        for exercise in exercises:
            for name, data in pack_files(exercise).items():
                text = data.decode("utf-8")
                made = sealed_code if name.endswith(".py") else sealed_prose
                if name != "exercise.toml":
                    sealed.append(made(f"{exercise.slug}/{name}", text))
        self._scanner = Scanner(sealed, ())

    def quotes(self, text: str) -> bool:
        """Whether the text holds a piece of the sealed side."""
        return next(self._scanner.scan("", text.encode("utf-8", "replace")), None) is not None

    def __call__(self, text: str, limit_chars: int = _TEXT_CHARS) -> str:
        """``text`` bounded and printable, or a remark where it quotes the tests."""
        if self.quotes(text):
            return REMOVED
        return bounded(text, limit_chars)


def student_view(book: Gradebook, student: str, detail: Detail, redact: Redactor) -> pages.StudentView:
    """What one student sees."""
    rows = book.of(student)
    exercises = {item.slug: item for item in book.exercises}
    points = [row.points for row in rows]
    known = [value for value in points if value is not None]
    return pages.StudentView(
        student,
        sum(known) if len(known) == len(points) else None,
        sum(row.entry.max_points for row in rows),
        tuple(_exercise_view(row, exercises[row.entry.exercise], detail, redact) for row in rows),
        f"kit {kit_version()}",
    )


def class_view(book: Gradebook, title: str, page_names: dict[str, str]) -> pages.ClassView:
    """What the instructor sees; ``page_names`` leads to the students' pages."""
    faults = sum(row.status is Status.NOT_GRADED for row in book.rows)
    remarks = []
    if faults:
        remarks.append(f"{faults} could not be graded, through no fault of the students; grade again to retry")
    if book.ignored:
        remarks.append(f"nobody's: {', '.join(book.ignored[:10])}")
    isolation = sorted({str(row.attempt.isolation) for row in book.rows if row.attempt})
    return pages.ClassView(
        title,
        tuple(item.slug for item in book.exercises),
        tuple(_class_exercise(item) for item in class_statistics(book)),
        tuple(_student_row(book, student, page_names[student]) for student in book.students),
        tuple(remarks),
        f"kit {kit_version()} · {date.today().isoformat()} · isolation: {', '.join(isolation) or 'none applied'}",
    )


def page_names(students: Sequence[str]) -> dict[str, str]:
    """A file name for each student's page: readable in any script, safe on any system, no two alike."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for student in students:
        kept = "".join(letter if letter.isalnum() or letter in "-_ ." else "_" for letter in student)
        stem = unicodedata.normalize("NFC", kept).strip(" .") or "student"
        while len(stem.encode()) > 180:
            stem = stem[:-1]
        if stem.casefold().split(".")[0] in _DEVICE_NAMES:
            stem = f"_{stem}"
        name, number = stem, 2
        while name.casefold() in taken:
            name, number = f"{stem} {number}", number + 1
        taken.add(name.casefold())
        names[student] = f"{name}.html"
    return names


_DEVICE_NAMES = {"con", "prn", "aux", "nul", *(f"{kind}{digit}" for kind in ("com", "lpt") for digit in range(1, 10))}


def test_title(test_id: str) -> str:
    """``test_one_token_decode[bf16]`` as ``one token decode [bf16]``."""
    name, bracket, parameters = test_id.partition("[")
    return name.removeprefix("test_").replace("_", " ") + (f" [{parameters}" if bracket else "")


def remark_of(row: Row) -> str:
    """What to say about a row that has no attempt, or one that could not be loaded."""
    match row.status:
        case Status.MISSING:
            return "Nothing was handed in for this exercise."
        case Status.REFUSED:
            return f"The submission was not read: {row.entry.refused}."
        case Status.NOT_GRADED:
            return "This could not be graded, and that is the grader's fault, not yours. It will be tried again."
    return ""


def _exercise_view(row: Row, exercise: Exercise, detail: Detail, redact: Redactor) -> pages.ExerciseView:
    attempt = row.attempt
    base = pages.ExerciseView(
        exercise.slug,
        exercise.title,
        str(row.status),
        row.points,
        row.entry.max_points,
        row.entry.file,
        remark_of(row),
        row.entry.notes,
    )
    if attempt is None:
        return base
    told = detail is not Detail.POINTS
    return pages.ExerciseView(
        **{name: getattr(base, name) for name in ("slug", "title", "status", "points", "max_points", "file", "notes")},
        remark="",
        parts=tuple(_part_view(part, attempt) for part in attempt.parts),
        mistakes=tuple(pages.CauseView(item.title, item.says, item.hint) for item in attempt.diagnosis) if told else (),
        faults=_faults(attempt, redact) if told else (),
        targets=_targets(attempt) if told else (),
        tests=_test_views(attempt, redact) if detail is Detail.FULL else (),
        isolation=str(attempt.isolation),
    )


def _part_view(part: PartResult, attempt: Attempt) -> pages.PartView:
    tests = [test for test in attempt.tests if test.part == part.number]
    passed = sum(test.outcome is Outcome.PASSED for test in tests)
    if attempt.load_error:
        seen = "the file does not load"
    elif tests and all(test.not_started for test in tests):
        seen = "not started"
    elif passed == len(tests) and not part.passed:
        seen = "right, but a target is missed"
    else:
        seen = f"{passed} of {len(tests)} tests passed"
    return pages.PartView(part.number, part.title, part.passed, part.points if part.passed else 0, part.points, seen)


def _faults(attempt: Attempt, redact: Redactor) -> tuple[pages.CauseView, ...]:
    """What went wrong in the student's own lines, each kind once."""
    if attempt.load_error:
        lines = next((test.trace for test in attempt.tests if test.trace), ())
        return (pages.CauseView("Your file does not load", redact(attempt.load_error), lines=lines),)
    seen: dict[tuple[str, tuple[str, ...]], pages.CauseView] = {}
    for test in attempt.tests:
        if test.outcome in (Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED) or test.not_started:
            continue
        key = (test.message if test.outcome is Outcome.ERROR else str(test.outcome), test.trace)
        title = f"In part {test.part}, your code {OUTCOME_WORDS[test.outcome]}"
        seen.setdefault(key, pages.CauseView(title, redact(test.message), lines=test.trace))
    return tuple(seen.values())[:_SHOWN_FAULTS]


def _targets(attempt: Attempt) -> tuple[pages.TargetView, ...]:
    costs = [
        pages.TargetView(
            item.name,
            f"{item.value:.2f} {item.unit}",
            f"{item.limit:g}",
            "held" if item.passed else "missed" if item.required else "missed (a stretch: no points depend on it)",
        )
        for item in attempt.costs
    ]
    words = {SpeedVerdict.PASS: "held", SpeedVerdict.FAIL: "missed", SpeedVerdict.INCONCLUSIVE: "too close to tell"}
    speeds = [
        pages.TargetView(
            item.name,
            f"{item.ratio:.2f}x ({item.low:.2f} to {item.high:.2f})",
            f"{item.target:g}x",
            words[item.verdict],
        )
        for item in attempt.speed
    ]
    return tuple(costs + speeds)


def _test_views(attempt: Attempt, redact: Redactor) -> tuple[pages.TestView, ...]:
    if attempt.load_error:
        return ()
    return tuple(_test_view(test, redact) for test in attempt.tests if test.outcome is not Outcome.PASSED)


def _test_view(test: TestResult, redact: Redactor) -> pages.TestView:
    mismatch = test.mismatch
    return pages.TestView(
        test_title(test.id),
        OUTCOME_WORDS[test.outcome],
        redact(test.message),
        redact(test.call),
        redact(mismatch.actual or mismatch.actual_shape) if mismatch else "",
        redact(mismatch.expected or mismatch.expected_shape) if mismatch else "",
    )


def _class_exercise(item: ExerciseStatistics) -> pages.ClassExerciseView:
    exercise = item.exercise
    counts = [item.points.count(value) for value in range(exercise.max_points + 1)]
    tallest = max(counts, default=0) or 1
    most = max((mistake.count for mistake in item.mistakes), default=1)
    outcomes = {OUTCOME_WORDS[outcome]: count for outcome, count in item.outcomes.items()}
    if item.load_errors:
        outcomes["did not load"] = item.load_errors
    widest = max(outcomes.values(), default=1)
    graded = item.status.get(Status.GRADED, 0)
    return pages.ClassExerciseView(
        exercise.slug,
        exercise.title,
        exercise.max_points,
        graded,
        " · ".join(f"{item.status[status]} {status}" for status in Status if item.status.get(status)),
        item.mean,
        item.median,
        tuple(pages.BarView(str(value), count, count / tallest) for value, count in enumerate(counts)),
        tuple(
            pages.BarView(found.title, found.count, found.count / most, found.id, found.says) for found in item.mistakes
        ),
        tuple(pages.BarView(word, count, count / widest) for word, count in outcomes.items()),
        tuple(
            pages.TestRow(
                test_title(found.id),
                found.part,
                found.passed,
                found.answers,
                found.discrimination,
                _test_remark(found.passed, found.answers, found.discrimination),
            )
            for found in item.tests
        ),
        tuple(
            pages.PartRow(
                part.number,
                part.title,
                part.passed,
                part.answers,
                part.median_seconds,
                part.slowest_seconds,
                f"{part.speed:.2f}x" if part.speed is not None else "",
            )
            for part in item.parts
        ),
        item.identical,
    )


def _test_remark(passed: int, answers: int, discrimination: float | None) -> str:
    if passed == answers:
        return "everybody passes"
    if passed == 0:
        return "nobody passes"
    if discrimination is not None and discrimination < 0:
        return "strong answers fail it more often than weak ones: look at it"
    return ""


def _student_row(book: Gradebook, student: str, page: str) -> pages.StudentRow:
    rows = book.of(student)
    words = {Status.MISSING: "missing", Status.REFUSED: "refused", Status.NOT_GRADED: "not graded"}
    cells = tuple(words.get(row.status, str(row.points)) for row in rows)
    known = [row.points for row in rows if row.points is not None]
    total = str(sum(known)) if len(known) == len(rows) else "–"
    flags = tuple(dict.fromkeys(note for row in rows for note in (row.entry.refused, *row.entry.notes) if note))
    return pages.StudentRow(student, f"feedback/{quote(page)}", cells, total, flags)
