"""What a graded class gives: figures that are right, files others can read, pages that show no more than they may."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ElementTree

import msgspec
import pytest
from classroom_fakes import TESTS, attempt_of

from grader.classroom import exports, feedback, stats
from grader.classroom.batch import Gradebook, Row, Status
from grader.classroom.exports import Visibility
from grader.classroom.feedback import Detail, Redactor
from grader.classroom.ledger import Entry
from grader.model import Mismatch, Outcome, SpeedResult, SpeedVerdict
from grader.report import class_pages

HOSTILE = '=HYPERLINK("http://x") <script>alert(1)</script> \x00\x1b[31m & ]]>'


def row(exercise, student, status=Status.GRADED, attempt=None, **changes):
    values = {"student": student, "origin": student, "exercise": exercise.slug, "max_points": exercise.max_points}
    if attempt is not None:
        values |= {
            "key": student,
            "file": "answer.py",
            "source_sha256": changes.pop("sha", student),
            "pack": "p",
            "kit": "k",
        }
    fault = changes.pop("fault", "")
    return Row(Entry(**(values | changes)), status, attempt, fault)


@pytest.fixture
def exercise(catalogue):
    return catalogue.exercise("scale_it")


@pytest.fixture
def book(exercise):
    right = attempt_of(exercise, set(TESTS), TESTS)
    half = attempt_of(exercise, {"test_first"}, TESTS, mistakes=("scale-it-wrong",))
    loop = attempt_of(exercise, set(), TESTS, Outcome.TIMEOUT, "no answer within 10 s", mistakes=())
    broken = msgspec.structs.replace(attempt_of(exercise, set(), TESTS), load_error="SyntaxError: invalid syntax")
    rows = (
        row(exercise, "ada", attempt=right, sha="same"),
        row(exercise, "bob", attempt=right, sha="same"),
        row(exercise, "cyd", attempt=half),
        row(exercise, "dan", attempt=half, sha="dan"),
        row(exercise, "eve", attempt=loop),
        row(exercise, "fay", attempt=broken),
        row(exercise, "gil", Status.MISSING),
        row(exercise, "hal", Status.REFUSED, refused="'x' is a link"),
        row(exercise, HOSTILE, Status.NOT_GRADED, key="h", fault=f"the machine failed {HOSTILE}"),
    )
    return Gradebook((exercise,), rows, ("notes.txt",))


# ------------------------------------------------------------------------------------------ statistics


def test_points_count_everybody_but_those_the_grader_failed(book):
    (found,) = stats.class_statistics(book)
    assert sorted(found.points) == [0, 0, 0, 0, 4, 4, 10, 10]
    assert found.mean == 3.5 and found.median == 2
    assert found.status == {Status.GRADED: 6, Status.MISSING: 1, Status.REFUSED: 1, Status.NOT_GRADED: 1}


def test_mistakes_outcomes_and_identical_files(book):
    (found,) = stats.class_statistics(book)
    assert [(item.id, item.count) for item in found.mistakes] == [("scale-it-wrong", 2)]
    assert found.outcomes == {Outcome.FAILED: 2, Outcome.TIMEOUT: 1}
    assert found.load_errors == 1
    assert found.identical == (("ada", "bob"),)


def test_a_test_that_goes_with_the_others_tells_answers_apart():
    good = [(True, 1.0), (True, 0.9), (True, 0.8), (False, 0.2), (False, 0.1)]
    assert stats.discrimination(good) > 0.9
    assert stats.discrimination([(not passed, share) for passed, share in good]) < -0.9
    assert stats.discrimination([(True, share) for _, share in good]) is None
    assert stats.discrimination(good[:4]) is None
    assert abs(stats.discrimination([(True, 0.1), (False, 0.9), (True, 0.9), (False, 0.1), (True, 0.5)])) < 0.2


def test_tests_are_ordered_by_how_well_they_discriminate(exercise):
    tests = {"test_sharp": 1, "test_easy": 1, "test_b": 1, "test_c": 2, "test_inverse": 2}
    strong = {"test_sharp", "test_easy", "test_b", "test_c"}
    answers = [
        strong,
        strong,
        strong - {"test_c"},
        {"test_easy", "test_inverse"},
        {"test_easy", "test_b", "test_inverse"},
        {"test_easy", "test_b"},
    ]
    rows = tuple(
        row(exercise, f"s{n}", attempt=attempt_of(exercise, passed, tests)) for n, passed in enumerate(answers)
    )
    (found,) = stats.class_statistics(Gradebook((exercise,), rows))
    by_name = {item.id: item for item in found.tests}
    order = [item.id for item in found.tests]
    assert order.index("test_sharp") < order.index("test_b") < order.index("test_inverse") < order.index("test_easy")
    assert by_name["test_easy"].discrimination is None and by_name["test_easy"].passed == 6
    assert by_name["test_inverse"].discrimination < 0
    view = feedback.class_view(Gradebook((exercise,), rows), "x", feedback.page_names([f"s{n}" for n in range(6)]))
    remarks = {item.title: item.remark for item in view.exercises[0].tests}
    assert remarks["easy"] == "everybody passes" and "look at it" in remarks["inverse"]


def test_parts_show_times_and_speed(exercise):
    speed = SpeedResult("forward", "cpu", 1.5, 1.4, 1.6, 2.0, SpeedVerdict.PASS, 2)
    attempts = [attempt_of(exercise, set(TESTS), TESTS, speed=(speed,)) for _ in range(3)]
    rows = tuple(row(exercise, f"s{n}", attempt=item) for n, item in enumerate(attempts))
    first, second = stats.class_statistics(Gradebook((exercise,), rows))[0].parts
    assert (first.median_seconds, first.speed) == (0.1, None)
    assert (second.median_seconds, second.slowest_seconds, second.speed, second.passed) == (0.2, 0.2, 1.5, 3)


def test_an_empty_class_has_statistics(exercise):
    (found,) = stats.class_statistics(Gradebook((exercise,), (row(exercise, "ada", Status.MISSING),)))
    assert found.points == (0,) and found.tests == ()


# ---------------------------------------------------------------------------------------------- CSV


@pytest.mark.parametrize("start", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "\r=1", "＝1", "＠x"])
def test_no_cell_is_a_formula(start):
    assert exports.neutral(start).startswith("'")
    assert exports.neutral("plain") == "plain" and exports.neutral("") == "" and exports.neutral(-3) == -3


def test_grades_csv_has_a_row_for_each_grade(book):
    rows = list(csv.DictReader(io.StringIO(exports.grades_csv(book))))
    assert len(rows) == 9
    by_student = {item["student"]: item for item in rows}
    assert (
        by_student["cyd"]["points"] == "4" and by_student["cyd"]["part_1"] == "4" and by_student["cyd"]["part_2"] == "0"
    )
    assert by_student["cyd"]["mistakes"] == "scale-it-wrong"
    assert by_student["eve"]["timeouts"] == "2"
    assert by_student["ada"]["isolation"] == "process" and by_student["ada"]["source_sha256"] == "same"
    assert by_student["gil"]["status"] == "missing" and by_student["gil"]["points"] == "0"
    assert by_student["hal"]["note"] == "'x' is a link" or by_student["hal"]["note"].endswith("is a link")
    hostile = rows[-1]
    assert hostile["points"] == "" and hostile["student"].startswith("'=HYPERLINK")
    assert all(letter.isprintable() for item in rows for cell in item.values() for letter in cell)


def test_gradebook_csv_begins_with_the_possible_points(book):
    rows = list(csv.reader(io.StringIO(exports.gradebook_csv(book))))
    assert rows[0] == ["student", "scale_it", "total", "remarks"]
    assert rows[1] == ["(possible)", "10", "10", ""]
    assert ["cyd", "4", "4", ""] in rows
    assert rows[-1][1:] == ["", "", "scale_it: not graded"]


# ----------------------------------------------------------------------------- Gradescope and JUnit


def test_gradescope_says_the_score_and_lists_parts_not_tests(book, exercise):
    redact = Redactor([exercise])
    document = exports.gradescope(book.of("cyd"), Visibility.AFTER_PUBLISHED, Detail.CAUSE, redact)
    assert document["score"] == 4 and document["visibility"] == "after_published"
    assert [(test["score"], test["max_score"], test["status"]) for test in document["tests"]] == [
        (4, 4, "passed"),
        (0, 6, "failed"),
    ]
    assert {test["visibility"] for test in document["tests"]} == {"after_published"}
    assert "test_first" not in json.dumps(document)
    assert "Says scale-it-wrong." in json.dumps(document)
    assert "Says" not in json.dumps(exports.gradescope(book.of("cyd"), Visibility.VISIBLE, Detail.POINTS, redact))


def test_no_results_file_is_better_than_a_zero_that_nobody_earned(book, exercise):
    redact = Redactor([exercise])
    assert exports.gradescope(book.of(HOSTILE), Visibility.VISIBLE, Detail.CAUSE, redact) is None
    missing = exports.gradescope(book.of("gil"), Visibility.VISIBLE, Detail.CAUSE, redact)
    assert missing["score"] == 0 and "handed in" in missing["tests"][0]["output"]


def test_junit_xml_parses_and_tells_failures_from_errors(book):
    root = ElementTree.fromstring(exports.junit_xml(book).encode())
    suites = {suite.get("name"): suite for suite in root.iter("testsuite")}
    assert len(suites) == 9
    assert [suites["cyd · scale_it"].get(name) for name in ("tests", "failures", "errors")] == ["2", "1", "0"]
    assert suites["eve · scale_it"].get("errors") == "2"
    assert suites["gil · scale_it"].get("failures") == "1"
    (hostile,) = [suite for name, suite in suites.items() if "HYPERLINK" in name]
    assert hostile.get("errors") == "1"
    properties = {item.get("name"): item.get("value") for item in suites["cyd · scale_it"].iter("property")}
    assert properties["points"] == "4" and properties["max_points"] == "10" and properties["isolation"] == "process"


# ------------------------------------------------------------------------------------------ feedback


def page(book, student, detail, exercise):
    return class_pages.student_page(feedback.student_view(book, student, detail, Redactor([exercise])))


def test_each_level_of_feedback_tells_more(book, exercise):
    points, cause, full = (page(book, "cyd", detail, exercise) for detail in Detail)
    for text in (points, cause, full):
        assert "1 of 1 tests passed" in text and "<strong>4</strong> of 10" in text
    assert "Says scale-it-wrong." not in points and "Says scale-it-wrong." in cause and "Says scale-it-wrong." in full
    assert "the values agree" not in cause and "the values agree" in full


def test_no_level_shows_a_tests_text_or_name(exercise):
    hidden = (exercise.folder / "hidden_tests.py").read_text()
    line = next(line.strip() for line in hidden.splitlines() if "close(" in line)
    mismatch = Mismatch("y", actual=line, expected="[2]")
    attempt = attempt_of(exercise, set(), TESTS, Outcome.ERROR, f"ValueError: {line}")
    tests = tuple(msgspec.structs.replace(test, mismatch=mismatch, printed=line, call=line) for test in attempt.tests)
    book = Gradebook((exercise,), (row(exercise, "mal", attempt=msgspec.structs.replace(attempt, tests=tests)),))
    for detail in Detail:
        text = page(book, "mal", detail, exercise)
        assert "reference." not in text and "test_first" not in text
    assert feedback.REMOVED in page(book, "mal", Detail.CAUSE, exercise)


def test_pages_escape_what_students_wrote(book, exercise):
    attempt = attempt_of(exercise, set(), TESTS, Outcome.ERROR, "<img src=x onerror=alert(1)>")
    hostile = Gradebook((exercise,), (row(exercise, HOSTILE, attempt=attempt, notes=("<b>",)),))
    names = feedback.page_names(hostile.students)
    for text in (
        page(hostile, HOSTILE, Detail.FULL, exercise),
        class_pages.class_page(feedback.class_view(hostile, "<i>", names)),
    ):
        assert "<script" not in text and "<img" not in text and "<b>" not in text and "<i>" not in text
        assert "http:" not in text.replace("http://x", "") and "src=" not in text.replace("&lt;img src=", "")


def test_a_fault_of_the_grader_reads_as_one(book, exercise):
    text = page(book, HOSTILE, Detail.CAUSE, exercise)
    assert "grader&#39;s fault, not yours" in text and "not final" in text
    assert "was not read: &#39;x&#39; is a link" in page(book, "hal", Detail.CAUSE, exercise)
    assert "SyntaxError" in page(book, "fay", Detail.CAUSE, exercise)
    assert "ran out of time" in page(book, "eve", Detail.CAUSE, exercise)


def test_page_names_are_safe_and_never_the_same():
    students = ["Ada", "ada", "a/b", "a:b", "..", "山田", "con", "é" * 300, "e\u0301", "é", "x.html", "NUL.txt"]
    names = feedback.page_names(students)
    assert len({name.casefold() for name in names.values()}) == len(students)
    for name in names.values():
        assert not set(name) & set('/\\:*?"<>|') and not name.startswith(".") and len(name.encode()) < 250
    assert names["山田"] == "山田.html"


def test_everything_is_written_and_stale_results_go(book, tmp_path):
    written = exports.write_all(book, tmp_path / "out", "A class")
    names = {path.relative_to(tmp_path / "out").as_posix() for path in written.files}
    assert {
        "grades.csv",
        "gradebook.csv",
        "junit.xml",
        "class.html",
        "feedback/ada.html",
        "gradescope/ada/results.json",
    } <= names
    assert len([name for name in names if name.endswith("results.json")]) == 8
    assert written.withheld == (HOSTILE,)
    failed = Gradebook(book.exercises, (row(book.exercises[0], "ada", Status.NOT_GRADED, key="a", fault="x"),))
    exports.write_all(failed, tmp_path / "out", "A class")
    assert not (tmp_path / "out" / "gradescope" / "ada" / "results.json").exists()
    assert not list((tmp_path / "out").rglob(".writing-*"))
