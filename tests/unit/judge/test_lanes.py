"""Tests side by side end as they do one after another."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from grader import paths
from grader.catalogue import Catalogue, read_mistakes
from grader.host import limits
from grader.host.process import Host, Zygote
from grader.judge import orders
from grader.judge.client import JudgeClient
from grader.judge.lanes import HostedTests, Hosts
from grader.judge.orders import GradeOrder
from grader.judge.pack import load_pack
from grader.model import Attempt, Outcome

SLUG = "sliding_window"


@pytest.fixture(scope="module")
def judge() -> Iterator[JudgeClient]:
    with JudgeClient() as client:
        yield client


def seen(attempt: Attempt) -> list[tuple[object, ...]]:
    """All that a learner is told of an attempt, but for times."""
    return [
        *((test.id, test.outcome, test.message, test.call, test.mismatch, test.printed) for test in attempt.tests),
        *((named.mistake, named.tests) for named in attempt.diagnosis),
        *((part.number, part.passed) for part in attempt.parts),
    ]


@pytest.mark.parametrize("kind", ["right", "wrong", "raising", "printing"])
def test_lanes_change_nothing_that_is_told(judge: JudgeClient, kind: str) -> None:
    exercise = Catalogue(paths.content_root()).exercise(SLUG)
    source = exercise.solution_path.read_text(encoding="utf-8")
    if kind == "wrong":
        for edit in read_mistakes(exercise)[0].edits:
            source = source.replace(edit.find, edit.replace)
    if kind == "raising":
        source += "\n\ndef sliding_window_mask(*args, **kwargs):\n    raise KeyError('mine')\n"
    if kind == "printing":
        source += "\nprint('loaded')\n"
    order = GradeOrder(SLUG, str(paths.content_root()), source.encode(), f"{SLUG}.py", f"{SLUG}.py", seed=3)
    told: list[str] = []

    def progress(event: orders.Progress) -> None:
        if isinstance(event, orders.Tested):
            told.append(event.result.id)

    alone = judge.grade(order, lambda event: None)
    together = judge.grade(msgspec.structs.replace(order, lanes=3), progress)
    assert seen(together) == seen(alone)
    assert told == [test.id for test in together.tests]  # progress comes in the tests' order
    assert alone.passed is (kind in ("right", "printing"))


def test_a_file_that_does_not_load_is_loaded_once_a_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each further load of an endless loop takes a processor from the first, and as long again."""
    begun: list[Hosts] = []
    start = Hosts._start

    def counted(hosts: Hosts) -> Host:
        begun.append(hosts)
        return start(hosts)

    monkeypatch.setattr(Hosts, "_start", counted)
    pack = load_pack(Catalogue(paths.content_root()).exercise("kv_budget"), ())
    source = f"{pack.solution}\nraise RuntimeError('at the end')\n"
    order = GradeOrder("kv_budget", "", source.encode(), "kv_budget.py", "kv_budget.py")
    zygote = Zygote.forked()
    try:
        ran = list(HostedTests(pack, order, limits.Limits(), lambda: zygote).run(pack.tests, lanes=2))
    finally:
        zygote.close()
    assert len(ran) == 1 and ran[0].load_fault
    assert len(begun) <= 2


DIRTY = """
import torch
if getattr(torch, "_left_behind", False):
    def sliding_window_mask(*args, **kwargs):
        raise RuntimeError("an earlier test was here")
torch._left_behind = True
"""


def test_what_only_an_earlier_test_breaks_is_right(judge: JudgeClient) -> None:
    source = Catalogue(paths.content_root()).exercise(SLUG).solution_path.read_text(encoding="utf-8") + DIRTY
    order = GradeOrder(SLUG, str(paths.content_root()), source.encode(), f"{SLUG}.py", f"{SLUG}.py", seed=3, lanes=2)
    assert judge.grade(order, lambda event: None).passed


HANGS_AND_SLOW = """

def sliding_window_mask(*args, **kwargs):
    while True:
        pass


_quick = masked_attention


def masked_attention(*args, **kwargs):
    import time

    end = time.thread_time() + 0.35
    while time.thread_time() < end:
        pass
    return _quick(*args, **kwargs)
"""


def test_an_endless_loop_in_one_part_leaves_a_slow_one_its_time(judge: JudgeClient) -> None:
    exercise = Catalogue(paths.content_root()).exercise(SLUG)
    source = exercise.solution_path.read_text(encoding="utf-8") + HANGS_AND_SLOW
    order = GradeOrder(SLUG, str(paths.content_root()), source.encode(), f"{SLUG}.py", f"{SLUG}.py", seed=3)
    attempt = judge.grade(order, lambda event: None)
    assert [(part.number, part.passed) for part in attempt.parts] == [(1, False), (2, True), (3, True)]
    hung = [test for test in attempt.tests if test.outcome is Outcome.TIMEOUT]
    assert [test.seconds > 0 for test in hung[:3]] == [True, True, False]  # the others were not run
    assert hung[0].trace[-1].endswith(("while True:", "pass"))  # where it was
    assert "thread" not in hung[0].printed
    # No point rests on a second test of a lost part, so it is given less time.
    assert hung[0].seconds > hung[1].seconds


DEAF = """

import signal

signal.signal(signal.SIGUSR1, signal.SIG_IGN)
print("before")


def sliding_window_mask(*args, **kwargs):
    while True:
        pass
"""


def test_a_loop_that_will_not_say_where_it_is_ends_all_the_same(judge: JudgeClient) -> None:
    source = Catalogue(paths.content_root()).exercise(SLUG).solution_path.read_text(encoding="utf-8") + DEAF
    order = GradeOrder(
        SLUG, str(paths.content_root()), source.encode(), f"{SLUG}.py", f"{SLUG}.py", part=1, seed=3, timeout_seconds=1
    )
    first = judge.grade(order, lambda event: None).tests[0]
    assert (first.outcome, first.trace, first.printed) == (Outcome.TIMEOUT, (), "before\n")
