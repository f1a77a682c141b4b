"""A graded class for other programs: CSV, Gradescope's results.json, JUnit XML; and the HTML pages."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from grader.classroom import feedback
from grader.classroom.batch import Gradebook, Row, Status
from grader.classroom.feedback import Detail, Redactor
from grader.errors import GraderFault
from grader.host.wire import bounded
from grader.model import Outcome, TestResult
from grader.report import class_pages

_FORMULA_STARTS = frozenset("=+-@\t\r\n＝＋－＠")
_MESSAGE_CHARS = 2000


class Visibility(StrEnum):
    """When Gradescope shows a result to its student."""

    VISIBLE = "visible"
    AFTER_DUE_DATE = "after_due_date"
    AFTER_PUBLISHED = "after_published"
    HIDDEN = "hidden"


@dataclass(frozen=True)
class Written:
    """What `write_all` wrote."""

    files: tuple[Path, ...]
    withheld: tuple[str, ...]
    """Students without a results.json, because something of theirs could not be graded."""


def write_all(
    book: Gradebook,
    out: Path,
    title: str,
    detail: Detail = Detail.CAUSE,
    visibility: Visibility = Visibility.VISIBLE,
) -> Written:
    """Write every export of a class into ``out``; each file is replaced whole.

    Raises:
        GraderFault: a student's page would show sealed text.
        OSError: the disk refuses.
    """
    redact = Redactor(book.exercises)
    names = feedback.page_names(book.students)
    files = {
        out / "grades.csv": grades_csv(book),
        out / "gradebook.csv": gradebook_csv(book),
        out / "junit.xml": junit_xml(book),
        out / "class.html": class_pages.class_page(feedback.class_view(book, title, names)),
    }
    withheld = []
    for student in book.students:
        page = class_pages.student_page(feedback.student_view(book, student, detail, redact))
        files[out / "feedback" / names[student]] = page
        document = gradescope(book.of(student), visibility, detail, redact)
        target = out / "gradescope" / names[student].removesuffix(".html") / "results.json"
        if document is None:
            withheld.append(student)
            target.unlink(missing_ok=True)  # one of an earlier run may say something else by now
        else:
            files[target] = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    for path, text in files.items():
        _replace(path, text)
    return Written(tuple(files), tuple(withheld))


def grades_csv(book: Gradebook) -> str:
    """One row per student and exercise, with everything that a grade rests on."""
    most = max((len(exercise.parts) for exercise in book.exercises), default=0)
    head = ["student", "exercise", "status", "points", "max_points", "passed"]
    head += [f"part_{number}" for number in range(1, most + 1)]
    head += ["tests_passed", "tests", "timeouts", "mistakes", "isolation", "device", "seed", "seconds"]
    head += ["file", "origin", "source_sha256", "tests_sha256", "kit", "note"]
    return _csv(head, (_grade_row(row, most) for row in book.rows))


def gradebook_csv(book: Gradebook) -> str:
    """One row per student; the first row holds the points that can be had."""
    slugs = [exercise.slug for exercise in book.exercises]
    total = sum(exercise.max_points for exercise in book.exercises)
    rows: list[list[Any]] = [["(possible)", *(exercise.max_points for exercise in book.exercises), total, ""]]
    for student in book.students:
        of_student = book.of(student)
        by_slug = {row.entry.exercise: row for row in of_student}
        points = [by_slug[slug].points for slug in slugs]
        known = [value for value in points if value is not None]
        marks = "; ".join(
            f"{row.entry.exercise}: {row.status}" for row in of_student if row.status is not Status.GRADED
        )
        cells = ["" if value is None else value for value in points]
        rows.append([student, *cells, sum(known) if len(known) == len(points) else "", marks])
    return _csv(["student", *slugs, "total", "remarks"], rows)


def gradescope(rows: Sequence[Row], visibility: Visibility, detail: Detail, redact: Redactor) -> dict[str, Any] | None:
    """One student's results.json: a test per part, and the score said outright.

    A hidden test in the list would make Gradescope hide the total, so hidden tests are not in it; None where
    something could not be graded, since a score without it would be somebody's zero.
    """
    if any(row.points is None for row in rows):
        return None
    tests = [test for row in rows for test in _gradescope_tests(row, visibility, detail, redact)]
    return {
        "score": sum(row.points or 0 for row in rows),
        "execution_time": round(sum(row.attempt.seconds for row in rows if row.attempt)),
        "output": "\n".join(remark for row in rows if (remark := feedback.remark_of(row))),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        "visibility": str(visibility),
        "stdout_visibility": "hidden",
        "extra_data": {
            "kit": rows[0].entry.kit if rows else "",
            "exercises": {
                row.entry.exercise: {
                    "status": str(row.status),
                    "isolation": str(row.attempt.isolation) if row.attempt else "",
                    "source_sha256": row.entry.source_sha256,
                    "tests_sha256": row.entry.pack,
                }
                for row in rows
            },
        },
        "tests": tests,
    }


def junit_xml(book: Gradebook) -> str:
    """A suite per student and exercise, for continuous integration; points stand in properties.

    Raises:
        GraderFault: junitparser is not installed.
    """
    try:
        import junitparser
    except ImportError as error:
        raise GraderFault("JUnit XML needs the package junitparser", "pip install kit-grader[classroom]") from error
    xml = junitparser.JUnitXml("kit class grade")
    for row in book.rows:
        suite = junitparser.TestSuite(_text(f"{row.entry.student} · {row.entry.exercise}"))
        properties = {
            "student": row.entry.student,
            "exercise": row.entry.exercise,
            "status": str(row.status),
            "points": "" if row.points is None else str(row.points),
            "max_points": str(row.entry.max_points),
            "source_sha256": row.entry.source_sha256,
            "tests_sha256": row.entry.pack,
            "kit": row.entry.kit,
        }
        if row.attempt:
            properties |= {"isolation": str(row.attempt.isolation), "seed": str(row.attempt.seed)}
        for name, value in properties.items():
            suite.add_property(name, _text(value))
        if row.attempt is None:
            case = junitparser.TestCase(_text(row.entry.exercise), classname=_text(row.entry.exercise))
            message = _text(row.fault or feedback.remark_of(row))
            case.result = [
                junitparser.Error(message) if row.status is Status.NOT_GRADED else junitparser.Failure(message)
            ]
            suite.add_testcase(case)
        for test in row.attempt.tests if row.attempt else ():
            suite.add_testcase(_junit_case(junitparser, row, test))
        xml.add_testsuite(suite)
    xml.update_statistics()  # type: ignore[no-untyped-call]
    buffer = io.BytesIO()
    xml.write(buffer, pretty=True)
    return buffer.getvalue().decode("utf-8")


def neutral(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: text that begins like one gets an apostrophe in front."""
    if not isinstance(value, str):
        return value
    text = "".join(letter if letter.isprintable() else " " for letter in value)
    first = text.lstrip()[:1]
    return f"'{text}" if first in _FORMULA_STARTS and first else text


def _csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([neutral(cell) for cell in row])
    return buffer.getvalue()


def _grade_row(row: Row, most_parts: int) -> list[Any]:
    entry, attempt = row.entry, row.attempt
    parts = {part.number: part for part in attempt.parts} if attempt else {}
    tests = attempt.tests if attempt else ()
    note = "; ".join(
        text for text in (entry.refused, row.fault, attempt.load_error if attempt else "", *entry.notes) if text
    )
    return [
        entry.student,
        entry.exercise,
        str(row.status),
        "" if row.points is None else row.points,
        entry.max_points,
        "yes" if attempt and attempt.passed else "no" if row.points is not None else "",
        *(
            (parts[number].points if parts[number].passed else 0) if number in parts else ""
            for number in range(1, most_parts + 1)
        ),
        sum(test.outcome is Outcome.PASSED for test in tests) if attempt else "",
        len(tests) if attempt else "",
        sum(test.outcome is Outcome.TIMEOUT for test in tests) if attempt else "",
        " ".join(item.mistake for item in attempt.diagnosis) if attempt else "",
        str(attempt.isolation) if attempt else "",
        attempt.device if attempt else "",
        attempt.seed if attempt else "",
        round(attempt.seconds, 2) if attempt else "",
        entry.file,
        entry.origin,
        entry.source_sha256,
        entry.pack,
        entry.kit,
        bounded(note, 500),
    ]


def _gradescope_tests(row: Row, visibility: Visibility, detail: Detail, redact: Redactor) -> list[dict[str, Any]]:
    slug = row.entry.exercise
    if row.attempt is None:
        text = feedback.remark_of(row)
        return [_gradescope_test(slug, slug, 0, row.entry.max_points, text, visibility)]
    found = []
    for part in row.attempt.parts:
        lines = []
        if detail is not Detail.POINTS:
            in_part = {test.id for test in row.attempt.tests if test.part == part.number}
            lines = [f"{item.title}: {item.says}" for item in row.attempt.diagnosis if in_part & set(item.tests)]
            if row.attempt.load_error:
                lines = [f"Your file does not load: {redact(row.attempt.load_error)}"]
        name = f"{slug} part {part.number}: {part.title}"
        earned = part.points if part.passed else 0
        found.append(_gradescope_test(f"{slug}.{part.number}", name, earned, part.points, "\n".join(lines), visibility))
    return found


def _gradescope_test(
    number: str, name: str, score: int, max_score: int, output: str, visibility: Visibility
) -> dict[str, Any]:
    return {
        "number": number,
        "name": name,
        "score": score,
        "max_score": max_score,
        "status": "passed" if score == max_score else "failed",
        "output": output,
        "visibility": str(visibility),
    }


def _junit_case(junitparser: Any, row: Row, test: TestResult) -> Any:
    case = junitparser.TestCase(_text(test.id), classname=_text(row.entry.exercise), time=test.seconds)
    message = _text(bounded(test.message, _MESSAGE_CHARS))
    if test.outcome is Outcome.FAILED:
        case.result = [junitparser.Failure(message, str(test.outcome))]
    elif test.outcome is Outcome.SKIPPED:
        case.result = [junitparser.Skipped(message)]
    elif test.outcome is not Outcome.PASSED:
        case.result = [junitparser.Error(message, str(test.outcome))]
    return case


def _text(value: str) -> str:
    """Text that XML can hold."""
    return bounded(value, 4000)


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
