"""The journal: nothing recorded is lost, two writers get along, damage is said."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import time
from pathlib import Path

import msgspec
import pytest

from grader.errors import RequestError
from grader.journal import migrations
from grader.journal.progress import progress
from grader.journal.store import Journal
from grader.model import Attempt, Diagnosis, Isolation, Outcome, PartResult
from grader.model import TestResult as OneTest


def attempt(exercise: str = "gqa", passed: tuple[bool, ...] = (True, False), **changes: object) -> Attempt:
    parts = tuple(
        PartResult(number, f"Part {number}", good, 5 if good else 0) for number, good in enumerate(passed, start=1)
    )
    tests = tuple(
        OneTest(f"test_{part.number}", part.number, Outcome.PASSED if part.passed else Outcome.FAILED) for part in parts
    )
    made = Attempt(
        exercise=exercise,
        file=f"{exercise}.py",
        seed=7,
        device="cpu",
        isolation=Isolation.PROCESS,
        seconds=1.5,
        passed=all(passed),
        points=sum(part.points for part in parts),
        max_points=10,
        parts=parts,
        tests=tests,
    )
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def test_an_attempt_comes_back_whole(path: Path) -> None:
    made = attempt(diagnosis=(Diagnosis("tiled", "Tiled", "It tiles.", ("test_2",)),))
    with Journal.open(path) as journal:
        number = journal.record_attempt(made, "ab" * 32, part=2, at_ns=123)
    with Journal.open(path) as journal:
        assert journal.result(number) == made
        (row,) = journal.attempts("gqa")
        assert (row.at_ns, row.part, row.sha256, row.passed, row.points, row.started) == (
            123, 2, "ab" * 32, False, 5, True,
        )  # fmt: skip
        assert journal.parts_passed("gqa") == {1}
        assert [tuple(found) for found in journal.rows("SELECT mistake FROM attempt_mistakes")] == [("tiled",)]
        assert journal.attempts("moe") == []


def test_the_untouched_stub_is_recorded_but_is_no_try(path: Path) -> None:
    stub = (OneTest("test_1", 1, Outcome.ERROR, not_started=True),)
    with Journal.open(path) as journal:
        journal.record_attempt(attempt(passed=(False,), tests=stub), "")
        assert [row.started for row in journal.attempts()] == [False]
    assert progress(path) == {}


def test_a_file_that_does_not_load_is_a_try(path: Path) -> None:
    with Journal.open(path) as journal:
        journal.record_attempt(attempt(passed=(False,), tests=(), load_error="SyntaxError"), "")
        assert [row.started for row in journal.attempts()] == [True]


def test_an_unknown_attempt_is_refused(path: Path) -> None:
    with Journal.open(path) as journal, pytest.raises(RequestError, match="no attempt 9"):
        journal.result(9)


def test_hints_starts_resets_reveals_and_settings_are_kept(path: Path) -> None:
    with Journal.open(path) as journal:
        assert journal.hint_level("gqa", 1) == 0
        assert journal.first_start_ns("gqa") is None
        journal.record_hint("gqa", 1, 1)
        journal.record_hint("gqa", 1, 2)
        journal.record_hint("gqa", 2, 1)
        journal.record_start("gqa", at_ns=20)
        journal.record_start("gqa", at_ns=10)
        journal.record_reset("gqa", "backup.py")
        journal.record_reveal("gqa", "passed")
        journal.set_setting("interview", "2027-02-01")
        journal.set_setting("interview", "2027-03-01")
    with Journal.open(path) as journal:
        assert journal.hint_level("gqa", 1) == 2
        assert journal.first_start_ns("gqa") == 10
        assert journal.setting("interview") == "2027-03-01"
        assert journal.setting("other") is None
        assert [row["backup"] for row in journal.rows("SELECT backup FROM resets")] == ["backup.py"]
        assert [row["reason"] for row in journal.rows("SELECT reason FROM reveals")] == ["passed"]


def test_progress_adds_the_parts_that_any_attempt_passed(path: Path) -> None:
    with Journal.open(path) as journal:
        journal.record_attempt(attempt(passed=(True, False)), "")
        journal.record_attempt(attempt(passed=(False, True)), "")
        journal.record_attempt(attempt("moe", passed=(True, True)), "")
    found = progress(path)
    assert found["gqa"] == (False, 10, 10, 2)
    assert found["moe"] == (True, 10, 10, 1)


def test_passing_one_part_alone_is_not_passing_the_exercise(path: Path) -> None:
    with Journal.open(path) as journal:
        journal.record_attempt(attempt(passed=(True,), max_points=5), "", part=1)
    assert not progress(path)["gqa"].passed


def test_progress_of_no_journal_or_a_damaged_one_is_empty(path: Path) -> None:
    assert progress(path) == {}
    path.write_bytes(b"not a database" * 100)
    assert progress(path) == {}


@pytest.mark.parametrize("size", [17, 4096 * 3])
def test_a_damaged_journal_is_set_aside_said_and_kept(path: Path, size: int) -> None:
    path.write_bytes(b"not a database " * size)
    with Journal.open(path) as journal:
        (note,) = journal.notes
        assert journal.attempts() == []
        journal.record_attempt(attempt(), "")
    (kept,) = path.parent.glob("journal.damaged-*.db")
    assert kept.name in note
    assert kept.read_bytes() == b"not a database " * size


def test_a_journal_of_a_newer_kit_is_refused_and_left_alone(path: Path) -> None:
    Journal.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(migrations.STEPS) + 1}")
    connection.close()
    with pytest.raises(RequestError, match="this kit knows"):
        Journal.open(path)
    assert not list(path.parent.glob("*damaged*"))


def test_a_failed_migration_leaves_the_journal_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal.open(path) as journal:
        journal.record_attempt(attempt(), "")
    broken = (*migrations.STEPS, ("CREATE TABLE extra (x)", "no sql"))
    monkeypatch.setattr(migrations, "STEPS", broken)
    with pytest.raises(RequestError, match="cannot be opened"):
        Journal.open(path)
    monkeypatch.undo()
    with Journal.open(path) as journal:
        assert len(journal.attempts()) == 1
        assert not journal.rows("SELECT name FROM sqlite_master WHERE name = 'extra'")


def test_a_further_migration_keeps_what_is_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal.open(path) as journal:
        journal.record_attempt(attempt(), "")
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, ("CREATE TABLE extra (x)",)))
    with Journal.open(path) as journal:
        assert len(journal.attempts()) == 1
        assert journal.rows("SELECT name FROM sqlite_master WHERE name = 'extra'")


def test_a_transaction_that_fails_leaves_nothing(path: Path) -> None:
    with Journal.open(path) as journal:
        with pytest.raises(ZeroDivisionError), journal.transaction() as connection:
            connection.execute("INSERT INTO settings VALUES ('a', 'b')")
            raise ZeroDivisionError
        assert journal.setting("a") is None


def _write_many(path: Path, count: int) -> None:
    for _ in range(count):
        with Journal.open(path) as journal:
            journal.record_attempt(attempt(), "")


def test_several_processes_write_at_once_from_the_very_first_opening(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(path, 8)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    with Journal.open(path) as journal:
        assert len(journal.attempts()) == 32


def _write_and_tell(path: Path, told: Path) -> None:
    with Journal.open(path) as journal:
        while True:
            number = journal.record_attempt(attempt(), "")
            with told.open("a") as stream:
                stream.write(f"{number}\n")


def test_a_killed_process_loses_no_attempt_that_was_recorded(path: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for delay_seconds in (0.05, 0.11, 0.23):
        told = tmp_path / f"told-{delay_seconds}"
        writer = context.Process(target=_write_and_tell, args=(path, told))
        writer.start()
        while not told.exists():
            time.sleep(0.005)
        time.sleep(delay_seconds)
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join(10)
        with Journal.open(path) as journal:
            kept = {row.id for row in journal.attempts()}
            assert journal.notes == ()
        assert {int(line) for line in told.read_text().split()} <= kept
