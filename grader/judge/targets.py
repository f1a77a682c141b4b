"""Cost and speed targets of one attempt: measured after its tests, and only for parts whose tests pass."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from grader.errors import ContentError
from grader.host import wire
from grader.host.process import Zygote
from grader.judge.benchmarks import Benchmarks, load_benchmarks
from grader.judge.costs import measure_costs, own_cost
from grader.judge.orders import GradeOrder, Judged, Measuring, Progress
from grader.judge.pack import Pack
from grader.judge.speed import SpeedJudge
from grader.judge.view import Submission
from grader.model import Attempt, CostResult, Diagnosis, Exercise, Isolation, SpeedVerdict

SAME_COST = 0.02
"""A known costly variant explains a cost that is within this share of its own."""
NO_REFERENCE = "costs and speed are measured where the reference is: not in a student kit"
NO_PROCESS = "speed is not measured without isolation: it needs a process for your code alone"


class Targets:
    """Measures targets; keeps each exercise's benchmarks.

    Args:
        theirs: the zygote of the reference's hosts, from which no submission is ever started.
    """

    def __init__(self, theirs: Callable[[], Zygote]) -> None:
        self._theirs = theirs
        self._loaded: dict[str, Benchmarks] = {}
        self._preparing: threading.Thread | None = None

    def prepare(self, exercise: Exercise) -> None:
        """Begin, beside the tests, the imports that the first metered call asks torch for (800 modules, a second).

        The judge mostly waits for hosts while tests run, so this costs a cold grade almost nothing.
        """
        if exercise.costs and self._preparing is None:
            self._preparing = threading.Thread(target=_meter_something, daemon=True)
            self._preparing.start()

    def measure(
        self,
        pack: Pack,
        attempt: Attempt,
        order: GradeOrder,
        loads: Callable[[], AbstractContextManager[Callable[[], Submission]]],
        mine: Callable[[], Zygote],
        progress: Callable[[Progress], None],
    ) -> Attempt:
        """The attempt with its targets.

        Args:
            pack: the exercise.
            attempt: its tests' verdict.
            order: what was asked for.
            loads: opens a source of fresh loads of the submission, for costs; none is left when it closes.
            mine: the zygote of the submission's hosts, for speed.
            progress: told of every target, and of the verdict on the values and costs before any time is measured.

        Raises:
            ContentError: a benchmark is at fault.
            GraderFault: the reference's host cannot be used.
        """
        exercise = pack.exercise
        passing = [part.number for part in attempt.parts if part.passed]
        if not passing or not (exercise.costs or exercise.speeds or exercise.growths):
            return attempt
        if pack.tape is not None:
            return _noted(attempt, NO_REFERENCE)
        benchmarks = self._benchmarks(pack)
        if self._preparing is not None:
            self._preparing.join()
        with loads() as fresh:
            costs = measure_costs(
                pack, benchmarks, passing, fresh, order.seed, order.device, lambda name: progress(Measuring(name))
            )
        attempt = _with_costs(attempt, costs)
        missed = [cost for cost in costs if not cost.passed]  # a missed stretch is told its cause too
        if missed and order.diagnose:
            attempt = msgspec.structs.replace(
                attempt, diagnosis=(*attempt.diagnosis, *costly(pack, benchmarks, missed, order.seed))
            )
        passing = [part.number for part in attempt.parts if part.passed]
        timed = {target.part for target in exercise.speeds if target.applies_to(order.device)}
        timed |= {target.part for target in exercise.growths}
        if not order.speed or not timed.intersection(passing):
            return attempt
        if order.isolation is Isolation.NONE:
            return _noted(attempt, NO_PROCESS)
        progress(Judged(attempt))
        load = wire.Load(order.source, order.filename, order.seed)
        judge = SpeedJudge(pack, mine(), self._theirs(), load, order.device)
        return _with_speed(attempt, judge, benchmarks, passing, progress)

    def _benchmarks(self, pack: Pack) -> Benchmarks:
        key = str(pack.exercise.folder)
        if key not in self._loaded:
            self._loaded[key] = load_benchmarks(pack)
        return self._loaded[key]


class _PassOn(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that does nothing: entering one is what makes torch import."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _meter_something() -> None:
    importlib.import_module("grader.meter.costs")
    with _PassOn():  # type: ignore[no-untyped-call]
        torch.ones(2)


def costly(pack: Pack, benchmarks: Benchmarks, missed: Sequence[CostResult], seed: int) -> list[Diagnosis]:
    """The known costly variants that cost what was measured; a name only where one alone does."""
    found: dict[str, list[str]] = {}
    variants = [mistake for mistake in pack.mistakes if mistake.kind == "costly"]
    by_name = {target.name: benchmark for target, benchmark in benchmarks.costs}
    for cost in missed:
        same = []
        for mistake in variants:
            source = pack.variant(mistake) if mistake.part == cost.part else None
            if source is None:
                continue
            try:
                values = [value for _, value in own_cost(pack, by_name[cost.name], source, seed)]
            except ContentError:
                continue
            close = [value for value in values if abs(value - cost.value) <= SAME_COST * abs(cost.value)]
            if any(value > cost.limit for value in close):
                same.append(mistake.id)
        if len(same) == 1:
            found.setdefault(same[0], []).append(cost.name)
    return [
        Diagnosis(mistake.id, mistake.title, mistake.says, tuple(found[mistake.id]), mistake.hint)
        for mistake in variants
        if mistake.id in found
    ]


def _with_costs(attempt: Attempt, costs: Sequence[CostResult]) -> Attempt:
    missed = {cost.part for cost in costs if cost.required and not cost.passed}
    return msgspec.structs.replace(_without(attempt, missed), costs=tuple(costs))


def _with_speed(
    attempt: Attempt,
    judge: SpeedJudge,
    benchmarks: Benchmarks,
    passing: Sequence[int],
    progress: Callable[[Progress], None],
) -> Attempt:
    found = judge.measure(benchmarks, passing, lambda name: progress(Measuring(name)))
    missed = {item.part for item in found if item.verdict is SpeedVerdict.FAIL}
    attempt = msgspec.structs.replace(_without(attempt, missed), speed=tuple(found))
    return msgspec.structs.replace(attempt, notes=(*attempt.notes, *judge.notes))


def _without(attempt: Attempt, missed: set[int]) -> Attempt:
    """The attempt with these parts not passed."""
    parts = tuple(
        msgspec.structs.replace(part, passed=False) if part.number in missed else part for part in attempt.parts
    )
    return msgspec.structs.replace(
        attempt,
        parts=parts,
        passed=attempt.passed and not missed,
        points=sum(part.points for part in parts if part.passed),
    )


def _noted(attempt: Attempt, note: str) -> Attempt:
    return msgspec.structs.replace(attempt, notes=(*attempt.notes, note))
