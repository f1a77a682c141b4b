"""Is A slower than a multiple of B?  A paired, sequential answer that machine noise cannot buy.

A time means nothing on a machine that does other things, and a ratio of two
times taken a second apart means little more.  Here A and B run in turn, in
blocks A B B A or B A A B (drawn at random), so that whatever slows the machine
for a while slows both sides and drift cancels inside a block.  Each block gives
one log-ratio; nothing is thrown away.  The verdict rests on the interval of
their mean:

* ``pass`` when its upper end is under the target,
* ``fail`` when its lower end is above it,
* otherwise measure longer, and when the budget is spent: ``inconclusive``.

Looking at an interval again and again until it decides would make errors more
likely than the interval says.  The looks therefore come at 6, 12, 24, ... blocks,
and the k-th look spends only ``0.05 / (k (k + 1))`` of the error, which sums to
0.05 over any number of looks: the reported interval covers the true ratio with
95% however long the measurement went on.

How a sample is taken is the caller's business: ``sample(repetitions, draw)``
runs the work and returns nanoseconds by the caller's own clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from statistics import NormalDist

import msgspec
import numpy as np

from grader.model import SpeedVerdict

Sample = Callable[[int, int], int]
"""``sample(repetitions, draw) -> ns``: run the work ``repetitions`` times on fresh inputs made
from ``draw``; A and B get the same inputs for the same draw."""

ERROR = 0.05
FIRST_LOOK = 6
RESAMPLES = 4000
MIN_SAMPLE_NS = 8_000_000
"""A sample shorter than this is repeated: waking a process costs some 50 microseconds, half a percent of it."""
LEAST_REPETITIONS, LONG_SAMPLE_NS = 4, 32_000_000
"""Nor does a sample hold fewer calls than this, unless it is long: the first call on arguments that have just arrived
takes up to twice as long as the next, which of the quicker side would be a larger part."""
MAX_REPETITIONS = 4096
WARM_SAMPLES = 4
NOISE_BOUND = 4.0
"""Where too few blocks fit to estimate the noise, it is taken to slow a sample this many times at most."""


class Overdue(Exception):
    """A sample did not come back in time; ``elapsed_ns`` is how long it was given."""

    def __init__(self, elapsed_ns: int) -> None:
        super().__init__(f"no answer within {elapsed_ns / 1e9:.1f} s")
        self.elapsed_ns = elapsed_ns


class PairedRatio(msgspec.Struct, frozen=True):
    """Time of A over time of B, and what it says about a target.

    Attributes:
        ratio: geometric mean of the blocks' ratios.
        low, high: 95% interval of the ratio, valid under early stopping.
        target: the limit that was tested.
        verdict: what the interval decides.
        blocks: how many blocks of four samples were taken.
        repetitions: calls in one sample.
        reference_ns: mean time of one call of B.
        seconds: how long it all took.
    """

    ratio: float
    low: float
    high: float
    target: float
    verdict: SpeedVerdict
    blocks: int
    repetitions: int
    reference_ns: float
    seconds: float


def measure_pair(
    sample_a: Sample,
    sample_b: Sample,
    target: float,
    budget_seconds: float,
    rng: np.random.Generator,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
    min_sample_ns: int = MIN_SAMPLE_NS,
    max_repetitions: int = MAX_REPETITIONS,
    overhead_share: Callable[[], float] = lambda: 0.0,
) -> PairedRatio:
    """Measure A against B until the interval decides about ``target`` or the budget is spent.

    Args:
        sample_a: the side under test.  It may raise ``Overdue``.
        sample_b: the trusted side, from which the number of repetitions is chosen.
        target: limit on time(A) / time(B), above 0.
        budget_seconds: wall time for everything, warm-up included.
        rng: order of the blocks and bootstrap draws.
        clock_ns: the clock of the budget.
        min_sample_ns: how long the work in a sample of B must at least take.
        max_repetitions: the most calls that one sample may hold.
        overhead_share: what every sample holds beside the work (sending arguments, waking a process), as a
            share of B's work, so far.  It pulls the samples' ratio towards 1, and is taken out of the result.

    Returns:
        The ratio with its verdict.  At least one block is always taken, so a single call longer than
        the budget can pass it by.
    """
    start_ns = clock_ns()
    end_ns = start_ns + int(budget_seconds * 1e9)
    ledger = _Ledger(target, overhead_share)
    try:
        warm_b_ns = sample_b(1, -1)
        ledger.reference_ns = float(warm_b_ns)
        cold_a_ns = sample_a(1, -1)
        repetitions, per_b_ns = repetitions_for(sample_b, min_sample_ns, max_repetitions, overhead_share)
        ledger.reference_ns = per_b_ns
        # A slow A gets shorter samples rather than fewer blocks than a first look needs.  Its first call
        # may have been slow for once (imports, compilation), so a second one is looked at as well.
        repetitions = _affordable(repetitions, cold_a_ns + per_b_ns, budget_seconds)
        ledger.repetitions = repetitions
        warm_a_ns = sample_a(repetitions, -2) / repetitions
        if warm_a_ns > cold_a_ns:
            repetitions = _affordable(repetitions, warm_a_ns + per_b_ns, budget_seconds)
            ledger.repetitions = repetitions
        # B has run more often by now, and a young process is slower (its memory is still growing).
        for draw in range(-WARM_SAMPLES - 2, -2):
            if clock_ns() - start_ns > 0.1e9 * budget_seconds:
                break
            sample_a(repetitions, draw)
            sample_b(repetitions, draw)
        look = 1
        for block, draws in enumerate(_draws()):
            ledger.add(_block(sample_a, sample_b, repetitions, draws, a_first=bool(rng.integers(2))))
            now_ns = clock_ns()
            # Stop where the next block would not fit, not where it has already failed to.
            out_of_time = now_ns + (now_ns - start_ns) // (block + 2) > end_ns
            if block + 1 == FIRST_LOOK * 2 ** (look - 1) or out_of_time:
                found = ledger.judged(share_of_error(look), rng, now_ns - start_ns)
                if found.verdict is not SpeedVerdict.INCONCLUSIVE or out_of_time:
                    return found
                look += 1
    except Overdue as overdue:
        return ledger.overdue(overdue.elapsed_ns, clock_ns() - start_ns)
    raise AssertionError("unreachable: the blocks are endless")


def interval_of_mean(values: np.ndarray, error: float, rng: np.random.Generator) -> tuple[float, float]:
    """The interval that holds the mean of what ``values`` were drawn from, but for ``error``.

    A percentile bootstrap, widened for small samples as Hesterberg (2015, "What teachers should
    know about the bootstrap", section 5.3) describes, and never narrower than Student's interval:
    resampling a handful of values cannot show tails that they do not have.  One value gives an
    endless interval.
    """
    count = len(values)
    centre = float(values.mean())
    if count < 2:
        return -math.inf, math.inf
    quantile = student_quantile(1 - error / 2, count - 1)
    half = quantile * float(values.std(ddof=1)) / math.sqrt(count)
    low, high = centre - half, centre + half
    if count >= FIRST_LOOK:
        means = values[rng.integers(0, count, (RESAMPLES, count))].mean(axis=1)
        tail = NormalDist().cdf(-quantile * math.sqrt(count / (count - 1)))
        boot_low, boot_high = np.quantile(means, (tail, 1 - tail))
        low, high = min(low, float(boot_low)), max(high, float(boot_high))
    return low, high


def verdict_of(low: float, high: float, target: float) -> SpeedVerdict:
    """What an interval says about a target."""
    if high < target:
        return SpeedVerdict.PASS
    if low > target:
        return SpeedVerdict.FAIL
    return SpeedVerdict.INCONCLUSIVE


def share_of_error(look: int) -> float:
    """The part of the error that the ``look``-th look (from 1) may spend; all of them together spend ``ERROR``."""
    return ERROR / (look * (look + 1))


def student_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t with ``degrees`` degrees of freedom, for ``probability`` in (0.5, 1)."""
    low, high = 0.0, 1e5
    for _ in range(64):
        middle = (low + high) / 2
        if _student_cdf(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _student_cdf(t: float, degrees: int) -> float:
    """P(T <= t) for t >= 0 by its finite series (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    theta = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(theta), math.cos(theta)
    if degrees % 2:
        total, term = 0.0, cosine
        for k in range(1, (degrees - 1) // 2 + 1):
            total += term
            term *= cosine * cosine * (2 * k) / (2 * k + 1)
        inside = 2 / math.pi * (theta + sine * total)
    else:
        total, term = 0.0, 1.0
        for k in range(1, degrees // 2 + 1):
            total += term
            term *= cosine * cosine * (2 * k - 1) / (2 * k)
        inside = sine * total
    return 0.5 + inside / 2


def _draws() -> Iterator[tuple[int, int]]:
    draw = 0
    while True:
        yield draw, draw + 1
        draw += 2


def repetitions_for(
    sample_b: Sample, min_sample_ns: int, most: int, overhead_share: Callable[[], float] = lambda: 0.0
) -> tuple[int, float]:
    """How many calls of B make one sample, and the ns of one; A must not choose how it is measured."""
    repetitions, draw = 1, -2
    while True:
        # The quicker of two, so that one busy moment does not make for short samples ever after.
        wall_ns = min(sample_b(repetitions, draw), sample_b(repetitions, draw - 1))
        taken_ns = max(1.0, wall_ns / (1 + overhead_share()))
        enough_ns = max(min_sample_ns, min(LEAST_REPETITIONS * taken_ns / repetitions, LONG_SAMPLE_NS))
        if taken_ns >= enough_ns or repetitions >= most:
            return repetitions, taken_ns / repetitions
        wanted = math.ceil(1.2 * repetitions * enough_ns / taken_ns)
        repetitions = min(most, max(repetitions + 1, min(wanted, 16 * repetitions)))
        draw -= 2


def _affordable(repetitions: int, pair_ns: float, budget_seconds: float) -> int:
    """So few repetitions that the blocks of a first look take at most half the budget; at least one."""
    return max(1, min(repetitions, int(0.5e9 * budget_seconds / (2 * FIRST_LOOK * max(1.0, pair_ns)))))


def _block(
    sample_a: Sample, sample_b: Sample, repetitions: int, draws: tuple[int, int], a_first: bool
) -> tuple[int, int, int, int]:
    """One block in the order A B B A or B A A B, as (a1, b1, a2, b2)."""
    first, second = draws
    if a_first:
        a1 = sample_a(repetitions, first)
        b1 = sample_b(repetitions, first)
        b2 = sample_b(repetitions, second)
        a2 = sample_a(repetitions, second)
    else:
        b1 = sample_b(repetitions, first)
        a1 = sample_a(repetitions, first)
        a2 = sample_a(repetitions, second)
        b2 = sample_b(repetitions, second)
    return a1, b1, a2, b2


class _Ledger:
    """The blocks so far and what they say."""

    def __init__(self, target: float, overhead_share: Callable[[], float]) -> None:
        if not target > 0:
            raise ValueError(f"a target on a ratio is above 0, not {target}")
        self._target = target
        self._overhead_share = overhead_share
        self._blocks: list[float] = []
        self._pairs: list[float] = []
        self._sum_b_ns = 0
        self._least_a_ns, self._most_b_ns = math.inf, 0
        self.repetitions = 1
        self.reference_ns = 1.0

    def add(self, times_ns: tuple[int, int, int, int]) -> None:
        a1, b1, a2, b2 = times_ns
        if min(times_ns) <= 0:
            raise ValueError(f"a sample took {min(times_ns)} ns")
        self._blocks.append(math.log((a1 + a2) / (b1 + b2)))
        self._pairs += [math.log(a1 / b1), math.log(a2 / b2)]
        self._least_a_ns = min(self._least_a_ns, a1, a2)
        self._most_b_ns = max(self._most_b_ns, b1, b2)
        self._sum_b_ns += b1 + b2
        self.reference_ns = self._sum_b_ns / (2 * len(self._blocks) * self.repetitions)

    def judged(self, error: float, rng: np.random.Generator, elapsed_ns: int) -> PairedRatio:
        # A side so slow that only a block or two fits is still judged: by the pairs inside the blocks.
        few = len(self._blocks) < 4
        values = np.array(self._pairs if few else self._blocks)
        low, high = interval_of_mean(values, error, rng)
        if few:
            low = max(low, math.log(self._least_a_ns / self._most_b_ns / NOISE_BOUND))
        ratio = math.exp(float(values.mean()))
        return self._result(self._of_work(ratio), self._of_work(_exp(low)), self._of_work(_exp(high)), elapsed_ns)

    def _of_work(self, ratio: float) -> float:
        """The ratio a / b where (a + c) / (b + c) was measured and c = share * b."""
        return max(0.0, ratio + self._overhead_share() * (ratio - 1))

    def overdue(self, waited_ns: int, elapsed_ns: int) -> PairedRatio:
        """A never came back: all that is known is that it took at least ``waited_ns``."""
        low = waited_ns / (self.repetitions * self.reference_ns) / NOISE_BOUND
        return self._result(low, low if low > self._target else 0.0, math.inf, elapsed_ns)

    def _result(self, ratio: float, low: float, high: float, elapsed_ns: int) -> PairedRatio:
        return PairedRatio(
            ratio=ratio,
            low=low,
            high=high,
            target=self._target,
            verdict=verdict_of(low, high, self._target),
            blocks=len(self._blocks),
            repetitions=self.repetitions,
            reference_ns=self.reference_ns,
            seconds=elapsed_ns / 1e9,
        )


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
