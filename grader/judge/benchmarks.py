"""Benchmarks of an exercise: what `benchmarks.py` may use, and reading it (see CONTRIBUTING.md).

A cost benchmark is written like a hidden test and returns a number.  A speed or
growth benchmark builds something in a module and says how to draw arguments for
it; it is run three times, for the submission, for the reference in a host of its
own, and for the reference here, whose answers the submission's are compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from grader.errors import ContentError
from grader.judge import compare
from grader.judge.faults import CheckFailed
from grader.judge.pack import Pack, module_of
from grader.judge.testing import INJECTED, current_trial
from grader.judge.view import RemoteFunction, RemoteMethod, RemoteObject
from grader.meter.growth import fit_exponent
from grader.model import CostTarget, GrowthTarget, SpeedTarget

if TYPE_CHECKING:
    from grader.meter.costs import Costs

PLAUSIBLE_SHARE = 0.25
"""Fewer FLOPs than this share of the reference's, and the work was not done where it is counted."""


@dataclass(frozen=True)
class Given:
    """Arguments of one timed call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def arguments(*args: Any, **kwargs: Any) -> Given:
    """The arguments of one timed call, as a benchmark returns them."""
    return Given(args, kwargs)


Draw = Callable[[Any], Given]
Build = Callable[..., tuple[Any, Draw]]


@dataclass(frozen=True)
class CostBenchmark:
    """A function of (submission, reference, rng) that returns the value of a cost."""

    name: str
    run: Callable[..., float]


@dataclass(frozen=True)
class SpeedBenchmark:
    """A function of (module, side) that returns a callable and how to draw its arguments.

    The side is "submission" or "reference", for a target that compares two functions.
    """

    name: str
    build: Build
    backward: bool = False


@dataclass(frozen=True)
class GrowthBenchmark:
    """As a speed benchmark, with a size: a function of (module, size), or of (module, size, side)."""

    name: str
    build: Build
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Benchmarks:
    """What an exercise measures, each with its target, in the order of exercise.toml."""

    costs: tuple[tuple[CostTarget, CostBenchmark], ...] = ()
    speeds: tuple[tuple[SpeedTarget, SpeedBenchmark], ...] = ()
    growths: tuple[tuple[GrowthTarget, GrowthBenchmark], ...] = ()


def load_benchmarks(pack: Pack) -> Benchmarks:
    """Read an exercise's benchmarks; none where it has no targets.

    Raises:
        ContentError: `benchmarks.py` cannot be loaded, or a target and a benchmark lack each other.
    """
    exercise = pack.exercise
    targets = [
        *(target.name for target in exercise.costs),
        *(target.name for target in exercise.speeds),
        *(target.name for target in exercise.growths),
    ]
    path = exercise.folder / "benchmarks.py"
    if not path.exists():
        if targets:
            raise ContentError(f"{exercise.slug}: exercise.toml has targets, and there is no benchmarks.py")
        return Benchmarks()
    shelf = _Shelf()
    injected = {**INJECTED, "math": math, "fit_exponent": fit_exponent, "arguments": arguments}
    injected |= {"metered": metered, "both": both, "cost": shelf.cost, "speed": shelf.speed, "growth": shelf.growth}
    module_of(path.read_text(encoding="utf-8"), f"benchmarks_{exercise.slug}", path, injected)
    found = [*shelf.costs, *shelf.speeds, *shelf.growths]
    if sorted(found) != sorted(targets):
        lonely = sorted(set(found) ^ set(targets)) or [name for name in found if found.count(name) > 1]
        raise ContentError(
            f"{exercise.slug}: exercise.toml and benchmarks.py must name the same targets; only one of them "
            f"has: {'; '.join(lonely)}"
        )
    return Benchmarks(
        tuple((target, shelf.costs[target.name]) for target in exercise.costs),
        tuple((target, shelf.speeds[target.name]) for target in exercise.speeds),
        tuple((target, shelf.growths[target.name]) for target in exercise.growths),
    )


class _Shelf:
    """Collects what the decorators mark."""

    def __init__(self) -> None:
        self.costs: dict[str, CostBenchmark] = {}
        self.speeds: dict[str, SpeedBenchmark] = {}
        self.growths: dict[str, GrowthBenchmark] = {}

    def cost(self, name: str) -> Callable[[Callable[..., float]], Callable[..., float]]:
        """Mark the benchmark of the [[cost]] called `name`."""

        def mark(function: Callable[..., float]) -> Callable[..., float]:
            self.costs[name] = CostBenchmark(name, function)
            return function

        return mark

    def speed(self, name: str, backward: bool = False) -> Callable[[Build], Build]:
        """Mark the benchmark of the [[speed]] called `name`; with `backward`, gradients are part of a call."""

        def mark(function: Build) -> Build:
            self.speeds[name] = SpeedBenchmark(name, function, backward)
            return function

        return mark

    def growth(self, name: str, sizes: Sequence[int]) -> Callable[[Build], Build]:
        """Mark the benchmark of the [[growth]] called `name`, measured at rising sizes."""

        def mark(function: Build) -> Build:
            self.growths[name] = GrowthBenchmark(name, function, tuple(sizes))
            return function

        return mark


# ---------------------------------------------------------------------- injected into benchmarks.py


def metered(call: Any, *args: Any, saved: bool = False, **kwargs: Any) -> tuple[Any, Costs]:
    """Call the submission or the reference under the cost meter.

    Args:
        call: a function, object or method of either.
        args: its arguments.
        saved: count `saved_bytes`, and keep gradients on, whatever the setting (see `grader.judge.costs`).
        kwargs: its named arguments.

    Returns:
        What was returned, and its `Costs`.
    """
    # Brings torch's counters and Triton along: 0.2 s, only when metering.
    from grader.meter.costs import Costs, measure_owned

    with torch.set_grad_enabled(saved or current_trial().gradients):
        if not isinstance(call, RemoteFunction | RemoteMethod | RemoteObject):
            return measure_owned(partial(call, *args, **kwargs), saved)
        value, report = call.metered("costs:saved" if saved else "costs", args, kwargs)
        return value, msgspec.msgpack.decode(report, type=Costs)


def both(mine: Any, ref: Any, *args: Any, plausible: float = PLAUSIBLE_SHARE, **kwargs: Any) -> tuple[Costs, Costs]:
    """Meter the same call of the submission and of the reference, and hold their answers against each other.

    Args:
        mine: of the submission.
        ref: of the reference.
        args: arguments of both.
        plausible: the least share of the reference's FLOPs that honest code can need.
        kwargs: named arguments of both; `saved` as in `metered`.

    Raises:
        CheckFailed: the answers differ, or so few FLOPs were counted that the work was done elsewhere.
    """
    got, spent = metered(mine, *args, **kwargs)
    wanted, needed = metered(ref, *args, **kwargs)
    if found := compare.mismatch(got, wanted, None, True):
        raise CheckFailed("the metered call gives another answer than the reference", found)
    if spent.flops < plausible * needed.flops:
        raise CheckFailed(
            f"only {spent.flops} FLOPs were counted where about {needed.flops} are needed: the work was done outside "
            "torch, in another thread, or kept from an earlier call"
        )
    return spent, needed
