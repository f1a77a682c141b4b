"""The CUDA tier: the same launchers on real tensors, compiled, with the checks that need no interpreter, and timed.

What a GPU does cannot be watched access by access.  So every tensor lies between guard bands that hold a pattern,
outputs start as a poison no kernel computes, and both are read back after the call: a store outside its tensor and an
element nobody wrote show there.  Loads outside, races and byte counts are the interpreter's to find.

Nothing here has been run on CUDA by the kit's own tests, which use CPU tensors in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import msgspec
import torch

from grader.meter.cuda import CudaSample, EventClock, Peaks, impossible, time_calls, warm_up
from grader.meter.triton_meter_ledger import Ledger
from grader.meter.triton_meter_memory import FILLED, GUARD_BYTES, Home, Memory, poison
from grader.meter.triton_meter_torch import LauncherMode
from grader.meter.triton_records import FaultKind, MeterReport

GUARD_PATTERN = 0xA5
TIMED_ROUNDS = 10


def run_on_device(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], names: Sequence[str]
) -> tuple[Any, BaseException | None, MeterReport]:
    """Run a compiled launcher once between guard bands.

    Args:
        function: the launcher.
        args: its positional arguments; in-place changes are copied back to them.
        kwargs: its keyword arguments.
        names: what the positional arguments are called in the report.

    Returns:
        what it returned, what it raised, and a report without counts.
    """
    memory = Memory()
    ledger = Ledger(memory)
    housed = [_house(memory, value, "input", name) for name, value in zip(names, args, strict=True)]
    keyword = {name: _house(memory, value, "input", name) for name, value in kwargs.items()}
    result, error = None, None
    with _GuardedMode(ledger):
        try:
            result = function(*housed, **keyword)
        except Exception as problem:
            error = problem
    _synchronise(args)
    label = _labels(memory, result)
    for home in memory.homes:
        _check_guards(ledger, home)
    if error is None:
        _check_poison(ledger, memory, result)
    for value, mine in [*zip(args, housed, strict=True), *((kwargs[name], keyword[name]) for name in kwargs)]:
        if isinstance(value, torch.Tensor):
            value.copy_(mine)
    return result, error, MeterReport(torch_ops=ledger.torch_ops(), faults=ledger.faults(label), tier="cuda")


class KernelTiming(msgspec.Struct, frozen=True):
    """How long one launch takes on this device, and how near that is to what the device can do.

    ``bandwidth_share`` and ``flops_share`` are fractions of what the device measures in a copy and in a matrix
    product; ``problem`` says why the time is no result, and is empty when it is one.
    """

    call_ns: float
    floor_ns: float
    bytes_per_second: float
    flops_per_second: float
    bandwidth_share: float
    flops_share: float
    problem: str = ""


def time_launcher(
    launch: Callable[[Any], Any],
    inputs: Sequence[Any],
    check: Callable[[Any, Any], bool],
    moved_bytes: float,
    flops: float,
    clock: EventClock,
    peaks: Peaks,
    floor_ns: float,
    rounds: int = TIMED_ROUNDS,
    wall_ns: Callable[[], int] | None = None,
) -> KernelTiming:
    """Time a launcher on fresh inputs, a cold cache and poisoned memory, and check an answer of every round.

    Args:
        launch: calls the launcher on one set of inputs and returns its result.
        inputs: argument sets, used in turn; enough of them that none is in the cache when it comes round again.
        check: whether a result is right for its inputs.
        moved_bytes: bytes of one call by the challenge's formula.
        flops: operations of one call by the formula.
        clock: the device's events.
        peaks: what the device measures in a copy and in a matrix product.
        floor_ns: the roofline floor of one call from published peaks; anything under 0.9 of it is an error.
        rounds: samples, of which the median counts.
        wall_ns: the host's clock around each sample; None leaves the events unchecked.
    """
    for values in inputs:
        warm_up(lambda values=values: launch(values), clock)  # type: ignore[misc]
    samples: list[CudaSample] = []
    problem = ""
    for turn in range(rounds):
        values = inputs[turn % len(inputs)]
        kept: list[Any] = []
        before = wall_ns() if wall_ns else 0
        sample = time_calls([lambda values=values, kept=kept: kept.append(launch(values))], clock)  # type: ignore[misc]
        elapsed = wall_ns() - before if wall_ns else sample.event_ns
        problem = problem or impossible(sample, elapsed, floor_ns)
        if not problem and not check(values, kept[0]):
            problem = "a timed call gave a wrong answer"
        samples.append(sample)
    call_ns = median(sample.event_ns / max(1, sample.calls) for sample in samples)
    moved, done = moved_bytes / call_ns * 1e9, flops / call_ns * 1e9
    return KernelTiming(
        call_ns, floor_ns, moved, done, moved / peaks.bytes_per_second, done / peaks.flops_per_second, problem
    )


class _GuardedMode(LauncherMode):  # type: ignore[no-untyped-call]
    """The launcher's allocations on a device: guard bands are filled, since nothing else watches them."""

    def _settle(
        self, out: torch.Tensor, name: str, inputs: list[torch.Tensor], allocation: bool, copy: bool
    ) -> torch.Tensor:
        memory = self.ledger.memory
        if memory.of(out) is not None:
            return out
        if allocation:
            poison(out)
        made = memory.house(out, "allocation", "scratch")
        home = memory.of(made)
        assert home is not None
        _fill_guards(home)
        if not allocation:
            home.mark(FILLED)
        return made


def _house(memory: Memory, value: Any, kind: str, name: str) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    made = memory.house(value, kind, name)
    home = memory.of(made)
    assert home is not None
    _fill_guards(home)
    home.mark(FILLED)
    return made


def _bands(home: Home) -> tuple[torch.Tensor, torch.Tensor]:
    """The bytes before and after a home's tensor."""
    raw, segment = home.keep, home.segments[0]
    start = segment.base - raw.data_ptr()
    end = start + segment.elements * segment.unit
    return raw[max(0, start - GUARD_BYTES) : start], raw[end : end + GUARD_BYTES]


def _fill_guards(home: Home) -> None:
    for band in _bands(home):
        band.fill_(GUARD_PATTERN)


def _check_guards(ledger: Ledger, home: Home) -> None:
    segment = home.segments[0]
    for after, band in enumerate(_bands(home)):
        touched = (band != GUARD_PATTERN).nonzero().flatten()
        if touched.numel():
            first = int(touched[0] if after else touched[-1] - band.numel())
            offset = segment.elements + first // segment.unit if after else first // segment.unit
            ledger.note(
                FaultKind.OUT_OF_BOUNDS_STORE,
                "a kernel stored to element {offset} of {tensor}, which has " + str(segment.elements),
                home=home, offset=offset, count=int(touched.numel()) // segment.unit or 1,
            )  # fmt: skip


def _check_poison(ledger: Ledger, memory: Memory, result: Any) -> None:
    """Find elements of the result that still hold what its memory was filled with."""
    tensors = [value for value in torch.utils._pytree.tree_leaves(result) if isinstance(value, torch.Tensor)]
    for place, value in enumerate(tensors):
        home = memory.of(value)
        name = "result" if len(tensors) == 1 else f"result[{place}]"
        if home is None or home.kind != "allocation" or (home.segments[0].state == FILLED).all():
            continue
        fresh = torch.empty_like(value)
        poison(fresh)
        left = value.isnan() if value.is_floating_point() else value == fresh
        if bool(left.any()):
            first = int(left.flatten().nonzero()[0])
            count = int(left.sum())
            text = f"{count} of the {value.numel()} elements of {name} are as they were before the call"
            ledger.note(FaultKind.UNWRITTEN, text, tensor=name, offset=first, count=count)


def _labels(memory: Memory, result: Any) -> dict[int, str]:
    label = {id(home): home.label for home in memory.homes if home.kind == "input"}
    tensors = [value for value in torch.utils._pytree.tree_leaves(result) if isinstance(value, torch.Tensor)]
    for place, value in enumerate(tensors):
        home = memory.of(value)
        if home is not None:
            label.setdefault(id(home), "result" if len(tensors) == 1 else f"result[{place}]")
    return label


def _synchronise(args: tuple[Any, ...]) -> None:
    if any(isinstance(value, torch.Tensor) and value.is_cuda for value in args):
        torch.cuda.synchronize()
