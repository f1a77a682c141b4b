"""Deterministic costs of a call, measured inside the process that runs it.

``CostMeter`` watches every tensor operation that a block of code dispatches and
says what it cost: FLOPs, bytes, saved activations, number of operations.  None
of it depends on the clock, the machine or what else runs, so the same call
gives the same ``Costs`` to the byte, and a target on them is part of
correctness.

What makes it so: the garbage collector is off while the meter is on (cycles are
freed at a moment that depends on the rest of the process); storages are
followed by weak references, which fire exactly when torch frees them; views are
told from copies by their storage; the meter sees only the thread that entered
it; a compiled function runs eagerly.

The meter lives in the learner's process.  It is a measure of honest code, not a
fence: work done in numpy, in plain Python numbers or in another thread is not
seen.  Targets that count FLOPs therefore carry a floor as well.
"""

from __future__ import annotations

import grader.meter.child  # noqa: F401  (before torch.utils.flop_counter, which imports triton)

# isort: split

import gc
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import BuiltinFunctionType, FunctionType, ModuleType, TracebackType
from typing import Any, Self, TypeVar

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from grader.meter.flops import is_contraction, operation_flops, tensors_in

T = TypeVar("T")

_HELD_OBJECTS_LIMIT = 1_000_000

# Bookkeeping on a tensor that is there already: no work.
_BOOKKEEPING = frozenset({"aten::lift_fresh", "aten::detach_", "aten::set_", "aten::requires_grad_"})


class Costs(msgspec.Struct, frozen=True):
    """What a block of code cost.  Every field is a plain count.

    Attributes:
        flops: floating-point operations, element by element ones included.
        contraction_flops: the part of ``flops`` in matrix products, convolutions and attention.
        allocated_bytes: bytes of storage newly made; views make none.
        peak_bytes: the most bytes of such storage alive at once.
        saved_bytes: bytes of storage kept for the backward pass, each storage once, weights left out.
        operations: operations that computed, made or copied something; views are not counted.
        largest_numel: elements of the largest tensor computed from data; views and
            tensors computed from weights alone are left out.
        held_bytes: bytes that the object whose method ran holds on to afterwards, 0 for a function.
    """

    flops: int = 0
    contraction_flops: int = 0
    allocated_bytes: int = 0
    peak_bytes: int = 0
    saved_bytes: int = 0
    operations: int = 0
    largest_numel: int = 0
    held_bytes: int = 0


class _Storage:
    """What the meter knows of one storage while it lives."""

    __slots__ = ("made_here", "nbytes", "ref", "saved", "weight")

    def __init__(self, nbytes: int, made_here: bool, weight: bool) -> None:
        self.nbytes = nbytes
        self.made_here = made_here
        self.weight = weight
        self.saved = False
        self.ref: weakref.ref[Any] | None = None


class CostMeter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context manager that measures the tensor work of its block; read ``costs`` afterwards.

    A block is one measurement: entering the same meter again starts from zero.
    Blocks of one meter do not nest, and the meter sees only its own thread.

    Args:
        weights: tensors that count as weights besides every ``nn.Parameter`` (a module's buffers, say).
        saved: count ``saved_bytes``.  ``torch.func.grad`` and its kin raise RuntimeError inside
            a block that does, so it is for targets that need it.
    """

    supports_higher_order_operators = True

    def __init__(self, weights: Iterable[Tensor] = (), saved: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._weights = tuple(weights)
        self._count_saved = saved
        self._exit = ExitStack()
        self._reset()

    def _reset(self) -> None:
        self._flops = self._contraction_flops = 0
        self._allocated = self._live = self._peak = self._saved = 0
        self._operations = self._largest = 0
        self._storages: dict[int, _Storage] = {}

    @property
    def costs(self) -> Costs:
        """The counts of the block, or of the part of it that has run."""
        return Costs(
            flops=self._flops,
            contraction_flops=self._contraction_flops,
            allocated_bytes=self._allocated,
            peak_bytes=self._peak,
            saved_bytes=self._saved,
            operations=self._operations,
            largest_numel=self._largest,
        )

    def __enter__(self) -> Self:
        self._reset()
        for weight in self._weights:
            self._know(weight, weight=True)
        if gc.isenabled():
            gc.disable()
            self._exit.callback(gc.enable)
        if "torch._dynamo" in sys.modules:
            # A compiled kernel is one call that no dispatch mode sees into.
            self._exit.enter_context(torch.compiler.set_stance("force_eager"))
        if self._count_saved:
            self._exit.enter_context(torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._exit.close()
        # What the block returned dies later, and must no longer change this meter.
        self._storages = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            return self._run_higher_order(func, args, kwargs)
        if torch.is_inference_mode_enabled() and func._can_decompose():
            # Without autograd, composite operations (linear, matmul) arrive whole.
            with self._again():
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        # torch.tensor and torch.from_numpy hand their new storage to lift_fresh, its first sight.
        fresh = func._schema.name == "aten::lift_fresh"
        inputs = [self._know(tensor, made_here=fresh) for tensor in tensors_in(args, kwargs)]
        out = func(*args, **kwargs)
        self._count(func, args, kwargs, out, inputs)
        return out

    @contextmanager
    def _again(self) -> Iterator[None]:
        """This mode switched on inside its own handler, without starting a new measurement."""
        TorchDispatchMode.__enter__(self)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            TorchDispatchMode.__exit__(self, None, None, None)  # type: ignore[no-untyped-call]

    def _run_higher_order(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operation that takes functions (flex attention, cond): counted whole, by torch's formula if it has one."""
        inputs = [self._know(tensor) for tensor in tensors_in(args, kwargs)]
        out = func(*args, **kwargs)
        if func in flop_registry:
            count = int(flop_registry[func](*args, **kwargs, out_val=out))
            self._flops += count
            self._contraction_flops += count
        self._operations += 1
        self._note_results(out, inputs)
        return out

    def _count(self, func: Any, args: Any, kwargs: Any, out: Any, inputs: list[_Storage | None]) -> None:
        mutates = func._schema.is_mutable
        results = list(tensors_in(out))
        view = not mutates and bool(results) and all(self._storage_of(tensor) in inputs for tensor in results)
        if mutates:
            self._note_mutation(args, kwargs, inputs)
        if view or func._schema.name in _BOOKKEEPING or torch.Tag.inplace_view in func.tags:
            return
        flops = operation_flops(func, args, kwargs, out)
        self._flops += flops
        if is_contraction(func):
            self._contraction_flops += flops
        self._operations += 1
        self._note_results(out, inputs)

    def _note_results(self, out: Any, inputs: list[_Storage | None]) -> None:
        from_weights = bool(inputs) and all(entry is not None and entry.weight for entry in inputs)
        for tensor in tensors_in(out):
            entry = self._know(tensor, made_here=True, weight=from_weights)
            if entry is None or not (entry.weight and from_weights):
                self._largest = max(self._largest, tensor.numel())

    def _note_mutation(self, args: Any, kwargs: Any, inputs: list[_Storage | None]) -> None:
        """A buffer that data was written into is data, and may have been resized."""
        all_weights = all(entry is not None and entry.weight for entry in inputs)
        for tensor in tensors_in(args, kwargs):
            entry = self._know(tensor)
            if entry is None:
                continue
            if not all_weights and not isinstance(tensor, nn.Parameter):
                entry.weight = False
            grown = _nbytes(tensor) - entry.nbytes
            if grown:
                entry.nbytes += grown
                if grown > 0:
                    self._allocated += grown
                if entry.made_here:
                    self._live += grown
                    self._peak = max(self._peak, self._live)

    def _storage_of(self, tensor: Tensor) -> _Storage | None:
        key = _key(tensor)
        return None if key is None else self._storages.get(key)

    def _know(self, tensor: Tensor, made_here: bool = False, weight: bool = False) -> _Storage | None:
        """The entry of a tensor's storage, made at first sight; None for tensors that have no storage (sparse ones)."""
        key = _key(tensor)
        if key is None:
            return None
        entry = self._storages.get(key)
        if entry is not None:
            return entry
        storage = tensor.untyped_storage()
        entry = _Storage(storage.nbytes(), made_here, weight or isinstance(tensor, nn.Parameter))
        entry.ref = weakref.ref(storage, partial(self._forget, key, entry))
        self._storages[key] = entry
        if made_here:
            self._allocated += entry.nbytes
            self._live += entry.nbytes
            self._peak = max(self._peak, self._live)
        return entry

    def _forget(self, key: int, entry: _Storage, _dead: object) -> None:
        if self._storages.get(key) is entry:
            del self._storages[key]
            if entry.made_here:
                self._live -= entry.nbytes

    def _pack(self, tensor: Tensor) -> Tensor:
        entry = self._know(tensor)
        if entry is not None and not entry.weight and not entry.saved:
            entry.saved = True
            self._saved += entry.nbytes
        return tensor


def measure(
    call: Callable[[], T],
    weights: Iterable[Tensor] = (),
    saved: bool = True,
    warm_up: Callable[[], object] | None = None,
) -> tuple[T, Costs]:
    """Run ``call`` under a meter.

    Args:
        call: the work, without arguments.
        weights: tensors that count as weights besides every ``nn.Parameter``.
        saved: count ``saved_bytes`` (see ``CostMeter``).
        warm_up: run first and not counted, so that tables a module keeps from one call to the next are there.

    Returns:
        What the call returned, and its costs.
    """
    if warm_up is not None:
        warm_up()
    with CostMeter(weights, saved) as meter:
        result = call()
    return result, meter.costs


def metered(call: partial[Any], session: Any) -> tuple[Any, bytes]:
    """Run a host's call under a meter (see ``grader.meter.child``).

    Args:
        call: the learner's function with its arguments.
        session: the host's session; its ``meter_options`` are ``saved`` to count ``saved_bytes`` as well.

    Returns:
        What the call returned, and its ``Costs`` as msgpack.
    """
    result, costs = measure_owned(call, saved=session.meter_options == "saved")
    return result, msgspec.msgpack.encode(costs)


def measure_owned(call: partial[T], saved: bool) -> tuple[T, Costs]:
    """Run a function, a method or an object under a meter, which knows an object's weights and tells what it holds.

    Args:
        call: what to run, with its arguments.
        saved: count ``saved_bytes`` (see ``CostMeter``).

    Returns:
        What the call returned, and its costs.
    """
    owner = getattr(call.func, "__self__", call.func)
    weights: list[Tensor] = []
    if isinstance(owner, nn.Module):
        weights = [*nn.Module.parameters(owner), *nn.Module.buffers(owner)]
    result, costs = measure(call, weights, saved)
    if not isinstance(owner, (FunctionType, type)):
        costs = msgspec.structs.replace(costs, held_bytes=held_bytes(owner))
    return result, costs


def held_bytes(owner: object) -> int:
    """Bytes that an object keeps alive: tensors' storages whole, arrays, byte strings, and 8 for a Python number.

    Containers themselves count nothing: their size is Python's affair and differs from one version to another.
    Modules, classes and functions' globals are not followed: they belong to the file, not to the object.
    """
    waiting: list[object] = [owner]
    seen: set[int] = set()
    total = 0
    while waiting and len(seen) < _HELD_OBJECTS_LIMIT:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, (ModuleType, type, BuiltinFunctionType)):
            continue
        seen.add(id(thing))
        if isinstance(thing, Tensor):
            key = _key(thing)
            if key is None:
                total += thing.numel() * thing.element_size()
            elif -key not in seen:  # ids and keys are both addresses; the sign keeps them apart
                seen.add(-key)
                total += _nbytes(thing)
            waiting.append(thing.grad if thing.is_leaf else None)
        elif isinstance(thing, np.ndarray):
            waiting.append(thing.base)
            total += thing.nbytes if thing.base is None else 0
        elif isinstance(thing, FunctionType):
            waiting += [*(thing.__closure__ or ()), *(thing.__defaults__ or ())]
        elif isinstance(thing, (bytes, bytearray)):
            total += len(thing)
        elif isinstance(thing, (int, float, complex)):
            total += 8
        else:
            waiting += gc.get_referents(thing)
    return total


def _unpack(tensor: Tensor) -> Tensor:
    return tensor


def _key(tensor: Tensor) -> int | None:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return None


def _nbytes(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().nbytes())
