"""Watching: what counts as a save, what each key does, when it polls; the judge is stood in for."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grader.catalogue import Catalogue
from grader.errors import GraderFault
from grader.judge.orders import GradeOrder, Judged
from grader.model import Attempt, Isolation, Outcome, PartResult
from grader.model import TestResult as OneTest
from grader.watch import Event, Exit, FileEvents, Key, Saved, SyntaxFault, Watching, must_poll, syntax_fault

MOUNTS = (
    "/dev/sda1 / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\nC: /mnt/my\\040disk 9p rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n"
)


class Judge:
    """Passes what holds no "wrong"."""

    def __init__(self) -> None:
        self.orders: list[GradeOrder] = []

    def grade(self, order: GradeOrder, progress: Callable[[Any], None]) -> Attempt:
        self.orders.append(order)
        if b"boom" in order.source:
            raise GraderFault("no memory", "close something")
        failing = order.source.count(b"wrong")
        tests = tuple(OneTest(f"test_{n}", 1, Outcome.FAILED if n < failing else Outcome.PASSED) for n in range(3))
        parts = (PartResult(1, "One", not failing, 10 * (not failing)),)
        attempt = Attempt(
            "shift", "f", order.seed, "cpu", Isolation.PROCESS, 0.1, not failing, 10 * (not failing), 10, parts, tests
        )
        progress(Judged(attempt))
        return attempt


class Seen:
    """A view that remembers."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def grading(self) -> None:
        self.calls.append("grading")

    def verdict(self, attempt: Attempt, shown: int, seconds: float, whole: bool) -> None:
        self.calls.append((attempt.passed, shown, whole))

    def unreadable(self, message: str) -> None:
        self.calls.append("unreadable")

    def broken(self, fault: SyntaxFault) -> None:
        self.calls.append(("broken", fault.line))

    def fault(self, message: str, hint: str) -> None:
        self.calls.append(("fault", message))

    def hint(self, attempt: Attempt | None) -> None:
        self.calls.append("hint")

    def confirm(self, key: str) -> None:
        self.calls.append(("confirm", key))

    def tick(self) -> None:
        self.calls.append("tick")


@pytest.fixture
def watching(course: Path, tmp_path: Path) -> Watching:
    path = tmp_path / "shift.py"
    path.write_text("right")
    recorded: list[bytes] = []
    made = Watching(
        Catalogue(course).exercise("shift"), path, 7, Judge(), Seen(), lambda attempt, source: recorded.append(source)
    )  # type: ignore[arg-type]
    made.recorded = recorded  # type: ignore[attr-defined]
    return made


def run(watching: Watching, *events: Event | Callable[[], object]) -> Exit:
    """Run through events; functions among them change the file first."""

    class Script(queue.Queue[Event]):
        def get(self, block: bool = True, timeout: float | None = None) -> Event:
            while left and callable(left[0]):
                left.pop(0)()  # type: ignore[operator]
            if not left:
                return Key("q")
            event = left.pop(0)
            assert not callable(event)
            return event

    left = list(events)
    return watching.run(Script())


def test_a_save_is_graded_once_and_recorded(watching: Watching) -> None:
    path = watching.path
    assert run(watching, Saved(), lambda: path.write_text("wrong"), Saved(), Saved()) is Exit.QUIT
    assert watching.recorded == [b"right", b"wrong"]  # type: ignore[attr-defined]
    assert watching.view.calls == [  # type: ignore[attr-defined]
        "grading", (True, 0, False), (True, 0, True), "grading", (False, 0, False), (False, 0, True),
    ]  # fmt: skip


def test_giving_up_takes_the_key_twice(watching: Watching) -> None:
    watching.exits = {"p": Exit.PAUSE, "x": Exit.GIVE_UP}
    assert run(watching, Key("x"), Key("n"), Key("x"), Key("p")) is Exit.PAUSE
    assert watching.view.calls.count(("confirm", "x")) == 2  # type: ignore[attr-defined]
    assert run(watching, Key("x"), Key("x")) is Exit.GIVE_UP


def test_ctrl_c_leaves_as_a_key_would(watching: Watching) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert run(watching, interrupt) is Exit.QUIT
    watching.exits = {"p": Exit.PAUSE, "x": Exit.GIVE_UP}
    assert run(watching, interrupt) is Exit.PAUSE


def test_what_failed_last_runs_first_and_the_seed_stays(watching: Watching) -> None:
    path = watching.path
    path.write_text("wrong\nwrong")
    run(watching, lambda: path.write_text("right"), Saved())
    first, second = watching.client.orders  # type: ignore[attr-defined]
    assert second.first == ("test_0", "test_1") and first.first == () and first.seed == second.seed == 7
    assert not second.speed


def test_deleted_restored_and_broken_files_are_lived_through(watching: Watching) -> None:
    path = watching.path
    run(
        watching,
        lambda: path.unlink(), Saved(),
        lambda: path.write_text("right"), Saved(),
        lambda: path.write_text("x = (\n\n"), Saved(),
        lambda: path.write_bytes(b"\xff"), Saved(),
        lambda: path.write_text("boom"), Saved(),
        lambda: path.write_text("right"), Saved(),
    )  # fmt: skip
    said = [call for call in watching.view.calls if isinstance(call, str) or call[0] in ("broken", "fault")]  # type: ignore[attr-defined]
    assert [call for call in said if call != "grading"] == [
        "unreadable", ("broken", 1), "unreadable", ("fault", "no memory"),
    ]  # fmt: skip
    assert watching.recorded == [b"right"] * 3  # type: ignore[attr-defined]


def test_keys(watching: Watching) -> None:
    watching.path.write_text("wrong\nwrong")
    assert run(watching, Key("n"), Key("n"), Key("h"), Key("z"), Key("g"), Key("t"), Key("r")) is Exit.REVEAL
    calls = watching.view.calls  # type: ignore[attr-defined]
    assert calls[3:6] == [(False, 1, True), (False, 0, True), "hint"] and len(calls) == 12
    assert [order.speed for order in watching.client.orders] == [False, False, True]  # type: ignore[attr-defined]


def test_it_ends_by_a_verdict_the_clock_or_control_c(watching: Watching) -> None:
    watching.until = lambda attempt: attempt.passed
    assert run(watching) is Exit.DONE
    watching.until, watching.expired = lambda attempt: False, lambda: True
    assert run(watching) is Exit.TIME
    watching.expired = lambda: False
    assert run(watching, Key("\x03")) is Exit.QUIT
    watching.exits = {"p": Exit.PAUSE}
    assert run(watching, Key("\x03")) is Exit.PAUSE


def test_an_interview_gives_no_hints(watching: Watching) -> None:
    watching.hints = False
    run(watching, Key("h"))
    assert "hint" not in watching.view.calls  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "polls"),
    [("/home/me/gqa.py", True), ("/mnt/my disk/gqa.py", True), ("/homes/gqa.py", False), ("/tmp/gqa.py", False)],
)
def test_file_systems_that_report_nothing_are_polled_and_said(path: str, polls: bool) -> None:
    assert bool(must_poll(Path(path), MOUNTS, {})) == polls
    assert must_poll(Path(path), MOUNTS, {"KIT_POLL": "1"}) == "KIT_POLL is set"


def test_a_syntax_error_is_told_with_its_line() -> None:
    assert syntax_fault(b"x = 1\ny = (\n") == SyntaxFault(2, "'(' was never closed", "y = (")
    assert syntax_fault(b"x = 1\n") is None


@pytest.mark.parametrize("polling", [False, True])
def test_every_way_of_saving_is_an_event(tmp_path: Path, polling: bool) -> None:
    path = tmp_path / "shift.py"
    path.write_text("0")
    events: queue.Queue[Event] = queue.Queue()

    def renamed() -> None:
        (tmp_path / "other").write_text("3")
        os.replace(tmp_path / "other", path)

    with FileEvents(path, events, polling):
        time.sleep(0.7 if polling else 0.3)
        for change in (lambda: path.write_text("1"), lambda: path.unlink(), lambda: path.write_text("22"), renamed):
            change()
            assert events.get(timeout=10) == Saved()
            time.sleep(0.25)
            while not events.empty():
                events.get()
        (tmp_path / "unrelated.py").write_text("x")
        time.sleep(0.4)
        assert events.empty()
