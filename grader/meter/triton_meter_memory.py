"""The memory a metered kernel may touch: every tensor in a home of its own, with a guard band on both sides.

A *home* is one storage.  Nearly always it is one segment; a tensor whose rows lie gigabytes apart has one segment
a row, so that nothing of the size of the gap is ever kept.  A home knows which of its elements belong to a tensor
(the gap between strided rows does not), who wrote each element, and what its bytes were when the last kernel ended.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

GUARD_BYTES = 16384
ALIGNMENT_BYTES = 256
"""The alignment of a fresh CUDA allocation, so that specialisation and sectors come out as they would there."""

DENSE_LIMIT_BYTES = 1 << 28
"""Above this a storage is never copied: its rows become segments, or it is used where it lies."""

_MAP_NORESERVE = 0x4000
"""Linux; Python names it from 3.13 on."""

UNWRITTEN, FILLED, KERNEL, INPUT = range(4)
"""Who gave an element its value: nobody, a torch operation, a kernel, the caller."""

_POISON = {
    torch.bool: 0xA5,
    torch.uint8: 0xA5,
    torch.int8: 0x5A,
    torch.int16: 0x5A5A,
    torch.int32: 0x5A5A5A5A,
    torch.int64: 0x5A5A5A5A5A5A5A5A,
}
"""Integers have no NaN: a value that no count, index or target takes."""


@dataclass
class Segment:
    """A stretch of addresses of one home, with one entry per element in each of its maps."""

    base: int
    elements: int
    unit: int
    bytes_view: np.ndarray[Any, Any]
    owned: np.ndarray[Any, Any] | None = None
    state: np.ndarray[Any, Any] = field(init=False)
    writer: np.ndarray[Any, Any] | None = None
    shadow: np.ndarray[Any, Any] | None = None

    def __post_init__(self) -> None:
        self.state = np.zeros(self.elements, dtype=np.uint8)

    @property
    def end(self) -> int:
        """The first address past the segment."""
        return self.base + self.elements * self.unit

    def units(self, addresses: np.ndarray[Any, Any], item_bytes: int) -> np.ndarray[Any, Any]:
        """The indices of the elements that accesses of ``item_bytes`` at ``addresses`` touch."""
        offsets = (addresses - np.uint64(self.base)).astype(np.int64)
        if item_bytes <= self.unit:
            return offsets // self.unit
        first = offsets // self.unit
        return (first[:, None] + np.arange(item_bytes // self.unit)).ravel()

    def remember(self) -> None:
        """Keep the bytes as they are now, to see later whether something else changed them."""
        if self.shadow is None:
            self.shadow = self.bytes_view.copy()
        else:
            np.copyto(self.shadow, self.bytes_view)

    def changed(self) -> bool:
        """Whether the bytes differ from the remembered ones."""
        return self.shadow is not None and not np.array_equal(self.shadow, self.bytes_view)


@dataclass
class Home:
    """One storage: its segments by rising address, and the tensor that keeps it alive."""

    segments: list[Segment]
    kind: str
    label: str
    keep: Any
    bases: list[int] = field(init=False)
    holders: int = field(init=False)

    def __post_init__(self) -> None:
        self.bases = [segment.base for segment in self.segments]
        self.holders = self._holders()

    def find(self, address: int) -> Segment | None:
        """The segment that holds an address."""
        at = bisect_right(self.bases, address) - 1
        if at < 0 or address >= self.segments[at].end:
            return None
        return self.segments[at]

    @property
    def is_in_use(self) -> bool:
        """Whether more than at first holds the storage: a tensor besides the home's own and its view in bytes."""
        return self._holders() > self.holders

    def _holders(self) -> int:
        return int(torch._C._storage_Use_Count(self.keep.untyped_storage()._cdata))

    def mark(self, state: int) -> None:
        """Give every element the same origin."""
        for segment in self.segments:
            segment.state[:] = state

    def remember(self) -> None:
        """Remember the bytes of every segment."""
        for segment in self.segments:
            segment.remember()


class Memory:
    """All homes of one metered call, found by storage or by address."""

    def __init__(self) -> None:
        self.homes: list[Home] = []
        self._by_storage: dict[int, Home] = {}

    def of(self, tensor: torch.Tensor) -> Home | None:
        """The home of a tensor's storage, if it has one."""
        return self._by_storage.get(tensor.untyped_storage().data_ptr())

    def at(self, address: int) -> Home | None:
        """The home whose segments hold an address."""
        return next((home for home in self.homes if home.find(address) is not None), None)

    def adopt(self, tensor: torch.Tensor, kind: str, label: str) -> Home:
        """Give a home to a storage where it lies, without guard bands."""
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        raw = torch.empty(0, dtype=torch.uint8).set_(storage)
        return self._register(raw, 0, size, tensor.element_size(), kind, label)

    def readmit(self, home: Home) -> None:
        """Take over a home of an earlier call, of which nothing is known to be written yet."""
        home.kind, home.label = "kept", "scratch"
        home.mark(UNWRITTEN)
        for segment in home.segments:
            segment.writer = None
        home.remember()
        self._add(home, home.keep.untyped_storage().data_ptr())

    def house(self, tensor: torch.Tensor, kind: str, label: str) -> torch.Tensor:
        """Copy a tensor's storage between guard bands; returns the same view of the copy."""
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        raw, start = _guarded(size, tensor.device)
        if size:
            raw[start : start + size].copy_(torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage))
        self._register(raw, start, size, tensor.element_size(), kind, label)
        return _view_of(raw, start, tensor)

    def house_group(self, tensors: list[torch.Tensor], kind: str, labels: list[str]) -> list[torch.Tensor]:
        """House tensors that share one storage together; elements of none of them are out of bounds."""
        first = tensors[0]
        if first.untyped_storage().nbytes() > DENSE_LIMIT_BYTES:
            return self._house_rows(tensors, kind, labels)
        housed = [self.house(first, kind, labels[0])]
        home = self.of(housed[0])
        assert home is not None
        raw_start = home.segments[0].base
        for tensor in tensors[1:]:
            housed.append(_view_of(home.keep, raw_start - home.keep.data_ptr(), tensor))
        if {t.element_size() for t in tensors} == {first.element_size()}:
            owned = np.zeros(home.segments[0].elements, dtype=bool)
            for tensor in tensors:
                _elements(owned, tensor)[...] = True
            if not owned.all():
                home.segments[0].owned = owned
        return housed

    def state_of(self, tensor: torch.Tensor) -> np.ndarray[Any, Any] | None:
        """Who wrote each element of a tensor, in the tensor's shape; None when it has no home of that element size."""
        home = self.of(tensor)
        if home is None or len(home.segments) != 1 or home.segments[0].unit != tensor.element_size():
            return None
        segment = home.segments[0]
        shift = (tensor.untyped_storage().data_ptr() - segment.base) // segment.unit
        return _elements(segment.state, tensor, shift)

    def changed(self) -> list[Home]:
        """The homes whose bytes are not what the last kernel or torch operation left."""
        return [home for home in self.homes if any(segment.changed() for segment in home.segments)]

    def _house_rows(self, tensors: list[torch.Tensor], kind: str, labels: list[str]) -> list[torch.Tensor]:
        """Rows so far apart that the storage is mostly untouched: each row is a segment, where it lies."""
        segments = []
        for tensor in tensors:
            for row in tensor:
                if not row.is_contiguous():
                    raise ValueError("a storage of this size must have contiguous rows")
                segment = Segment(row.data_ptr(), row.numel(), row.element_size(), _bytes_of(row))
                segment.state[:] = INPUT
                segments.append(segment)
        segments.sort(key=lambda segment: segment.base)
        home = Home(segments, kind, labels[0], tensors[0])
        self._add(home, tensors[0].untyped_storage().data_ptr())
        home.remember()
        return tensors

    def _register(self, raw: torch.Tensor, start: int, size: int, unit: int, kind: str, label: str) -> Home:
        on_host = raw.device.type == "cpu"
        view = raw.numpy()[start : start + size] if on_host else np.zeros(0, dtype=np.uint8)
        segment = Segment(raw.data_ptr() + start, size // unit, unit, view)
        home = Home([segment], kind, label, raw)
        self._add(home, raw.untyped_storage().data_ptr())
        return home

    def _add(self, home: Home, storage_address: int) -> None:
        self.homes.append(home)
        self._by_storage[storage_address] = home


def poison(tensor: torch.Tensor) -> None:
    """Fill a fresh tensor with what no kernel would compute: NaN, or a marker for integers."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    elif tensor.dtype in _POISON:
        tensor.view(torch.uint8).fill_(_POISON[tensor.dtype] & 0xFF) if tensor.dtype is torch.bool else tensor.fill_(
            _POISON[tensor.dtype]
        )


def copy_back(value: torch.Tensor, changed: torch.Tensor) -> None:
    """Write what a launcher left in its copy of a tensor; of expanded dimensions, which are one memory, once."""
    once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in value.stride())
    value[once].copy_(changed[once])


def far_apart(rows: torch.Tensor, stride: int) -> torch.Tensor:
    """The same rows, ``stride`` elements apart, over memory that is reserved and never touched between them.

    Args:
        rows: (M, ...), any dtype; a row is everything behind the first dimension, and comes out contiguous.
        stride: elements from one row to the next, so that an offset may pass 2^31.

    Raises:
        OSError: the system will not reserve that much address space.
    """
    whole = rows.contiguous()
    elements = (len(whole) - 1) * stride + whole[0].numel()
    # Shared, since a host may hold little private memory; reserved pages that nobody touches cost nothing.
    flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    reserved = mmap.mmap(-1, elements * whole.element_size(), flags=flags)
    far = torch.frombuffer(reserved, dtype=whole.dtype).as_strided(whole.shape, (stride, *whole.stride()[1:]))
    far.copy_(whole)
    return far


def _guarded(size: int, device: torch.device) -> tuple[torch.Tensor, int]:
    raw = torch.empty(size + 2 * GUARD_BYTES + ALIGNMENT_BYTES, dtype=torch.uint8, device=device)
    start = GUARD_BYTES + (-(raw.data_ptr() + GUARD_BYTES)) % ALIGNMENT_BYTES
    return raw, start


def _view_of(raw: torch.Tensor, start: int, like: torch.Tensor) -> torch.Tensor:
    """The tensor that lies in ``raw`` from byte ``start`` as ``like`` lies in its storage."""
    offset = start // like.element_size() + like.storage_offset()
    empty = torch.empty(0, dtype=like.dtype, device=like.device)
    return empty.set_(raw.untyped_storage(), offset, like.size(), like.stride())


def _elements(flat: np.ndarray[Any, Any], tensor: torch.Tensor, shift: int = 0) -> np.ndarray[Any, Any]:
    """A per-element map of a storage, seen in the shape of a tensor over that storage."""
    if tensor.numel() == 0:
        return np.zeros(tuple(tensor.shape), dtype=flat.dtype)
    strides = tuple(step * flat.itemsize for step in tensor.stride())
    start = tensor.storage_offset() + shift
    return np.lib.stride_tricks.as_strided(flat[start:], tuple(tensor.shape), strides)


def _bytes_of(row: torch.Tensor) -> np.ndarray[Any, Any]:
    return row.reshape(-1).view(torch.uint8).numpy()
