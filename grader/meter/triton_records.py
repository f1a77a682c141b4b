"""What the kernel meter and the compile report say, as frozen data that can cross a process boundary."""

from __future__ import annotations

from enum import StrEnum

import msgspec

SECTOR_BYTES = 32
"""The unit in which a GPU's memory answers: touching one byte of it moves all of it."""


class Options(msgspec.Struct, frozen=True):
    """How a metered call is to be run.

    ``far`` puts the rows of these positional arguments so many elements apart; ``reverse`` runs the programs of every
    grid last to first, as a GPU may; ``names`` is what positional arguments are called in the report.
    """

    far: dict[int, int] = {}
    reverse: bool = False
    names: tuple[str, ...] = ()


class FaultKind(StrEnum):
    """What a metered call did that no correct kernel does."""

    OUT_OF_BOUNDS_LOAD = "out-of-bounds load"
    OUT_OF_BOUNDS_STORE = "out-of-bounds store"
    OFFSET_OVERFLOW = "32-bit offset overflow"
    UNWRITTEN = "unwritten output"
    WRITE_CONFLICT = "write conflict"
    READ_RACE = "read race"
    TORCH_OP = "torch arithmetic"
    HOST_WRITE = "memory changed outside a kernel"
    FOREIGN = "memory of unknown origin"
    NO_KERNEL = "result made without a kernel"


class Fault(msgspec.Struct, frozen=True):
    """One thing that went wrong, named so that a learner finds the line.

    ``argument`` is the kernel's parameter, ``tensor`` the launcher's argument, ``result``, ``result[1]`` or
    ``scratch``; ``offset`` counts elements from that tensor's first one; ``count`` is how many elements.
    """

    kind: FaultKind
    message: str
    kernel: str = ""
    line: int = 0
    argument: str = ""
    tensor: str = ""
    offset: int = 0
    count: int = 0


class Traffic(msgspec.Struct, frozen=True):
    """What one kernel moved through one of its arguments and one tensor passed there, all launches together.

    Bytes count each address once per access (a broadcast pointer is one address); ``unique_*`` counts each
    address once per call; sectors are the distinct 32-byte sectors of each access, summed.  Atomics count as
    a load and a store.
    """

    kernel: str
    argument: str
    tensor: str
    loaded_bytes: int = 0
    stored_bytes: int = 0
    unique_loaded_bytes: int = 0
    unique_stored_bytes: int = 0
    load_sectors: int = 0
    store_sectors: int = 0
    atomics: int = 0


class KernelCount(msgspec.Struct, frozen=True):
    """How often one kernel ran and what its ``tl.dot`` computed."""

    kernel: str
    launches: int
    programs: int
    dot_flops: int


class TorchOp(msgspec.Struct, frozen=True):
    """One torch operation of the launcher: its name, how often, the bytes it read and wrote."""

    name: str
    calls: int
    moved_bytes: int
    allowed: bool


class ArgumentSignature(msgspec.Struct, frozen=True):
    """One argument of a launch, as much of it as specialises the compiled code.

    ``kind``: ``tensor``, ``int``, ``float``, ``bool``, ``none``, ``constexpr``, ``dtype`` (a constexpr that is a
    Triton type), ``function`` (a constexpr that is a kernel function), ``descriptor``, ``tuple``, ``constant tuple`` or
    ``unsupported``.  ``aligned``: the address of a tensor, or the value of an int, is a multiple of 16.  ``items`` are
    a tuple's, ``fields`` their names in a NamedTuple.
    """

    name: str
    kind: str
    type: str = ""
    value: int | float | bool | str | None = None
    aligned: bool = False
    items: tuple[ArgumentSignature, ...] = ()
    fields: tuple[str, ...] = ()


class LaunchSignature(msgspec.Struct, frozen=True):
    """What a launch asks of the compiler; ``line`` is that of the kernel's ``def``."""

    kernel: str
    line: int
    arguments: tuple[ArgumentSignature, ...]
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None


class MeterReport(msgspec.Struct, frozen=True):
    """Everything one metered call did.  ``tier`` is ``interpreter`` or ``cuda`` (no counts there)."""

    kernels: tuple[KernelCount, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    torch_ops: tuple[TorchOp, ...] = ()
    faults: tuple[Fault, ...] = ()
    signatures: tuple[LaunchSignature, ...] = ()
    tier: str = "interpreter"

    @property
    def launches(self) -> int:
        """Kernel launches of the call."""
        return sum(count.launches for count in self.kernels)

    @property
    def programs(self) -> int:
        """Program instances of all launches."""
        return sum(count.programs for count in self.kernels)

    @property
    def dot_flops(self) -> int:
        """Floating-point operations of ``tl.dot``: 2 M N K each."""
        return sum(count.dot_flops for count in self.kernels)

    @property
    def torch_bytes(self) -> int:
        """Bytes that the launcher's own torch operations read and wrote."""
        return sum(op.moved_bytes for op in self.torch_ops)

    def loaded_bytes(self, *tensors: str) -> int:
        """Bytes loaded by kernels, from the named tensors or from all."""
        return sum(row.loaded_bytes for row in self._rows(tensors))

    def stored_bytes(self, *tensors: str) -> int:
        """Bytes stored by kernels, to the named tensors or to all."""
        return sum(row.stored_bytes for row in self._rows(tensors))

    def unique_bytes(self, *tensors: str) -> int:
        """Bytes of distinct addresses, loads and stores counted apart, per kernel."""
        return sum(row.unique_loaded_bytes + row.unique_stored_bytes for row in self._rows(tensors))

    def moved_bytes(self, *, without: tuple[str, ...] = ()) -> int:
        """All bytes of the call: kernels' loads and stores, and the launcher's torch copies.

        ``without`` names tensors whose rereads are not counted (they come from the L2 cache on a GPU): each
        counts with its unique bytes.
        """
        total = self.torch_bytes
        for row in self.traffic:
            if row.tensor in without:
                total += row.unique_loaded_bytes + row.unique_stored_bytes
            else:
                total += row.loaded_bytes + row.stored_bytes
        return total

    def sector_ratio(self) -> float:
        """Bytes of the sectors touched over the bytes asked for; 1.0 is perfectly coalesced."""
        sectors = sum(row.load_sectors + row.store_sectors for row in self.traffic)
        moved = sum(row.loaded_bytes + row.stored_bytes for row in self.traffic)
        return sectors * SECTOR_BYTES / moved if moved else 1.0

    def _rows(self, tensors: tuple[str, ...]) -> tuple[Traffic, ...]:
        return tuple(row for row in self.traffic if not tensors or row.tensor in tensors)
