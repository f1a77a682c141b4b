"""Judging GPU kernels: what the meter saw becomes verdicts, and what the compiler said becomes one more test."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from grader.judge.faults import CheckFailed
from grader.meter import roofline
from grader.meter.compile_report import CompileReport, compile_kernels
from grader.meter.triton_records import Fault, FaultKind, MeterReport, Options
from grader.model import INTERPRET_VARIABLE, Outcome, TestResult

METER = "triton"
INTERPRETER = "grader.meter.triton_meter_interpreter"
BYTES_LIMIT = 1.1
SECTOR_LIMIT = 1.25
_ORDER = {kind: place for place, kind in enumerate(FaultKind)}


def interpreted() -> bool:
    """Whether this judge and its hosts run kernels in Triton's interpreter, and not on a GPU."""
    return os.environ.get(INTERPRET_VARIABLE, "1") != "0"


def ran_on(results: Sequence[TestResult], device: str = "cpu") -> str:
    """Which tiers a kernel's tests ran on, in words; a pass here is never presented as a GPU's."""
    if device == "cuda":
        return f"compiled and run on {torch.cuda.get_device_name()}; bytes and races are the interpreter's to count"
    compiled = [result for result in results if "compile" in result.id]
    if compiled and all(result.outcome is Outcome.PASSED for result in compiled):
        return "interpreter + compiled for sm_80/90; not run on a GPU"
    return "interpreter; not compiled; not run on a GPU"


def why_not() -> str:
    """Why kernels cannot be graded on this machine, or an empty string when they can."""
    if importlib.util.find_spec("triton") is None:
        return (
            f"Triton is not installed, and has no wheel for {sys.platform}"
            if sys.platform != "linux"
            else "Triton is not installed"
        )
    return ""


class KernelFault(CheckFailed):
    """A call did something no correct kernel does; ``seen`` is what diagnosis compares, free of names and lines."""

    def __init__(self, message: str, seen: tuple[Any, ...]) -> None:
        super().__init__(message)
        self.seen = seen


def meter(launcher: Any, far: dict[int, int] | None = None, reverse: bool = False) -> str:
    """The meter of a call and its options, with tensors named as the reference names its parameters.

    Args:
        launcher: the reference's function.
        far: distance in elements of the rows of these arguments, by place.
        reverse: run every grid last to first.
    """
    names = tuple(inspect.signature(launcher).parameters) if callable(launcher) else ()
    return f"{METER}:{msgspec.json.encode(Options(far or {}, reverse, names)).decode()}"


def examine(call: str, data: bytes, how: str = "") -> MeterReport:
    """The report of a metered call.

    Args:
        call: the call as text, for the message.
        data: what the host sent.
        how: the call's meter and options.

    Raises:
        KernelFault: the call broke memory, raced, left its output unwritten, or computed outside its kernels.
    """
    report = msgspec.msgpack.decode(data, type=MeterReport)
    if report.faults:
        fault = min(report.faults, key=lambda one: _ORDER[one.kind])
        _, _, options = how.partition(":")
        in_order = not (options and msgspec.json.decode(options, type=Options).reverse)
        raise KernelFault(f"{fault.kind} in {call}: {fault.message}", _seen(fault, in_order))
    return report


def check_cost(
    report: MeterReport, ideal_bytes: float, rereads: tuple[str, ...] = (), limit: float = BYTES_LIMIT
) -> tuple[bool, str, tuple[Any, ...]]:
    """Whether a call moved no more than it must, in sectors that are used.

    Args:
        report: what the meter saw.
        ideal_bytes: the challenge's own formula.
        rereads: arguments that every program may read again (they come from the L2 cache).
        limit: bytes allowed, as a multiple of the formula.

    Returns:
        whether it holds, a sentence that says what was moved, and what diagnosis compares.
    """
    if report.tier == "cuda":
        return True, "counted by the interpreter only", (report.tier,)
    moved, ratio = report.moved_bytes(without=rereads), report.sector_ratio()
    rows = [row for row in _by_tensor(report) if row.tensor not in rereads]
    # As multiples of the formula, so that a few bytes of another style (a zeroed counter) do not hide a known mistake.
    shares = [
        (row.tensor, round(row.loaded_bytes / ideal_bytes, 2), round(row.stored_bytes / ideal_bytes, 2)) for row in rows
    ]
    seen = (
        round(moved / ideal_bytes, 2),
        round(ratio, 1),
        round(report.torch_bytes / ideal_bytes, 2),
        tuple(sorted(share for share in shares if any(share[1:]))),
    )
    if moved > limit * ideal_bytes:
        where = ", ".join(f"{row.tensor} {row.loaded_bytes + row.stored_bytes}" for row in _by_tensor(report))
        where += f", torch {report.torch_bytes}" if report.torch_bytes else ""
        return (
            False,
            f"moves {moved} bytes, {moved / ideal_bytes:.2f}x of what it must (allowed {limit}x): {where}",
            seen,
        )
    if ratio > SECTOR_LIMIT:
        return (
            False,
            f"touches {ratio:.2f}x as many bytes in 32-byte sectors as it asks for (allowed {SECTOR_LIMIT}x)",
            seen,
        )
    return True, f"moves {moved} bytes, {moved / ideal_bytes:.2f}x of what it must", seen


@functools.lru_cache(maxsize=256)
def compiled(source: str, signatures: tuple[Any, ...], targets: tuple[int, ...] = (80, 90)) -> CompileReport:
    """The kernels of a file compiled as they were launched; remembered."""
    report = compile_kernels(source, signatures, targets)
    _last_compiled[source] = report
    return report


_last_compiled: dict[str, CompileReport] = {}


def notes(folder: Path, source: str) -> tuple[str, ...]:
    """What is worth knowing beside the verdict: the roofline floor at full size, and what the compiler made.

    Args:
        folder: the challenge's, whose exercise.toml holds the full-size shape under ``[roofline]``.
        source: the graded file.
    """
    lines: list[str] = []
    full = tomllib.loads((folder / "exercise.toml").read_text(encoding="utf-8")).get("roofline")
    if full:
        floors = roofline.floors(float(full["moved_bytes"]), float(full.get("flops", 0)))
        lines.append(f"roofline at {full['shape']}: " + "; ".join(map(str, floors)))
    report = _last_compiled.pop(source, CompileReport())
    lines.extend(report.facts)
    return tuple(lines)


class _Row(msgspec.Struct, frozen=True):
    tensor: str
    loaded_bytes: int
    stored_bytes: int


def _by_tensor(report: MeterReport) -> list[_Row]:
    """Bytes per tensor of the launcher, all kernels together."""
    names = dict.fromkeys(row.tensor for row in report.traffic)
    return [_Row(name, report.loaded_bytes(name), report.stored_bytes(name)) for name in names]


def _seen(fault: Fault, in_order: bool) -> tuple[Any, ...]:
    """A fault without what depends on the learner's names and block sizes.

    The first address outside is the same for any block size, as long as programs run first to last.
    """
    if not in_order and fault.kind is not FaultKind.UNWRITTEN:
        return (str(fault.kind), fault.tensor)
    if fault.kind in (FaultKind.OUT_OF_BOUNDS_LOAD, FaultKind.OUT_OF_BOUNDS_STORE, FaultKind.OFFSET_OVERFLOW):
        return (str(fault.kind), fault.tensor, fault.offset)
    if fault.kind is FaultKind.UNWRITTEN:
        return (str(fault.kind), fault.tensor, fault.offset, fault.count)
    return (str(fault.kind), fault.tensor)
