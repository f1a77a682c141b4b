"""The books of one metered call: who touched which address, how much was moved, and what was wrong with it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from grader.meter.triton_meter_memory import KERNEL, Home, Memory, Segment
from grader.meter.triton_records import SECTOR_BYTES, Fault, FaultKind, KernelCount, LaunchSignature, TorchOp, Traffic

LOAD, STORE, ATOMIC = "load", "store", "atomic"
_SECTOR_SHIFT = np.uint64(SECTOR_BYTES.bit_length() - 1)
_WRAP = 1 << 32
_FAULTS_KEPT = 16


class MemoryFault(Exception):
    """A kernel touched memory it does not own.  Raised through the kernel; the fault is in the books already."""


@dataclass(frozen=True)
class Origin:
    """Which kernel parameter a pointer came from, and the tensor passed there."""

    parameter: str
    home: Home
    address: int
    elements: int
    unit: int


@dataclass
class _Account:
    """Running counts of one kernel and one parameter, for one of the tensors that were passed there."""

    home: Home
    loaded_bytes: int = 0
    stored_bytes: int = 0
    load_sectors: int = 0
    store_sectors: int = 0
    atomics: int = 0
    loaded: dict[int, np.ndarray[Any, Any]] = field(default_factory=dict)
    stored: dict[int, np.ndarray[Any, Any]] = field(default_factory=dict)


@dataclass
class _Trouble:
    """A fault while its tensor's final name is not known yet."""

    kind: FaultKind
    text: str
    kernel: str = ""
    line: int = 0
    argument: str = ""
    home: Home | None = None
    offset: int = 0
    count: int = 0
    tensor: str = ""


class Ledger:
    """All counts and faults of one call; one kernel runs at a time."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.troubles: list[_Trouble] = []
        self.counting = True
        self.reverse = False
        self.stamp = 0
        self._launch_first = 1
        self._kernel = ""
        self._file = ""
        self._synchronised = False
        self._written: dict[int, Home] = {}
        self._accounts: dict[tuple[str, str, int], _Account] = {}
        self._kernels: dict[str, list[int]] = {}
        self._torch: dict[str, list[int]] = {}
        self._forbidden: set[str] = set()
        self._signatures: dict[LaunchSignature, None] = {}
        self._seen: set[tuple[str, ...]] = set()

    # -- launches ------------------------------------------------------------------------------------------------

    def begin_launch(self, kernel: str, file: str, signature: LaunchSignature) -> None:
        """A kernel starts; memory must be as the last kernel or torch operation left it."""
        self.note_host_writes()
        self._kernel, self._file = kernel, file
        self._launch_first = self.stamp + 1
        self._written = {}
        if self.counting:
            self._kernels.setdefault(kernel, [0, 0, 0])[0] += 1
        self._signatures[signature] = None

    def begin_program(self) -> None:
        """One program instance of the running kernel starts."""
        self.stamp += 1
        self._synchronised = False
        if self.counting:
            self._kernels[self._kernel][1] += 1

    def end_launch(self) -> None:
        """The kernel is done, or has failed: what it wrote is what memory now holds."""
        for home in self._written.values():
            home.remember()
        self._written = {}
        self._kernel = self._file = ""

    def dot(self, flops: int) -> None:
        """A ``tl.dot`` of the running kernel."""
        if self.counting and self._kernel:
            self._kernels[self._kernel][2] += flops

    # -- accesses ------------------------------------------------------------------------------------------------

    def access(self, how: str, origin: Origin | None, addresses: np.ndarray[Any, Any], item_bytes: int) -> None:
        """Book one load, store or atomic of the active lanes; raise when a lane is outside its tensor.

        Args:
            how: ``load``, ``store`` or ``atomic``.
            origin: the kernel parameter the pointers came from, None when that was lost on the way.
            addresses: (lanes,) uint64, the active lanes only.
            item_bytes: size of one element.
        """
        if addresses.size == 0:
            return
        low, high = int(addresses.min()), int(addresses.max())
        home = origin.home if origin is not None else self.memory.at(low)
        segment = home.find(low) if home is not None else None
        if home is None or segment is None or high + item_bytes > segment.end:
            self._scattered(how, origin, home, addresses, item_bytes)
            return
        self._book(how, origin, home, segment, addresses, item_bytes)

    def _scattered(
        self,
        how: str,
        origin: Origin | None,
        home: Home | None,
        addresses: np.ndarray[Any, Any],
        item_bytes: int,
    ) -> None:
        """Lanes of one access in several segments, or outside: sort them out one segment at a time."""
        left = addresses
        while left.size:
            first = int(left.min())
            here = home if origin is not None else self.memory.at(first)
            segment = here.find(first) if here is not None else None
            if here is None or segment is None:
                self._outside(how, origin, left, np.ones(left.size, dtype=bool), item_bytes)
                return
            inside = (left >= np.uint64(segment.base)) & (left <= np.uint64(segment.end - item_bytes))
            if not inside.any():
                self._outside(how, origin, left, ~inside, item_bytes)
                return
            # Past the end of the only segment: say so before booking what was right about the access.
            if origin is not None and len(here.segments) == 1 and not inside.all():
                self._outside(how, origin, left, ~inside, item_bytes)
                return
            self._book(how, origin, here, segment, left[inside], item_bytes)
            left = left[~inside]

    def _book(
        self,
        how: str,
        origin: Origin | None,
        home: Home,
        segment: Segment,
        addresses: np.ndarray[Any, Any],
        item_bytes: int,
    ) -> None:
        units = segment.units(addresses, item_bytes)
        if segment.owned is not None and not segment.owned[units].all():
            self._outside(how, origin, addresses, ~segment.owned[segment.units(addresses, 1)], item_bytes)
        parameter = origin.parameter if origin is not None else "?"
        if segment.writer is not None and how != ATOMIC:
            self._check_races(how, parameter, home, segment, units)
        if how == ATOMIC:
            self._synchronised = True
        if how != LOAD:
            segment.state[units] = KERNEL
            self._written[id(home)] = home
            if how == STORE:
                if segment.writer is None:
                    segment.writer = np.zeros(segment.elements, dtype=np.int32)
                segment.writer[units] = self.stamp
        if self.counting:
            self._count(how, parameter, home, segment, addresses, units, item_bytes)

    def _count(
        self,
        how: str,
        parameter: str,
        home: Home,
        segment: Segment,
        addresses: np.ndarray[Any, Any],
        units: np.ndarray[Any, Any],
        item_bytes: int,
    ) -> None:
        lanes, sectors = _distinct(addresses)
        key = (self._kernel, parameter, id(home))
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = _Account(home)
        if how != STORE:
            account.loaded_bytes += lanes * item_bytes
            account.load_sectors += sectors
            _touch(account.loaded, segment, units)
        if how != LOAD:
            account.stored_bytes += lanes * item_bytes
            account.store_sectors += sectors
            _touch(account.stored, segment, units)
        if how == ATOMIC:
            account.atomics += int(addresses.size)

    def _check_races(self, how: str, parameter: str, home: Home, segment: Segment, units: np.ndarray[Any, Any]) -> None:
        assert segment.writer is not None
        writers = segment.writer[units]
        other = (writers >= self._launch_first) & (writers != self.stamp)
        if not self.counting or not other.any():
            return
        count, at = int(other.sum()), int(units[int(np.argmax(other))])
        if how == STORE:
            self._note(
                _Trouble(
                    FaultKind.WRITE_CONFLICT,
                    "two programs of one launch both store to {tensor} at element {offset}: on a GPU either may win",
                    argument=parameter,
                    home=home,
                    offset=at,
                    count=count,
                    line=self._line(),
                    kernel=self._kernel,
                )
            )
        elif not self._synchronised:
            self._note(
                _Trouble(
                    FaultKind.READ_RACE,
                    "a program loads {tensor} at element {offset}, which another program of the same launch stored: "
                    "on a GPU the load may come first",
                    argument=parameter,
                    home=home,
                    offset=at,
                    count=count,
                    line=self._line(),
                    kernel=self._kernel,
                )
            )

    def _outside(
        self,
        how: str,
        origin: Origin | None,
        addresses: np.ndarray[Any, Any],
        bad: np.ndarray[Any, Any],
        item_bytes: int,
    ) -> None:
        """Record an access outside its tensor and stop the kernel there."""
        kind = FaultKind.OUT_OF_BOUNDS_LOAD if how == LOAD else FaultKind.OUT_OF_BOUNDS_STORE
        worst = addresses[bad]
        if origin is None:
            trouble = _Trouble(kind, "an address that belongs to no tensor of the call", count=int(bad.sum()))
        else:
            signed = (worst - np.uint64(origin.address)).astype(np.int64) // item_bytes
            offset = int(signed.min())
            what = "element {offset} of {tensor}, which has " + str(origin.elements)
            if 0 <= offset < origin.elements or origin.home.find(int(worst.min())) is not None:
                what = "element {offset} of {tensor}'s memory, in the gap between two of its rows"
            if offset < 0 and origin.home.find(origin.address + (offset + _WRAP) * item_bytes) is not None:
                kind = FaultKind.OFFSET_OVERFLOW
                what = "element {offset} of {tensor}: the offset passed 2^31 and wrapped in 32-bit arithmetic"
            trouble = _Trouble(
                kind, f"{how}s {what}", argument=origin.parameter, home=origin.home, offset=offset, count=int(bad.sum())
            )
        trouble.kernel, trouble.line = self._kernel, self._line()
        self._note(trouble)
        raise MemoryFault(self.sentence(trouble, trouble.argument or "memory"))

    # -- the launcher ----------------------------------------------------------------------------------------------

    def torch_op(self, name: str, moved_bytes: int, allowed: bool) -> None:
        """A torch operation of the launcher."""
        if not self.counting:
            return
        row = self._torch.setdefault(name, [0, 0])
        row[0] += 1
        row[1] += moved_bytes
        if not allowed:
            self._forbidden.add(name)
            self._note(
                _Trouble(
                    FaultKind.TORCH_OP,
                    f"the launcher computes with torch ({name}); the arithmetic belongs in the kernel",
                    tensor=name,
                )
            )

    def note_host_writes(self) -> None:
        """Find memory that changed although no kernel and no torch operation ran."""
        for home in self.memory.changed():
            self._note(
                _Trouble(FaultKind.HOST_WRITE, "{tensor} changed, and no kernel or torch call did it", home=home)
            )
            home.remember()

    def note(self, kind: FaultKind, text: str, **where: Any) -> None:
        """Record a fault; ``{tensor}`` and ``{offset}`` in its text are filled in at the end."""
        self._note(_Trouble(kind, text, **where))

    def _note(self, trouble: _Trouble) -> None:
        key = (trouble.kind, trouble.kernel, trouble.argument, trouble.tensor, str(trouble.line))
        if key in self._seen:
            return
        self._seen.add(key)
        if len(self.troubles) < _FAULTS_KEPT:
            self.troubles.append(trouble)

    def _line(self) -> int:
        """The line of the learner's file that is running: the innermost frame in the kernel's file."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self._file:
                return frame.f_lineno
            frame = frame.f_back  # type: ignore[assignment]
        return 0

    # -- the end -----------------------------------------------------------------------------------------------------

    def sentence(self, trouble: _Trouble, tensor: str) -> str:
        """A fault as one sentence, place first."""
        text = trouble.text.replace("{tensor}", tensor).replace("{offset}", str(trouble.offset))
        if not trouble.kernel:
            return text
        place = f"line {trouble.line} of {trouble.kernel}" if trouble.line else trouble.kernel
        return f"{place}: {text}"

    def faults(self, label: dict[int, str]) -> tuple[Fault, ...]:
        """All faults with their tensors' final names: ``label`` maps a home's id to its name."""
        done = []
        for trouble in self.troubles:
            tensor = label.get(id(trouble.home), "scratch") if trouble.home is not None else trouble.tensor
            shown = f"{trouble.argument} ({tensor})" if trouble.argument not in ("", "?", tensor) else tensor
            done.append(
                Fault(
                    kind=trouble.kind,
                    message=self.sentence(trouble, shown),
                    kernel=trouble.kernel,
                    line=trouble.line,
                    argument=trouble.argument,
                    tensor=tensor,
                    offset=trouble.offset,
                    count=trouble.count,
                )
            )
        return tuple(done)

    def traffic(self, label: dict[int, str]) -> tuple[Traffic, ...]:
        """The counts per kernel and parameter."""
        return tuple(
            Traffic(
                kernel=kernel,
                argument=parameter,
                tensor=label.get(id(account.home), "scratch"),
                loaded_bytes=account.loaded_bytes,
                stored_bytes=account.stored_bytes,
                unique_loaded_bytes=_covered(account.loaded, account.home),
                unique_stored_bytes=_covered(account.stored, account.home),
                load_sectors=account.load_sectors,
                store_sectors=account.store_sectors,
                atomics=account.atomics,
            )
            for (kernel, parameter, _), account in self._accounts.items()
        )

    def kernels(self) -> tuple[KernelCount, ...]:
        """Launches, programs and dot FLOPs per kernel."""
        return tuple(KernelCount(name, *counts) for name, counts in self._kernels.items())

    def torch_ops(self) -> tuple[TorchOp, ...]:
        """The launcher's torch operations."""
        return tuple(
            TorchOp(name, calls, moved, name not in self._forbidden) for name, (calls, moved) in self._torch.items()
        )

    def signatures(self) -> tuple[LaunchSignature, ...]:
        """Every different way a kernel was launched."""
        return tuple(self._signatures)


def origin_of(parameter: str, tensor: torch.Tensor, home: Home) -> Origin:
    """The origin that every pointer made from a tensor argument carries."""
    return Origin(parameter, home, tensor.data_ptr(), tensor.numel(), tensor.element_size())


def _distinct(addresses: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Distinct addresses and distinct sectors of one access."""
    if addresses.size == 1:
        return 1, 1
    if not (addresses[1:] > addresses[:-1]).all():
        addresses = np.unique(addresses)
    sectors = addresses >> _SECTOR_SHIFT
    return int(addresses.size), 1 + int(np.count_nonzero(sectors[1:] != sectors[:-1]))


def _touch(cover: dict[int, np.ndarray[Any, Any]], segment: Segment, units: np.ndarray[Any, Any]) -> None:
    touched = cover.get(segment.base)
    if touched is None:
        touched = cover[segment.base] = np.zeros(segment.elements, dtype=bool)
    touched[units] = True


def _covered(cover: dict[int, np.ndarray[Any, Any]], home: Home) -> int:
    unit = home.segments[0].unit
    return sum(int(touched.sum()) for touched in cover.values()) * unit
