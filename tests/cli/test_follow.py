"""Correctness is shown before any time is measured, and the verdict once."""

from __future__ import annotations

import io

import attempts
import msgspec
from rich.console import Console

from grader.cli.follow import Follower
from grader.cli.render import print_attempt, print_timing, print_verdict
from grader.judge import orders
from grader.judge.orders import Diagnosing, Judged, Measuring, Started
from grader.model import Attempt


def followed(*events: object) -> list[Attempt]:
    shown: list[Attempt] = []
    with Follower("gqa", spinner=False, show=shown.append) as follower:
        for event in events:
            follower(event)  # type: ignore[arg-type]
    assert follower.verdict is (shown[0] if shown else None)
    return shown


BEFORE = msgspec.structs.replace(attempts.WRONG, speed=(), notes=())
TESTED = [orders.Tested(test) for test in attempts.WRONG.tests]


def test_the_verdict_is_shown_when_timing_begins() -> None:
    assert followed(Started(6), *TESTED, Judged(BEFORE), Measuring("forward"), Measuring("decode")) == [BEFORE]


def test_costs_before_the_verdict_show_nothing() -> None:
    assert followed(Started(6), *TESTED, Measuring("FLOPs")) == []


def test_a_verdict_without_its_mistake_is_not_whole() -> None:
    nameless = msgspec.structs.replace(BEFORE, diagnosis=())
    seen = followed(Judged(nameless), Diagnosing(), Measuring("FLOPs"), Judged(BEFORE), Measuring("forward"))
    assert seen == [BEFORE]


def test_without_timing_nothing_is_shown_early() -> None:
    assert followed(Started(6), *TESTED, Judged(BEFORE)) == []


def out_of(parts: int) -> str:
    console = Console(file=io.StringIO(), width=80, highlight=False, markup=False)
    if parts == 1:
        print_attempt(console, attempts.WRONG, attempts.EXERCISE)
    else:
        print_verdict(console, BEFORE, attempts.EXERCISE)
        print_timing(console, attempts.WRONG, attempts.EXERCISE, BEFORE)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_verdict_and_timing_together_are_the_whole() -> None:
    assert out_of(parts=2) == out_of(parts=1)


def test_points_that_timing_took_are_shown_again() -> None:
    console = Console(file=io.StringIO(), width=80, highlight=False, markup=False)
    slow = msgspec.structs.replace(attempts.WRONG, parts=attempts.UNTOUCHED.parts, points=0)
    print_timing(console, slow, attempts.EXERCISE, BEFORE)
    file = console.file
    assert isinstance(file, io.StringIO)
    assert "Grouped-query attention  0/10" in file.getvalue()
