"""Between torch values and wire values, on both sides of the channel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from grader.host.wire import (
    BigInt,
    Foreign,
    GeneratorData,
    Items,
    Named,
    Pairs,
    ProtocolError,
    Ref,
    TensorData,
    Value,
    bounded,
)

_DTYPE_NAMES = (
    *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _DTYPE_NAMES}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_INT64 = range(-(1 << 63), 1 << 63)
_DEPTH_LIMIT = 20
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)


def tensor_to_wire(tensor: torch.Tensor, slot: int = -1, keep_strides: bool = False) -> TensorData:
    """A tensor's bytes.  With `keep_strides`, a non-contiguous layout is rebuilt on the other side."""
    detached = tensor.detach()
    device, shape = tensor.device.type, list(tensor.shape)
    name = _NAMES[tensor.dtype]
    if device == "meta":
        return TensorData(name, shape, b"", device="meta", slot=slot)
    strides: list[int] | None = None
    if keep_strides and not detached.is_contiguous() and detached.numel():
        strides = list(detached.stride())
        span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        detached = detached.as_strided((span,), (1,))
    flat = detached.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    if flat.numel() == 1 and flat.stride(0) != 1:  # one element counts as contiguous whatever its stride
        flat = flat.clone(memory_format=torch.contiguous_format).as_strided((1,), (1,))
    data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return TensorData(name, shape, data, strides, device, slot)


def tensor_from_wire(wire: TensorData) -> torch.Tensor:
    """The tensor, a leaf without gradient.  Raises ProtocolError when the bytes do not fit the shape."""
    dtype = DTYPES.get(wire.dtype)
    if dtype is None or any(size < 0 for size in wire.shape) or len(wire.shape) > 64:
        raise ProtocolError("a tensor of an unknown dtype or shape")
    if wire.device == "meta":
        return torch.empty(wire.shape, dtype=dtype, device="meta")
    if wire.strides is not None:
        if len(wire.strides) != len(wire.shape) or any(stride < 0 for stride in wire.strides):
            raise ProtocolError("strides do not fit the shape")
        count = 1 + sum((size - 1) * stride for size, stride in zip(wire.shape, wire.strides, strict=True))
    else:
        count = math.prod(wire.shape)
    if count * dtype.itemsize != len(wire.data):
        raise ProtocolError("a tensor's bytes do not fit its shape")
    if count == 0:
        tensor = torch.empty(wire.shape, dtype=dtype)
    else:
        tensor = torch.frombuffer(bytearray(wire.data), dtype=torch.uint8).view(dtype)
        tensor = tensor.as_strided(wire.shape, wire.strides) if wire.strides else tensor.reshape(wire.shape)
    return tensor if wire.device == "cpu" else tensor.to(wire.device)


class Encoder:
    """Turns values into wire values.

    `slot_of` gives a tensor's gradient slot; `refer` gives a `Ref` for an object that stays here
    (None on the judge's side, where every object is foreign).
    """

    def __init__(
        self,
        slot_of: Callable[[torch.Tensor], int] = lambda tensor: -1,
        refer: Callable[[Any], Ref | None] = lambda value: None,
        keep_strides: bool = False,
        generator_slot: Callable[[torch.Generator], int] = lambda generator: -1,
    ) -> None:
        self._slot_of = slot_of
        self._refer = refer
        self._keep_strides = keep_strides
        self._generator_slot = generator_slot

    def __call__(self, value: Any, depth: int = 0) -> Value:
        """The wire value; what has no wire form becomes `Foreign`."""
        kind = type(value)
        if value is None or kind in (bool, float, str):
            return value  # type: ignore[no-any-return]
        if kind is int:
            return value if value in _INT64 else BigInt(hex(value))
        if kind in _PLAIN_TENSORS or kind is torch.nn.Buffer:
            return self._tensor(value)
        if depth > _DEPTH_LIMIT:
            return Foreign("value nested too deep")
        if kind is list:
            return Items("list", [self(item, depth + 1) for item in value])
        if issubclass(kind, tuple) and kind is not torch.Size:  # a NamedTuple is the tuple it holds
            return Items("tuple", [self(item, depth + 1) for item in tuple.__iter__(value)])
        if kind is torch.Size:
            return Items("tuple", list(value))
        if issubclass(kind, dict):
            return Pairs([(self(key, depth + 1), self(item, depth + 1)) for key, item in dict.items(value)])
        return self._other(value, kind, depth)

    def _tensor(self, tensor: torch.Tensor) -> Value:
        if tensor.layout != torch.strided or tensor.dtype not in _NAMES or tensor.is_nested:
            return Foreign(f"{tensor.layout} tensor of {tensor.dtype}".replace("torch.", ""))
        return tensor_to_wire(tensor, self._slot_of(tensor), self._keep_strides)

    def _other(self, value: Any, kind: type, depth: int) -> Value:
        if kind is torch.dtype:
            return Named("dtype", _NAMES.get(value, str(value)))
        if kind is torch.device:
            return Named("device", str(value))
        if kind is torch.Generator:
            return GeneratorData(value.get_state().numpy().tobytes(), self._generator_slot(value))
        # A numpy scalar is a right answer where a number is asked for; an int or float subclass is read by
        # its base class, never by its own methods.
        if issubclass(kind, np.bool_):
            return bool(value)
        if issubclass(kind, np.integer):
            return self(int(value), depth)
        if issubclass(kind, np.floating):
            return float(value)
        if issubclass(kind, float):
            return float.__add__(value, 0.0)
        if issubclass(kind, int):
            return self(int.__add__(value, 0), depth)
        if issubclass(kind, str):
            return str.__add__(value, "")
        if (ref := self._refer(value)) is not None:
            return ref
        return Foreign(type_name(kind))


def type_name(kind: type) -> str:
    """A type's name with its module, read without running a metaclass's code, fit to print."""
    try:
        module, name = type.__getattribute__(kind, "__module__"), type.__getattribute__(kind, "__qualname__")
    except AttributeError:
        return "object"
    if not isinstance(module, str) or not isinstance(name, str) or module in ("builtins", "__main__"):
        return bounded(str(name), 100)
    return bounded(f"{module}.{name}", 100)


def shape_text(value: Any, depth: int = 0) -> str:
    """A value as a reader wants it in a call: tensors by shape and dtype, small things in full."""
    if isinstance(value, torch.Tensor):
        sizes = ", ".join(map(str, value.shape)) + ("," if value.dim() == 1 else "")
        return f"({sizes}) {_NAMES.get(value.dtype, value.dtype)}"
    if isinstance(value, tuple | list) and depth < 3:
        inside = ", ".join(shape_text(item, depth + 1) for item in value[:6]) + (", …" if len(value) > 6 else "")
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    text = bounded(repr(value), 200)
    return text if len(text) <= 60 else text[:57] + "…"
