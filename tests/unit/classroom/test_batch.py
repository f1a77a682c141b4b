"""The batch: everything is graded once, nothing is lost, and nobody pays for the grader's faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from classroom_fakes import FakeExecutor

from grader.classroom import batch as batches
from grader.classroom.batch import BatchOptions, Status, check_isolation, exercise_seed, grade_class
from grader.classroom.ledger import Ledger
from grader.errors import RequestError
from grader.host import sandbox
from grader.model import Isolation

OPTIONS = BatchOptions(isolation=Isolation.PROCESS)


@pytest.fixture
def graded(catalogue, class_folder, tmp_path):
    def grade(executor=None, options=OPTIONS, progress=lambda state: None):
        executor = executor or FakeExecutor(catalogue)
        book = grade_class(
            class_folder, tmp_path / "out", catalogue, catalogue.exercises(), options, progress, executor
        )
        return book, executor

    return grade


def points(book):
    return {(row.entry.student, row.entry.exercise): row.points for row in book.rows}


def test_every_student_has_a_row_for_every_exercise(graded):
    book, _ = graded()
    assert points(book) == {
        ("ada", "scale_it"): 10,
        ("bob", "scale_it"): 4,
        ("cyd", "scale_it"): 0,
        ("dan", "scale_it"): 0,
        ("ada", "shift"): 0,
        ("bob", "shift"): 0,
        ("cyd", "shift"): 0,
        ("dan", "shift"): 10,
    }
    status = {(row.entry.student, row.entry.exercise): row.status for row in book.rows}
    assert status["dan", "scale_it"] is Status.MISSING
    assert status["cyd", "scale_it"] is Status.GRADED


def test_only_what_was_handed_in_when_asked_so(graded, class_folder):
    (class_folder / "dan" / "shift.py").unlink()
    book, _ = graded(options=BatchOptions(isolation=Isolation.PROCESS, only_found=True))
    assert {row.entry.exercise for row in book.rows} == {"scale_it"}


def test_a_second_run_grades_nothing(graded):
    first, _ = graded()
    second, executor = graded()
    assert executor.graded == []
    assert points(second) == points(first)


def test_a_changed_file_is_graded_again_and_nothing_else(graded, class_folder):
    graded()
    (class_folder / "cyd" / "scale_it.py").write_text("# right now\n")
    book, executor = graded()
    assert [task.label for task in executor.graded] == ["cyd · scale_it"]
    assert points(book)["cyd", "scale_it"] == 10


def test_changed_tests_are_graded_again_for_their_exercise_only(graded, catalogue):
    graded()
    path = catalogue.folders["shift"] / "hidden_tests.py"
    path.write_text(path.read_text() + "\n# another thought\n")
    _, executor = graded()
    assert {task.exercise for task in executor.graded} == {"shift"}


def test_a_changed_grader_grades_everything_again(graded, monkeypatch):
    _, first = graded()
    monkeypatch.setattr(batches, "kit_fingerprint", lambda: "another")
    _, executor = graded()
    assert len(executor.graded) == len(first.graded)


def test_other_options_are_other_grades(graded):
    graded()
    _, executor = graded(options=BatchOptions(isolation=Isolation.PROCESS, seed=5))
    assert len(executor.graded) == 4
    assert {task.seed for task in executor.graded} == {5}


def test_again_grades_everything_again(graded):
    graded()
    _, executor = graded(options=BatchOptions(isolation=Isolation.PROCESS, again=True))
    assert len(executor.graded) == 4


def test_the_seed_is_the_class_s_own_and_stays(graded):
    book, executor = graded()
    seeds = {
        task.exercise: {other.seed for other in executor.graded if other.exercise == task.exercise}
        for task in executor.graded
    }
    assert all(len(found) == 1 for found in seeds.values())
    assert seeds["scale_it"] != seeds["shift"]
    again, _ = graded()
    assert [row.entry.seed for row in again.rows] == [row.entry.seed for row in book.rows]
    assert exercise_seed(b"one", "gqa") != exercise_seed(b"two", "gqa")


def test_identical_files_are_graded_once(graded, class_folder):
    (class_folder / "bob" / "scale_it.py").write_text("# right\n")
    book, executor = graded()
    assert len([task for task in executor.graded if task.exercise == "scale_it"]) == 2
    assert points(book)["ada", "scale_it"] == points(book)["bob", "scale_it"] == 10


def test_a_fault_of_the_grader_is_tried_again(graded, class_folder):
    (class_folder / "cyd" / "scale_it.py").write_text("# fault 2 right\n")
    book, executor = graded()
    assert points(book)["cyd", "scale_it"] == 10
    assert sum(task.label.startswith("cyd") for task in executor.graded) == 3


def test_a_fault_that_stays_is_nobodys_zero(graded, class_folder):
    (class_folder / "cyd" / "scale_it.py").write_text("# fault 99 right\n")
    states = []
    book, _ = graded(progress=states.append)
    row = next(row for row in book.rows if row.entry.student == "cyd" and row.entry.exercise == "scale_it")
    assert row.status is Status.NOT_GRADED and row.points is None and row.fault == "the machine failed"
    assert states[-1].faults == 1 and states[-1].done == states[-1].total
    book, executor = graded()
    assert {task.label for task in executor.graded} == {"cyd · scale_it"}  # the next run tries it again


def test_an_interrupted_batch_goes_on_where_it_was(graded, catalogue):
    first = FakeExecutor(catalogue, stop_after=2)
    with pytest.raises(KeyboardInterrupt):
        graded(first)
    book, second = graded()
    assert len(second.graded) == 2
    assert {task.key for task in first.graded}.isdisjoint(task.key for task in second.graded)
    assert points(book)["ada", "scale_it"] == 10


def test_progress_counts_and_says_how_long(graded):
    states = []
    graded(progress=states.append)
    assert states[0].total == 4 and states[0].eta_seconds is None
    assert [state.done for state in states] == sorted(state.done for state in states)
    assert (states[-1].done, states[-1].passed, states[-1].failed, states[-1].eta_seconds) == (4, 2, 2, 0.0)
    assert any(state.running for state in states)
    states.clear()
    graded(progress=states.append)
    assert states[-1].reused == 4 and states[-1].passed == 2


def test_a_refused_submission_does_not_stop_the_class(graded, class_folder):
    (class_folder / "eve.zip").write_bytes(b"nonsense")
    book, _ = graded()
    row = next(row for row in book.rows if row.entry.student == "eve")
    assert row.status is Status.REFUSED and row.points == 0 and "damaged" in row.entry.refused
    assert points(book)["ada", "scale_it"] == 10


def test_two_batches_in_one_folder_are_one_too_many(graded, tmp_path):
    with Ledger(tmp_path / "out"), pytest.raises(RequestError, match="at work"):
        graded()


def test_without_bubblewrap_a_class_is_refused_unless_told_otherwise(monkeypatch):
    monkeypatch.setattr(sandbox, "why_not", lambda: "the program bwrap is not installed")
    with pytest.raises(RequestError, match="bwrap is not installed") as caught:
        check_isolation(Isolation.BWRAP)
    assert "--isolation process" in caught.value.hint
    check_isolation(Isolation.PROCESS)
    with pytest.raises(RequestError):
        check_isolation(Isolation.NONE)


def test_a_student_kit_cannot_grade_a_class(graded, catalogue):
    catalogue.exercise("shift").solution_path.unlink()
    with pytest.raises(RequestError, match="shift cannot be graded here"):
        graded()


def test_only_right_answers_with_a_speed_target_are_timed(catalogue, class_folder, tmp_path, monkeypatch):
    path = catalogue.folders["scale_it"] / "exercise.toml"
    path.write_text(path.read_text() + '\n[[speed]]\nname = "forward"\npart = 2\ntarget = 2.0\n')
    fresh = type(catalogue)(catalogue.root)
    timed = FakeExecutor(fresh)
    monkeypatch.setattr(batches, "Lanes", lambda count, root: timed)
    executor = FakeExecutor(fresh)
    grade_class(class_folder, tmp_path / "out", fresh, fresh.exercises(), OPTIONS, executor=executor)
    assert [task.label for task in timed.graded] == ["ada · scale_it"]
    assert timed.graded[0].speed
    timed.graded.clear()
    grade_class(class_folder, tmp_path / "out", fresh, fresh.exercises(), OPTIONS, executor=executor)
    assert timed.graded == []


KILLED = """
import sys, time
from pathlib import Path
from classroom_fakes import FakeExecutor
from grader.catalogue import Catalogue
from grader.classroom.batch import BatchOptions, grade_class
from grader.model import Isolation

class Slow(FakeExecutor):
    def run(self, tasks, started, done):
        for task in tasks:
            super().run([task], started, done)
            print("done", flush=True)
            time.sleep(0.2)

catalogue = Catalogue(Path(sys.argv[1]))
grade_class(Path(sys.argv[2]), Path(sys.argv[3]), catalogue, catalogue.exercises(),
            BatchOptions(isolation=Isolation.PROCESS), executor=Slow(catalogue))
"""


def test_killed_in_the_middle_and_run_again_the_grades_are_the_same(graded, catalogue, class_folder, tmp_path):
    for number in range(30):
        (class_folder / f"s{number}").mkdir()
        (class_folder / f"s{number}" / "scale_it.py").write_text(
            f"# {['right', 'half', 'wrong'][number % 3]} {number}\n"
        )
    arguments = [sys.executable, "-c", KILLED, str(catalogue.root), str(class_folder), str(tmp_path / "out")]
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    )
    assert process.stdout is not None
    for _ in range(7):
        assert process.stdout.readline() == "done\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            book, executor = graded()
            break
        except RequestError:
            time.sleep(0.05)
    assert 34 - 8 <= len(executor.graded) <= 34 - 7
    expected = {f"s{number}": (10, 4, 0)[number % 3] for number in range(30)}
    assert {
        row.entry.student: row.points
        for row in book.rows
        if row.entry.student in expected and row.entry.exercise == "scale_it"
    } == expected
