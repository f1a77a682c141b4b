"""Samples on a GPU: events around each call, a cold cache, inputs that are never the same twice.

The sample protocol is that of ``grader.meter.paired``; only the clock differs.
On a GPU a call returns before its work is done, so the time is taken by two
events on the stream, and:

* every shape is warmed up first (compilation, allocation, clocks);
* before each timed call the L2 cache is flushed, by writing a buffer twice its
  size, and each call reads argument sets of its own in turn;
* the device, not only the stream, is synchronised before the events are read, so
  that work put on another stream is waited for;
* what the events say is held against the judge's own clock around the whole
  sample: the events live in the process under test and could be made to lie,
  the wall clock could not.  Time that the wall saw and the events did not, beyond
  what the trusted reference shows too, is charged to the sample.

Everything that touches a device goes through ``EventClock``, so that all of it
is tested without one.  This module has not been run on CUDA.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import torch

WARM_UP_CALLS = 3
FLUSH_FACTOR = 2
GAP_SLACK = 1.25
GAP_SLACK_NS = 2_000_000
"""The wall clock may exceed the events by the reference's gap, a quarter of it, and this much."""
ROOFLINE_SHARE = 0.9
"""Anything quicker than this share of the roofline floor is not a result."""
DEFAULT_L2_BYTES = 64 << 20


class Event(Protocol):
    """A point on a stream."""


class EventClock(Protocol):
    """What a device must do for a sample to be taken on it."""

    def record(self) -> Event:
        """Mark the current point of the stream."""

    def elapsed_ns(self, start: Event, end: Event) -> float:
        """Time between two marks, after ``synchronize``."""

    def synchronize(self) -> None:
        """Wait for everything on the device, on every stream."""

    def flush(self) -> None:
        """Push the arguments of the next call out of the cache."""


class CudaSample(msgspec.Struct, frozen=True):
    """One sample: the sum of the calls' events and how many calls it held."""

    event_ns: int
    calls: int


class CudaClock:
    """The events of a real device.

    Args:
        device: a CUDA device.

    Raises:
        RuntimeError: torch finds no such device.
    """

    def __init__(self, device: torch.device) -> None:
        if not torch.cuda.is_available():
            raise RuntimeError("torch finds no CUDA device")
        self._device = device
        # Bound now, so that a later patch of torch.cuda by the code under test changes nothing here.
        self._new_event = torch.cuda.Event
        self._wait = torch.cuda.synchronize
        self._scratch = torch.empty(FLUSH_FACTOR * l2_bytes(device), dtype=torch.int8, device=device)

    @classmethod
    def of(cls, device: torch.device) -> CudaClock:
        """The process's clock of a device, made once: its scratch buffer is large."""
        found = _clocks.get(str(device))
        if found is None:
            found = _clocks[str(device)] = cls(device)
        return found

    def record(self) -> Event:
        """Mark the current point of the device's current stream."""
        event = self._new_event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def elapsed_ns(self, start: Any, end: Any) -> float:
        """Time between two marks."""
        return float(start.elapsed_time(end)) * 1e6

    def synchronize(self) -> None:
        """Wait for every stream of the device."""
        self._wait(self._device)

    def flush(self) -> None:
        """Write twice the L2 cache."""
        self._scratch.zero_()


_clocks: dict[str, CudaClock] = {}


def l2_bytes(device: torch.device) -> int:
    """Size of the device's L2 cache, or a generous guess where torch does not say."""
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "L2_cache_size", 0) or DEFAULT_L2_BYTES)


def rotation(bytes_per_call: int, cache_bytes: int, most: int = 64) -> int:
    """How many argument sets to use in turn, so that a set's last use has left the cache: 2 to ``most``."""
    if bytes_per_call < 1:
        return 2
    return max(2, min(most, -(-FLUSH_FACTOR * cache_bytes // bytes_per_call)))


def warm_up(run: Callable[[], object], clock: EventClock, calls: int = WARM_UP_CALLS) -> None:
    """Run a shape until it is compiled, its memory is there and the device is awake."""
    for _ in range(calls):
        run()
    clock.synchronize()


def time_calls(
    runs: Sequence[Callable[[], object]], clock: EventClock, before: Callable[[int], object] = lambda place: None
) -> CudaSample:
    """Run each of ``runs`` once, on a cold cache, between two events.

    Args:
        runs: the calls.
        clock: of the device they run on.
        before: prepares the call of this place; its work lies outside the events, as the flushes do.

    Returns:
        The sum of the calls' times.
    """
    marks: list[tuple[Event, Event]] = []
    clock.synchronize()
    for place, run in enumerate(runs):
        before(place)
        clock.flush()
        start = clock.record()
        run()
        marks.append((start, clock.record()))
    clock.synchronize()
    return CudaSample(round(sum(clock.elapsed_ns(start, end) for start, end in marks)), len(marks))


def charged_ns(sample: CudaSample, wall_ns: int, trusted_gap_ns: float) -> int:
    """What a sample is taken to have lasted, given the judge's clock.

    Args:
        sample: what the process under test reported.
        wall_ns: time of the whole sample by the judge's clock.
        trusted_gap_ns: wall time less events of the reference's samples with as many calls.

    Returns:
        The events' time where the wall clock agrees; where it saw more than the reference's
        overhead explains, all of that.
    """
    overhead_ns = trusted_gap_ns * GAP_SLACK + GAP_SLACK_NS
    return max(1, round(max(sample.event_ns, wall_ns - overhead_ns)))


def gap_ns(sample: CudaSample, wall_ns: int) -> int:
    """What a sample cost beside its events: flushes, launches, the way there and back."""
    return max(0, wall_ns - sample.event_ns)


class Peaks(msgspec.Struct, frozen=True):
    """What this device does in a large copy and in a large matrix product."""

    bytes_per_second: float
    flops_per_second: float


def measure_peaks(clock: EventClock, device: torch.device, side: int = 8192, rounds: int = 10) -> Peaks:
    """Measure a copy of ``side * side`` float32 numbers and a bfloat16 product of that side; best of the rounds."""
    source = torch.randn(side, side, device=device)
    target = torch.empty_like(source)
    left = source.to(torch.bfloat16)
    right = left.clone()

    def best_ns(run: Callable[[], object]) -> float:
        warm_up(run, clock)
        return min(max(1, time_calls([run], clock).event_ns) for _ in range(rounds))

    copy_ns = best_ns(lambda: target.copy_(source))
    matmul_ns = best_ns(lambda: left @ right)
    return Peaks(2 * source.numel() * 4 / copy_ns * 1e9, 2 * side**3 / matmul_ns * 1e9)


class WallClock:
    """An ``EventClock`` of a device whose calls return when they are done: the CPU.  For tests of what uses one."""

    def record(self) -> Event:
        """The present moment."""
        return time.perf_counter_ns()

    def elapsed_ns(self, start: Any, end: Any) -> float:
        """Time between two moments."""
        return float(end - start)

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def flush(self) -> None:
        """The CPU's caches are left to the inputs' rotation."""
