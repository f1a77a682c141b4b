"""The CUDA tier: the same launchers on real tensors, compiled, with the checks that need no interpreter.

What a GPU does cannot be watched access by access.  So every tensor lies between guard bands that hold a pattern,
outputs start as a poison no kernel computes, and both are read back after the call: a store outside its tensor and an
element nobody wrote show there.  Loads outside, races and byte counts are the interpreter's to find.

Nothing here has been run on CUDA by the kit's own tests, which use CPU tensors in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from grader.meter.triton_meter_ledger import Ledger
from grader.meter.triton_meter_memory import FILLED, GUARD_BYTES, Home, Memory, copy_back, poison
from grader.meter.triton_meter_torch import LauncherMode
from grader.meter.triton_records import FaultKind, MeterReport

GUARD_PATTERN = 0xA5


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
            copy_back(value, mine)
    return result, error, MeterReport(torch_ops=ledger.torch_ops(), faults=ledger.faults(label), tier="cuda")


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
