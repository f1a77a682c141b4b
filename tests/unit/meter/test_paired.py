"""The paired ratio on simulated hosts, whose clock and noise the test controls."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from grader.meter import paired
from grader.meter.paired import Overdue, interval_of_mean, measure_pair, student_quantile
from grader.model import SpeedVerdict


class Machine:
    """Two hosts on one clock: a slow drift that both feel, jitter and preemption that each sample draws for itself."""

    def __init__(
        self, seed: int, a_ns: float, b_ns: float, jitter: float = 0.05, spikes: float = 0.1, drift: float = 0.3
    ):
        self.rng = np.random.default_rng(seed)
        self.now_ns = 0
        self.a_ns, self.b_ns = a_ns, b_ns
        self.jitter, self.spikes, self.drift = jitter, spikes, drift
        self.calls: list[tuple[str, int, int]] = []

    def clock_ns(self) -> int:
        return self.now_ns

    def _sample(self, side: str, per_call_ns: float, repetitions: int, draw: int) -> int:
        self.calls.append((side, repetitions, draw))
        slow = 1 + self.drift * math.sin(self.now_ns / 0.9e9)
        noise = math.exp(self.rng.normal(0, self.jitter))
        taken = 60_000 + repetitions * per_call_ns * slow * noise
        if self.rng.random() < self.spikes:
            taken *= 1 + 2.5 * self.rng.random()
        self.now_ns += int(taken)
        return int(taken)

    def a(self, repetitions: int, draw: int) -> int:
        return self._sample("a", self.a_ns, repetitions, draw)

    def b(self, repetitions: int, draw: int) -> int:
        return self._sample("b", self.b_ns, repetitions, draw)

    def measure(self, target: float, budget_seconds: float = 10.0, seed: int = 0) -> paired.PairedRatio:
        rng = np.random.default_rng(seed)
        return measure_pair(self.a, self.b, target, budget_seconds, rng, clock_ns=self.clock_ns)


def verdicts(count: int, a_ns: float, b_ns: float, target: float, **noise: float) -> list[SpeedVerdict]:
    return [Machine(seed, a_ns, b_ns, **noise).measure(target, seed=seed).verdict for seed in range(count)]


def test_a_solution_against_itself_never_fails_and_is_rarely_inconclusive():
    found = verdicts(300, 3e6, 3e6, 1.3)
    assert found.count(SpeedVerdict.FAIL) == 0
    assert found.count(SpeedVerdict.INCONCLUSIVE) <= 15


@pytest.mark.parametrize("target", [1.3, 2.0])
def test_half_as_slow_again_as_the_target_does_not_pass(target):
    found = verdicts(200, 1.5 * target * 3e6, 3e6, target)
    assert found.count(SpeedVerdict.PASS) <= 2
    assert found.count(SpeedVerdict.FAIL) >= 190


@pytest.mark.parametrize("target", [1.3, 2.0])
def test_seven_tenths_of_the_target_does_not_fail(target):
    found = verdicts(200, 0.7 * target * 3e6, 3e6, target)
    assert found.count(SpeedVerdict.FAIL) <= 2
    assert found.count(SpeedVerdict.PASS) >= 190


def test_looking_again_and_again_does_not_raise_the_error():
    """Exactly at the target either verdict is wrong; together they stay near the stated 5%."""
    found = verdicts(100, 1.3 * 3e6, 3e6, 1.3, spikes=0.0, jitter=0.08)
    wrong = len(found) - found.count(SpeedVerdict.INCONCLUSIVE)
    assert wrong <= 13  # 5% of 100 and four standard deviations


def test_an_uncorrected_95_percent_interval_would_be_wrong_more_often(monkeypatch):
    monkeypatch.setattr(paired, "share_of_error", lambda look: 0.05)
    found = verdicts(100, 1.3 * 3e6, 3e6, 1.3, spikes=0.0, jitter=0.08)
    assert len(found) - found.count(SpeedVerdict.INCONCLUSIVE) > 13


def test_the_shares_of_all_looks_sum_to_the_stated_error():
    assert sum(paired.share_of_error(look) for look in range(1, 100_000)) == pytest.approx(0.05, rel=1e-4)


def test_a_slowdown_of_some_calls_only_is_not_deleted_as_noise():
    class Sometimes(Machine):
        def a(self, repetitions: int, draw: int) -> int:
            slow = 4.0 if self.rng.random() < 0.4 else 1.0
            return self._sample("a", self.a_ns * slow, repetitions, draw)

    found = [Sometimes(seed, 3e6, 3e6, spikes=0.02).measure(1.3, seed=seed).verdict for seed in range(100)]
    assert found.count(SpeedVerdict.PASS) <= 1


def test_clear_cases_stop_early():
    found = Machine(1, 3e6, 3e6, spikes=0.0).measure(2.0)
    assert found.verdict is SpeedVerdict.PASS
    assert found.blocks == paired.FIRST_LOOK
    assert found.seconds < 1.0


def test_the_budget_is_kept():
    machine = Machine(2, 1.3 * 3e6, 3e6)
    found = machine.measure(1.3, budget_seconds=4.0)
    assert machine.now_ns <= 4.2e9
    assert found.verdict is SpeedVerdict.INCONCLUSIVE
    assert found.low < 1.3 < found.high


def test_short_calls_are_repeated_and_long_ones_are_not():
    short = Machine(3, 20_000, 20_000).measure(1.5)
    assert short.repetitions * 20_000 > 0.7 * paired.MIN_SAMPLE_NS
    assert Machine(3, 40e6, 40e6).measure(1.5).repetitions == 1


def test_the_first_call_of_a_sample_is_a_small_part_of_it():
    assert Machine(3, 5e6, 5e6).measure(1.5).repetitions >= paired.LEAST_REPETITIONS
    assert 1 < Machine(3, 12e6, 12e6).measure(1.5).repetitions <= paired.LEAST_REPETITIONS


@pytest.mark.parametrize("a_seconds", [0.5, 2.0, 6.0, 30.0])
def test_a_very_slow_side_fails_however_few_blocks_fit(a_seconds):
    for seed in range(20):
        machine = Machine(seed, a_seconds * 1e9, 3e6)
        assert machine.measure(1.5).verdict is SpeedVerdict.FAIL
        assert machine.now_ns < 10e9 + 6 * 2 * a_seconds * 1e9


@pytest.mark.parametrize("b_seconds", [0.5, 3.0])
def test_too_few_blocks_decide_nothing_that_noise_could_have_made(b_seconds):
    found = verdicts(100, b_seconds * 1e9, b_seconds * 1e9, 1.3, spikes=0.3)
    assert found.count(SpeedVerdict.FAIL) <= 2


def test_a_side_that_never_answers_fails():
    machine = Machine(5, 3e6, 3e6)

    def never(repetitions: int, draw: int) -> int:
        raise Overdue(10_000_000_000)

    rng = np.random.default_rng(0)
    found = measure_pair(never, machine.b, 1.5, 10.0, rng, clock_ns=machine.clock_ns)
    assert found.verdict is SpeedVerdict.FAIL
    assert found.low > 100


def test_a_deadline_too_short_to_tell_is_no_failure():
    machine = Machine(5, 3e6, 3e6)

    def never(repetitions: int, draw: int) -> int:
        raise Overdue(4_000_000)

    rng = np.random.default_rng(0)
    found = measure_pair(never, machine.b, 1.5, 10.0, rng, clock_ns=machine.clock_ns)
    assert found.verdict is SpeedVerdict.INCONCLUSIVE


def test_blocks_are_balanced_and_both_sides_get_the_same_inputs():
    machine = Machine(6, 3e6, 3e6)
    machine.measure(1.02, budget_seconds=2.0)
    measured = [(side, draw) for side, _, draw in machine.calls if draw >= 0]
    orders = set()
    for start in range(0, len(measured), 4):
        sides = "".join(side for side, _ in measured[start : start + 4])
        draws = [draw for _, draw in measured[start : start + 4]]
        orders.add(sides)
        assert draws[0] == draws[1] != draws[2] == draws[3]
    assert orders == {"abba", "baab"}
    assert len({draw for _, draw in measured}) == len(measured) // 2


def test_the_side_under_test_does_not_choose_the_length_of_a_sample():
    """A fast first call must not buy A other repetitions than B's time gives."""
    quick = Machine(7, 1_000, 2e6, jitter=0, spikes=0, drift=0).measure(1.5)
    equal = Machine(7, 2e6, 2e6, jitter=0, spikes=0, drift=0).measure(1.5)
    assert quick.repetitions == equal.repetitions


def test_the_interval_covers_the_mean():
    rng = np.random.default_rng(0)
    for draw in (
        lambda n: rng.normal(0, 1, n),
        lambda n: rng.standard_t(3, n),
        lambda n: rng.uniform(-1, 1, n),
    ):
        for count in (3, 6, 24):
            missed = 0
            for _ in range(200):
                low, high = interval_of_mean(draw(count), 0.05, rng)
                missed += not low <= 0 <= high
            assert missed <= 22  # 5% of 200 and four standard deviations


def test_one_value_says_nothing():
    assert interval_of_mean(np.array([1.0]), 0.05, np.random.default_rng(0)) == (-math.inf, math.inf)


@pytest.mark.parametrize("degrees", [1, 2, 5, 11, 47, 400])
@pytest.mark.parametrize("probability", [0.9, 0.975, 0.9999])
def test_student_quantiles(degrees, probability):
    assert student_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-6)


def test_impossible_arguments_are_refused():
    machine = Machine(8, 3e6, 3e6)
    with pytest.raises(ValueError, match="above 0"):
        machine.measure(0.0)
    with pytest.raises(ValueError, match="0 ns"):
        measure_pair(lambda r, d: 0, machine.b, 1.5, 1.0, np.random.default_rng(0), clock_ns=machine.clock_ns)


@pytest.mark.parametrize(("work", "verdict"), [(1.6, SpeedVerdict.FAIL), (1.0, SpeedVerdict.PASS)])
def test_what_both_sides_pay_beside_the_work_is_taken_out(work, verdict):
    """Half of every sample is overhead: 1.6 times the work is only 1.3 times the sample."""
    work_ns, overhead_ns = 20e6, 20e6
    machine = Machine(9, work * work_ns + overhead_ns, work_ns + overhead_ns, spikes=0.0, drift=0.0)
    rng = np.random.default_rng(0)
    found = measure_pair(machine.a, machine.b, 1.4, 10.0, rng, machine.clock_ns, overhead_share=lambda: 1.0)
    assert found.verdict is verdict
    assert found.low < work < found.high
    assert found.ratio == pytest.approx(work, rel=0.1)
