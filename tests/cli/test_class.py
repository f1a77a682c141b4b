"""``kit class`` through the command line, on the miniature course, with real judges."""

from __future__ import annotations

import json
import zipfile

import pytest

from grader.classroom import batch
from grader.cli.teach import duration, progress_line
from grader.host import sandbox

needs_bwrap = pytest.mark.skipif(bool(sandbox.why_not()), reason=sandbox.why_not() or "bubblewrap works")


@pytest.fixture
def submissions(course, tmp_path):
    """Right, wrong by a known mistake, hanging, not loading, an archive, a bad archive, and nothing."""
    folder = tmp_path / "Spring class"
    right = (course / "solutions" / "shift.py").read_text()
    for student, text in (
        ("Ada L", right),
        ("Bob", right.replace("return x + 1", "return 2 * x + 1")),
        ("Cyd", right.replace("return x + 1", "while True: pass")),
        ("Dan", "def shift(x:\n"),
    ):
        (folder / student).mkdir(parents=True)
        (folder / student / "shift.py").write_text(text)
    with zipfile.ZipFile(folder / "山田.zip", "w") as archive:
        archive.writestr("hw/shift.py", "# mine\n" + right)
    (folder / "Mal.zip").write_bytes(b"PK nonsense")
    (folder / "Eve").mkdir()
    toml = course / "exercises" / "shift" / "exercise.toml"
    toml.write_text("timeout_seconds = 1\n" + toml.read_text())
    return folder


@needs_bwrap
def test_a_class_is_graded_reported_and_not_graded_twice(kit, submissions, monkeypatch):
    ran = kit("class", "grade", submissions, "--json", "--jobs", 2)
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    points = {grade["student"]: (grade["points"], grade["status"]) for grade in document["grades"]}
    assert points == {
        "Ada L": (10, "graded"),
        "Bob": (5, "graded"),
        "Cyd": (5, "graded"),
        "Dan": (0, "graded"),
        "Eve": (0, "missing"),
        "Mal": (0, "refused"),
        "山田": (10, "graded"),
    }
    assert {grade["isolation"] for grade in document["grades"]} == {"bwrap", None}
    assert next(grade["mistakes"] for grade in document["grades"] if grade["student"] == "Bob") == ["shift-wrong"]
    out = submissions.with_name("Spring class.grades")
    for name in (
        "grades.csv",
        "gradebook.csv",
        "junit.xml",
        "class.html",
        "feedback/山田.html",
        "gradescope/Bob/results.json",
    ):
        assert (out / name).stat().st_size
    monkeypatch.setattr(batch, "Lanes", lambda *arguments: _Idle())
    assert json.loads(kit("class", "grade", submissions, "--json").out) == document
    again = kit("class", "report", out, "--json", "--feedback", "points")
    assert json.loads(again.out) == document
    assert "should do another" not in (out / "feedback" / "Bob.html").read_text()
    text = kit("class", "report", out)
    assert "shift: 5 graded, 1 missing, 1 refused; mean 4.3 of 10" in text.out
    assert "1 x shift-wrong" in text.out and "Mal, shift: refused" in text.out


class _Idle:
    """Lanes that must have nothing to do."""

    def run(self, tasks, started, done):
        pytest.fail(f"graded again: {[task.label for task in tasks]}")


def test_without_bubblewrap_nothing_is_graded_unless_told_so(kit, submissions, monkeypatch):
    monkeypatch.setattr(sandbox, "why_not", lambda: "the program bwrap (bubblewrap) is not installed")
    ran = kit("class", "grade", submissions)
    assert ran.code == 2
    assert "bwrap (bubblewrap) is not installed" in ran.err and "--isolation process" in ran.err
    assert not submissions.with_name("Spring class.grades").exists()
    ran = kit("class", "grade", submissions, "--isolation", "process", "--json", "--jobs", 1)
    assert ran.code == 0
    assert {grade["isolation"] for grade in json.loads(ran.out)["grades"]} == {"process", None}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grade", "nowhere"], "does not exist"),
        (["grade", "{class}", "--exercises", "nonsense"], "no exercise or symbol 'nonsense'"),
        (["grade", "{class}", "--exercises", ","], "no exercise is named"),
        (["grade", "{class}", "--out", "{class}/out"], "must not lie among the submissions"),
        (["grade", "{class}", "--isolation", "none"], "'none' is not one of"),
        (["grade", "{class}", "--scheduler", "tcp://127.0.0.1:9"], "no Dask scheduler answers"),
        (["report", "nowhere"], "holds no grades"),
        (["release", "kit"], "say which exercises"),
        (["release", "kit", "--all", "--exercises", "shift"], "say which exercises"),
        (["code", "shift"], "no *.codes.json lies here"),
        (["selftest", "--row", "99"], "no row 99"),
    ],
)
def test_wrong_requests_get_a_sentence_and_code_2(kit, submissions, tmp_path, monkeypatch, arguments, message):
    if "--scheduler" in arguments:
        pytest.importorskip("distributed")
        monkeypatch.setattr("grader.classroom.cluster.CONNECT_SECONDS", 1.0)
    if "selftest" in arguments:
        monkeypatch.delenv("KIT_CONTENT")
    monkeypatch.chdir(tmp_path)
    ran = kit("class", *(argument.format_map({"class": submissions}) for argument in arguments))
    assert ran.code == 2, ran.err
    assert message in ran.err.replace("\n", " ")


@needs_bwrap
def test_the_selftest_says_what_is_stopped(kit, monkeypatch):
    ran = kit("class", "selftest", "--row", 0, "--row", 34, "--isolation", "bwrap")
    assert ran.code == 0, ran.out
    assert "34-network" in ran.out and "NOT" not in ran.out
    assert "bwrap: 3 of 3 are as they must be" in ran.out


def test_the_progress_line():
    state = batch.BatchProgress("correctness", 12, 100, 7, 5, 1, 3, ("ada · gqa", "bob · gqa"), 130.0)
    assert progress_line(state) == (
        "correctness 12/100, 7 right, 5 wrong, 1 could not be graded, 3 from before, 2 min left  ada · gqa"
    )
    assert [duration(seconds) for seconds in (5, 89, 90, 600, 7500)] == ["5 s", "89 s", "2 min", "10 min", "2 h 5 min"]
