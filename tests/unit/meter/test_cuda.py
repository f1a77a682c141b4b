"""Samples on a GPU, on a simulated device; where there is a real one, on it too."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from grader.meter.cuda import (
    CudaClock,
    CudaSample,
    WallClock,
    charged_ns,
    gap_ns,
    measure_peaks,
    rotation,
    time_calls,
    warm_up,
)
from grader.meter.paired import measure_pair
from grader.model import SpeedVerdict


class Device:
    """A device that works through a queue in its own time: a launch returns at once, a wait does not."""

    def __init__(self, flush_ns: int = 50_000):
        self.host_ns = 0
        self.busy_until_ns = 0
        self.flush_ns = flush_ns
        self.log: list[str] = []

    def launch(self, work_ns: int, name: str = "kernel") -> None:
        self.host_ns += 3_000
        self.busy_until_ns = max(self.busy_until_ns, self.host_ns) + work_ns
        self.log.append(name)

    def record(self) -> int:
        self.log.append("event")
        return max(self.busy_until_ns, self.host_ns)

    def elapsed_ns(self, start: int, end: int) -> float:
        return float(end - start)

    def synchronize(self) -> None:
        self.host_ns = max(self.host_ns, self.busy_until_ns)
        self.log.append("wait")

    def flush(self) -> None:
        self.launch(self.flush_ns, "flush")


def test_the_events_see_the_work_and_not_the_flush():
    device = Device()
    sample = time_calls([lambda: device.launch(200_000)] * 5, device)
    assert sample == CudaSample(5 * 200_000, 5)


def test_every_call_starts_cold_and_the_device_is_waited_for():
    device = Device()
    time_calls([lambda: device.launch(1_000)] * 2, device)
    one = ["flush", "event", "kernel", "event"]
    assert device.log == ["wait", *one, *one, "wait"]


def test_warming_up_waits_for_the_device():
    device = Device()
    warm_up(lambda: device.launch(7_000), device)
    assert device.log == ["kernel", "kernel", "kernel", "wait"]


def test_each_argument_set_is_used_once():
    device, used = Device(), []
    time_calls([lambda i=i: used.append(i) for i in range(4)], device)
    assert used == [0, 1, 2, 3]


@pytest.mark.parametrize(("bytes_per_call", "sets"), [(0, 2), (1 << 10, 64), (16 << 20, 8), (1 << 40, 2)])
def test_argument_sets_rotate_through_twice_the_cache(bytes_per_call, sets):
    assert rotation(bytes_per_call, 64 << 20) == sets


def walled(device: Device, calls: int, work_ns: int, lie: float = 1.0) -> tuple[CudaSample, int]:
    before_ns = device.host_ns
    honest = time_calls([lambda: device.launch(work_ns)] * calls, device)
    device.host_ns += 60_000
    return CudaSample(round(honest.event_ns * lie), honest.calls), device.host_ns - before_ns


def test_events_that_agree_with_the_wall_clock_are_believed():
    device = Device()
    reference, wall_ns = walled(device, 50, 200_000)
    gap = gap_ns(reference, wall_ns)
    sample, wall_ns = walled(device, 50, 300_000)
    assert charged_ns(sample, wall_ns, gap) == sample.event_ns


def test_events_made_to_lie_are_charged_by_the_wall_clock():
    device = Device()
    reference, wall_ns = walled(device, 50, 200_000)
    gap = gap_ns(reference, wall_ns)
    honest, _ = walled(device, 50, 600_000)
    lying, wall_ns = walled(device, 50, 600_000, lie=0.01)
    assert charged_ns(lying, wall_ns, gap) > 0.85 * honest.event_ns


def test_work_hidden_on_another_stream_is_charged():
    device = Device()
    reference, wall_ns = walled(device, 50, 200_000)
    gap = gap_ns(reference, wall_ns)
    before_ns, hidden_ns = device.host_ns, 30_000_000
    seen = time_calls([lambda: None] * 50, device)
    device.busy_until_ns = device.host_ns + hidden_ns
    device.synchronize()
    assert charged_ns(seen, device.host_ns - before_ns, gap) > 0.8 * hidden_ns


def test_the_paired_ratio_runs_on_events():
    device = Device()
    gaps: list[float] = []

    def reference(repetitions: int, draw: int) -> int:
        sample, wall_ns = walled(device, repetitions, 400_000)
        gaps.append(gap_ns(sample, wall_ns) / repetitions)
        return charged_ns(sample, wall_ns, gap_ns(sample, wall_ns))

    def submission(repetitions: int, draw: int) -> int:
        sample, wall_ns = walled(device, repetitions, 1_000_000, lie=0.2)
        return charged_ns(sample, wall_ns, gaps[-1] * repetitions)

    found = measure_pair(submission, reference, 1.5, 5.0, np.random.default_rng(0), clock_ns=lambda: device.host_ns)
    assert found.verdict is SpeedVerdict.FAIL


def test_peaks_come_from_a_copy_and_a_product():
    peaks = measure_peaks(WallClock(), torch.device("cpu"), side=64, rounds=2)
    assert peaks.bytes_per_second > 0
    assert peaks.flops_per_second > 0


def test_without_a_device_the_clock_says_so():
    if torch.cuda.is_available():
        pytest.skip("this machine has a device")
    with pytest.raises(RuntimeError, match="no CUDA device"):
        CudaClock(torch.device("cuda"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_device_events_and_wall_clock_agree():
    import time

    device = torch.device("cuda")
    clock = CudaClock(device)
    a = torch.randn(2048, 2048, device=device)
    warm_up(lambda: a @ a, clock)
    start_ns = time.perf_counter_ns()
    sample = time_calls([lambda: a @ a] * 20, clock)
    wall_ns = time.perf_counter_ns() - start_ns
    assert 0 < sample.event_ns <= wall_ns
