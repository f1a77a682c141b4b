"""How a cost grows with the size of the problem: the exponent of a power law, and its interval.

A constant factor hides easily in one ratio; the shape of the growth does not.  A
quadratic implementation of a linear job doubles its time fourfold, on any
machine.  Times are fitted with an interval that decides as in
``grader.meter.paired``; counts (FLOPs, bytes, operations) are exact, so their
exponent is simply computed.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from grader.meter.paired import (
    FIRST_LOOK,
    MAX_REPETITIONS,
    MIN_SAMPLE_NS,
    Overdue,
    interval_of_mean,
    repetitions_for,
    share_of_error,
    verdict_of,
)
from grader.model import SpeedVerdict

SizedSample = Callable[[int, int, int], int]
"""``sample(size, repetitions, draw) -> ns``: run the work at ``size``, ``repetitions`` times, on fresh
inputs made from ``draw``."""


class Growth(msgspec.Struct, frozen=True):
    """The fitted exponent of time against size.

    Attributes:
        exponent: mean over the ways up and down of the slope of log time against log size.
        low, high: its 95% interval, valid under early stopping.
        limit: what was tested.
        verdict: ``pass`` when the interval lies under the limit, ``fail`` when above it.
        rounds: how often every size was measured, up and down again.
        sizes: the sizes.
        times_ns: mean time of one call at each size (a ratio to the reference where one was given).
        seconds: how long it all took.
    """

    exponent: float
    low: float
    high: float
    limit: float
    verdict: SpeedVerdict
    rounds: int
    sizes: tuple[int, ...]
    times_ns: tuple[float, ...]
    seconds: float


def fit_exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The exponent p of ``value = c size^p`` by least squares in log space.

    Args:
        sizes: at least two different positive sizes.
        values: a positive value for each.
    """
    if len(sizes) != len(values) or len(set(sizes)) < 2:
        raise ValueError(f"an exponent needs two different sizes and a value for each, not {sizes} and {values}")
    if min(*sizes, *values) <= 0:
        raise ValueError("an exponent needs positive sizes and values")
    return float(_weights(sizes) @ np.log(np.asarray(values, dtype=float)))


def measure_growth(
    sample: SizedSample,
    sizes: Sequence[int],
    limit: float,
    budget_seconds: float,
    rng: np.random.Generator,
    reference: SizedSample | None = None,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
    min_sample_ns: int = MIN_SAMPLE_NS // 2,
    max_repetitions: Callable[[int], int] = lambda size: MAX_REPETITIONS,
) -> Growth:
    """Measure the exponent of ``sample`` over ``sizes`` until its interval decides about ``limit``.

    Each round visits the sizes up and down again (or down and up, drawn at random), so that a drift of
    the machine does not look like growth; the slope of each way is one value, and the interval is that of
    their mean.

    Args:
        sample: the side under test.  It may raise ``Overdue``.
        sizes: at least three sizes, each usually twice the last.
        limit: the exponent that must not be reached; with a reference, how much larger than the
            reference's it may be.
        budget_seconds: wall time for everything; a first round that does not fit gets as much again.
        rng: order of the rounds and bootstrap draws.
        reference: where given, the exponent is that of the ratio to it, measured next to each sample: what
            every implementation pays (calls, transfers, caches that overflow) cancels.
        clock_ns: the clock of the budget.
        min_sample_ns: how long a sample must at least take.
        max_repetitions: the most calls that one sample of a size may hold.
    """
    if len(sizes) < 3 or sorted(set(sizes)) != list(sizes) or sizes[0] < 1:
        raise ValueError(f"growth needs at least three rising sizes, not {list(sizes)}")
    start_ns = clock_ns()
    end_ns = start_ns + int(budget_seconds * 1e9)

    def in_time(size: int, repetitions: int, draw: int) -> int:
        if clock_ns() - start_ns > 2e9 * budget_seconds:
            raise Overdue(clock_ns() - start_ns)
        return sample(size, repetitions, draw)

    weights = _weights(sizes)
    slopes: list[float] = []
    logs = np.zeros(len(sizes))
    look, draw = 1, 0
    try:
        # From the trusted side where there is one; both sides take as many.
        trusted = reference or sample
        repetitions = [
            repetitions_for(functools.partial(trusted, size), min_sample_ns, max_repetitions(size))[0] for size in sizes
        ]
        # A slow submission gets shorter samples rather than fewer rounds than a first look needs.  Its first calls may
        # have been slow for once (imports, compilation).
        for warm_draw in (-3, -4):
            calls_ns = [in_time(size, 1, warm_draw) for size in sizes]
        rounds_ns = FIRST_LOOK * sum(count * call_ns for count, call_ns in zip(repetitions, calls_ns, strict=True))
        affordable = 0.5e9 * budget_seconds / max(1, rounds_ns)
        repetitions = [max(1, int(count * min(1.0, affordable))) for count in repetitions]
        side = _Side(in_time, sizes, repetitions)
        other = None if reference is None else _Side(reference, sizes, repetitions)
        while True:
            order = list(range(len(sizes)))
            if rng.integers(2):
                order.reverse()
            ways = np.zeros((2, len(sizes)))
            flip = int(rng.integers(2))
            for place, index in enumerate((*order, *reversed(order))):
                way = place // len(order)
                if other is None:
                    ways[way, index] = side.log_time(index, draw)
                elif (place + flip) % 2:
                    ways[way, index] = side.log_time(index, draw) - other.log_time(index, draw)
                else:
                    below = other.log_time(index, draw)
                    ways[way, index] = side.log_time(index, draw) - below
                draw += 1
            slopes += [float(weights @ way) for way in ways]
            logs += ways.mean(axis=0)
            rounds = len(slopes) // 2
            now_ns = clock_ns()
            out_of_time = now_ns + (now_ns - start_ns) // rounds > end_ns
            if len(slopes) == FIRST_LOOK * 2 ** (look - 1) or out_of_time:
                low, high = interval_of_mean(np.array(slopes), share_of_error(look), rng)
                verdict = verdict_of(low, high, limit)
                if verdict is not SpeedVerdict.INCONCLUSIVE or out_of_time:
                    break
                look += 1
    except Overdue:
        # What cannot finish the largest size in the whole budget has no exponent to show, and no excuse.
        verdict = SpeedVerdict.FAIL if not slopes else SpeedVerdict.INCONCLUSIVE
        low, high = -math.inf, math.inf
    return Growth(
        exponent=float(np.mean(slopes)) if slopes else math.inf,
        low=low,
        high=high,
        limit=limit,
        verdict=verdict,
        rounds=len(slopes) // 2,
        sizes=tuple(sizes),
        times_ns=tuple(float(value) for value in np.exp(logs / max(1, len(slopes) // 2))),
        seconds=(clock_ns() - start_ns) / 1e9,
    )


class _Side:
    """One implementation, with the number of calls that make a sample at each size."""

    def __init__(self, sample: SizedSample, sizes: Sequence[int], repetitions: Sequence[int]) -> None:
        self._sample, self._sizes, self._repetitions = sample, sizes, repetitions

    def log_time(self, place: int, draw: int) -> float:
        repetitions = self._repetitions[place]
        taken_ns = self._sample(self._sizes[place], repetitions, draw)
        if taken_ns <= 0:
            raise ValueError(f"a sample took {taken_ns} ns")
        return math.log(taken_ns / repetitions)


def _weights(sizes: Sequence[float]) -> np.ndarray:
    """The slope of a least-squares line is this vector times the values."""
    centred = np.log(np.asarray(sizes, dtype=float))
    centred = centred - centred.mean()
    weights: np.ndarray = centred / (centred @ centred)
    return weights
