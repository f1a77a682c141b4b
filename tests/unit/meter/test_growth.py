"""The fitted exponent on simulated work."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grader.meter.growth import fit_exponent, measure_growth
from grader.meter.paired import Overdue
from grader.model import SpeedVerdict

SIZES = (128, 256, 512, 1024)


class Work:
    def __init__(
        self, seed: int, exponent: float, unit_ns: float = 2000.0, fixed_ns: float = 60_000.0, jitter: float = 0.08
    ):
        self.rng = np.random.default_rng(seed)
        self.exponent, self.unit_ns, self.fixed_ns, self.jitter = exponent, unit_ns, fixed_ns, jitter
        self.now_ns = 0

    def clock_ns(self) -> int:
        return self.now_ns

    def sample(self, size: int, repetitions: int, draw: int, exponent: float | None = None) -> int:
        power = self.exponent if exponent is None else exponent
        work = self.unit_ns * SIZES[0] * (size / SIZES[0]) ** power
        slow = math.exp(self.rng.normal(0, self.jitter)) * (1 + 0.3 * math.sin(self.now_ns / 0.7e9))
        taken = int((self.fixed_ns + repetitions * work) * slow * (2.0 if self.rng.random() < 0.05 else 1.0))
        self.now_ns += taken
        return taken

    def measure(self, limit: float, budget_seconds: float = 10.0, reference=None):
        rng = np.random.default_rng(1)
        return measure_growth(self.sample, SIZES, limit, budget_seconds, rng, reference, self.clock_ns)


@pytest.mark.parametrize(("exponent", "verdict"), [(1.0, SpeedVerdict.PASS), (2.0, SpeedVerdict.FAIL)])
def test_linear_and_quadratic_work_are_told_apart(exponent, verdict):
    found = [Work(seed, exponent).measure(1.5) for seed in range(100)]
    assert sum(growth.verdict is verdict for growth in found) >= 99
    assert abs(np.median([growth.exponent for growth in found]) - exponent) < 0.1


def test_an_exponent_at_the_limit_decides_rarely():
    found = [Work(seed, 1.5, fixed_ns=0).measure(1.5, budget_seconds=5.0).verdict for seed in range(100)]
    assert found.count(SpeedVerdict.INCONCLUSIVE) >= 85


def test_against_a_reference_only_the_difference_counts():
    work = Work(3, 1.8)
    same = work.measure(0.3, reference=lambda size, repetitions, draw: work.sample(size, repetitions, draw, 1.8))
    worse = work.measure(0.3, reference=lambda size, repetitions, draw: work.sample(size, repetitions, draw, 1.0))
    assert same.verdict is SpeedVerdict.PASS
    assert same.low < 0.3 and abs(same.exponent) < 0.3  # noise of a few samples; the worse one grows by 0.8
    assert worse.verdict is SpeedVerdict.FAIL


def test_the_budget_is_kept():
    work = Work(4, 1.5, fixed_ns=0)
    work.measure(1.5, budget_seconds=3.0)
    assert work.now_ns < 3.3e9


def test_one_sample_that_seems_to_take_no_time_does_not_make_for_endless_ones():
    work = Work(6, 1.0, fixed_ns=0)
    calls: list[int] = []

    def sample(size: int, repetitions: int, draw: int) -> int:
        calls.append(repetitions)
        taken_ns = work.sample(size, repetitions, draw)
        return 1 if len(calls) in (2, 3) else taken_ns

    found = measure_growth(
        sample, SIZES, 1.5, 10.0, np.random.default_rng(1), clock_ns=work.clock_ns, max_repetitions=lambda size: 8192
    )
    assert found.verdict is SpeedVerdict.PASS
    assert max(calls) < 1000


def test_no_inputs_are_drawn_twice():
    work, drawn = Work(9, 1.0), []

    def sample(size: int, repetitions: int, draw: int) -> int:
        drawn.append((size, draw))
        return work.sample(size, repetitions, draw)

    def reference(size: int, repetitions: int, draw: int) -> int:
        return work.sample(size, repetitions, draw)

    measure_growth(sample, SIZES, 0.5, 10.0, np.random.default_rng(0), reference, work.clock_ns)
    assert len(drawn) == len(set(drawn))


def test_a_submission_much_slower_than_the_reference_keeps_to_the_budget():
    def against_a_quick_reference(unit_ns: float) -> tuple[Work, SpeedVerdict]:
        work = Work(7, 1.0, unit_ns=unit_ns, fixed_ns=0)
        found = work.measure(0.5, 6.0, lambda size, repetitions, draw: 2000 * size * repetitions)
        return work, found.verdict

    work, verdict = against_a_quick_reference(2e5)
    assert work.now_ns < 7e9
    assert verdict is SpeedVerdict.PASS
    work, _ = against_a_quick_reference(1e7)  # 10 s a call at the largest size
    assert work.now_ns < 2 * 6e9 + 11e9


def test_work_that_never_finishes_fails():
    work = Work(5, 1.0)

    def stuck(size: int, repetitions: int, draw: int) -> int:
        if size == SIZES[-1]:
            raise Overdue(10_000_000_000)
        return work.sample(size, repetitions, draw)

    with pytest.raises(Overdue):
        stuck(SIZES[-1], 1, 0)
    found = measure_growth(stuck, SIZES, 1.5, 10.0, np.random.default_rng(0), clock_ns=work.clock_ns)
    assert found.verdict is SpeedVerdict.FAIL
    assert found.rounds == 0


def test_exact_values_give_an_exact_exponent():
    assert fit_exponent([2, 4, 8], [12, 48, 192]) == pytest.approx(2.0)
    assert fit_exponent([64, 128], [7, 7]) == pytest.approx(0.0)


@pytest.mark.parametrize(("sizes", "values"), [([1], [1]), ([2, 2], [1, 2]), ([1, 2], [1]), ([1, 2], [0, 1])])
def test_an_exponent_that_does_not_exist_is_refused(sizes, values):
    with pytest.raises(ValueError, match="an exponent needs"):
        fit_exponent(sizes, values)


def test_sizes_must_rise():
    with pytest.raises(ValueError, match="three rising sizes"):
        measure_growth(lambda s, r, d: 1, [4, 2, 1], 1.0, 1.0, np.random.default_rng(0))
