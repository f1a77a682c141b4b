"""Triton's interpreter builder with a ledger behind every memory operation, and with bfloat16 that is right.

The interpreter of Triton 3.9 keeps bfloat16 as bare 16-bit integers and computes on those.  Here bfloat16 operands
are widened to float32, the operation runs, and the result is rounded to nearest even, as the hardware does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as ti
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from grader.meter.triton_meter_ledger import ATOMIC, LOAD, STORE, Ledger

ORIGIN = "origin"

_UNDEFINED = {
    # A lane that is masked off and has no `other` holds anything.  Large values of both signs spoil a sum, a
    # maximum and a minimum alike, which NaN does not: tl.max skips it.
    np.dtype(np.float16): (6.0e4, -3.0e4),
    np.dtype(np.float32): (1.0e30, -5.0e29),
    np.dtype(np.float64): (1.0e30, -5.0e29),
    np.dtype(np.int8): (113, -77),
    np.dtype(np.uint8): (0xA5, 0x5A),
    np.dtype(np.int16): (0x5A5A, -0x2A2A),
    np.dtype(np.uint16): (0xA5A5, 0x5A5A),
    np.dtype(np.int32): (0x5A5A5A5A, -0x2A2A2A2A),
    np.dtype(np.uint32): (0xA5A5A5A5, 0x5A5A5A5A),
    np.dtype(np.int64): (0x5A5A5A5A5A5A, -0x2A2A2A2A2A2A),
    np.dtype(np.uint64): (0x5A5A5A5A5A5A, 0x2A2A2A2A2A2A),
}
_UNDEFINED_BFLOAT16 = (0x7149, 0xF0C9)  # 1e30 and -5e29
_BITWISE = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)


def is_bfloat16(handle: TensorHandle) -> bool:
    """Whether a value is bfloat16, which the interpreter keeps as bits."""
    return bool(handle.data.dtype == np.uint16 and handle.dtype.scalar == tl.bfloat16)


def widen(handle: TensorHandle) -> TensorHandle:
    """A bfloat16 value as float32, exactly; anything else unchanged."""
    if not is_bfloat16(handle):
        return handle
    return TensorHandle((handle.data.astype(np.uint32) << np.uint32(16)).view(np.float32), tl.float32)


def narrow(values: np.ndarray[Any, Any]) -> TensorHandle:
    """float32 values rounded to the nearest bfloat16, ties to even; NaN stays NaN."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return TensorHandle(np.where(np.isnan(values), quiet, rounded).astype(np.uint16), tl.bfloat16)


def _carries_origin(name: str) -> Any:
    """A builder method that moves pointers about without changing which argument they came from."""
    plain = getattr(InterpreterBuilder, name)

    def method(self: Any, arg: TensorHandle, *rest: Any) -> TensorHandle:
        made = plain(self, arg, *rest)
        if ORIGIN in arg.attr:
            made.attr[ORIGIN] = arg.attr[ORIGIN]
        return made

    return method


class MeteringBuilder(InterpreterBuilder):  # type: ignore[misc]
    """The builder a metered kernel runs on."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        # The overflow check doubles every integer operation and would also fire on lanes that are masked off.
        self.options: Any = replace(self.options, sanitize_overflow=False)
        self.ledger = ledger

    # -- pointers keep their origin ------------------------------------------------------------------------------

    create_broadcast = _carries_origin("create_broadcast")
    create_reshape = _carries_origin("create_reshape")
    create_trans = _carries_origin("create_trans")
    create_bitcast = _carries_origin("create_bitcast")
    create_unsplat = _carries_origin("create_unsplat")
    create_addptr = _carries_origin("create_addptr")

    def create_expand_dims(self, arg: TensorHandle, axis: int) -> TensorHandle:
        """The same numbers with one more dimension, of size 1."""
        sizes = arg.data.shape
        made = TensorHandle(arg.data.reshape((*sizes[:axis], 1, *sizes[axis:])), arg.dtype.scalar)
        if ORIGIN in arg.attr:
            made.attr[ORIGIN] = arg.attr[ORIGIN]
        return made

    def create_splat(self, ret_ty: Any, arg: TensorHandle) -> TensorHandle:
        """A scalar as a block; a comparison's result stays a mask."""
        data = arg.data.reshape(-1)[0]
        made = TensorHandle(np.full(ret_ty.shape, data, dtype=arg.data.dtype), arg.dtype.scalar)
        if ORIGIN in arg.attr:
            made.attr[ORIGIN] = arg.attr[ORIGIN]
        return made

    # -- memory --------------------------------------------------------------------------------------------------

    def create_masked_load(
        self, ptrs: TensorHandle, mask: TensorHandle, other: TensorHandle | None, cache_policy: Any, is_volatile: Any
    ) -> TensorHandle:
        """A load: the active lanes are booked, a lane without a value gets one that cannot pass for data."""
        element = ptrs.get_element_ty()
        kind = ti._get_np_dtype(element)
        addresses, active, lanes = _lanes(ptrs, mask)
        self.ledger.access(LOAD, ptrs.attr.get(ORIGIN), lanes, kind.itemsize)
        if other is not None:
            fill = np.ascontiguousarray(_of_shape(other.data, addresses.shape), dtype=kind)
        elif addresses.size == 1 or lanes.size == addresses.size:
            fill = np.zeros(addresses.shape, dtype=kind)  # `other=0` on one lane arrives as None
        else:
            fill = _undefined(addresses.shape, kind, element)
        return TensorHandle(ti._interpreter.load(addresses, active, fill, kind), element)

    def create_masked_store(
        self, ptrs: TensorHandle, value: TensorHandle, mask: TensorHandle, cache_policy: Any
    ) -> None:
        """A store of the active lanes."""
        kind = ti._get_np_dtype(ptrs.get_element_ty())
        addresses, active, lanes = _lanes(ptrs, mask)
        self.ledger.access(STORE, ptrs.attr.get(ORIGIN), lanes, kind.itemsize)
        data = np.ascontiguousarray(_of_shape(value.data, addresses.shape))
        if data.dtype.itemsize != kind.itemsize:
            data = data.astype(kind)
        ti._interpreter.store(addresses, data, active)

    def create_atomic_rmw(
        self, rmwOp: Any, ptr: TensorHandle, val: TensorHandle, mask: TensorHandle, sem: Any, scope: Any
    ) -> TensorHandle:
        """An atomic: booked as a load and a store."""
        kind = ti._get_np_dtype(ptr.get_element_ty())
        addresses, active, lanes = _lanes(ptr, mask)
        self.ledger.access(ATOMIC, ptr.attr.get(ORIGIN), lanes, kind.itemsize)
        if is_bfloat16(val):
            return self._atomic_bfloat16_add(addresses, active, val)
        pointers, flags = TensorHandle(addresses, ptr.dtype), TensorHandle(active, tl.int1)
        values = TensorHandle(np.ascontiguousarray(np.broadcast_to(val.data, addresses.shape)), val.dtype)
        return super().create_atomic_rmw(rmwOp, pointers, values, flags, sem, scope)

    def create_atomic_cas(self, ptr: TensorHandle, cmp: TensorHandle, val: TensorHandle, sem: Any, scope: Any) -> Any:
        """A compare-and-swap: booked as a load and a store."""
        kind = ti._get_np_dtype(ptr.get_element_ty())
        self.ledger.access(ATOMIC, ptr.attr.get(ORIGIN), np.ravel(ptr.data), kind.itemsize)
        return super().create_atomic_cas(ptr, cmp, val, sem, scope)

    def _atomic_bfloat16_add(
        self, addresses: np.ndarray[Any, Any], active: np.ndarray[Any, Any], val: TensorHandle
    ) -> TensorHandle:
        """bfloat16 has no native atomic in the interpreter: add lane by lane, in order."""
        old = np.zeros(addresses.shape, dtype=np.uint16)
        values = np.broadcast_to(val.data, addresses.shape)
        yes = np.ones(1, dtype=bool)
        for at in np.argwhere(active):
            lane = tuple(at)
            where = addresses[lane].reshape(1)
            before = ti._interpreter.load(where, yes, np.zeros(1, dtype=np.uint16), np.dtype(np.uint16))
            old[lane] = before[0]
            total = widen(TensorHandle(before, tl.bfloat16)).data
            total = total + widen(TensorHandle(values[lane].reshape(1), tl.bfloat16)).data
            ti._interpreter.store(where, narrow(total).data, yes)
        return TensorHandle(old, tl.bfloat16)

    # -- arithmetic ------------------------------------------------------------------------------------------------

    def create_dot(self, a: TensorHandle, b: TensorHandle, d: TensorHandle, *options: Any) -> TensorHandle:
        """A matrix product; 2 M N K operations, times the batch."""
        batch = int(np.prod(a.data.shape[:-2], dtype=np.int64))
        rows, inner = a.data.shape[-2:]
        self.ledger.dot(2 * batch * rows * inner * b.data.shape[-1])
        return super().create_dot(widen(a), widen(b), d, *options)

    def binary_op(self, lhs: TensorHandle, rhs: TensorHandle, op: Any) -> TensorHandle:
        """Any operation on two values; a comparison's result is a mask whatever was compared."""
        if op not in _BITWISE and (is_bfloat16(lhs) or is_bfloat16(rhs)):
            out = op(widen(lhs).data, widen(rhs).data)
            return TensorHandle(out, tl.int1) if out.dtype == np.bool_ else narrow(out)
        made = super().binary_op(lhs, rhs, op)
        if made.data.dtype == np.bool_:
            made.dtype = tl.int1
        return made

    def unary_op(self, arg: TensorHandle, op: Any) -> TensorHandle:
        """Any operation on one value."""
        if is_bfloat16(arg):
            return narrow(op(widen(arg).data))
        return super().unary_op(arg, op)

    def ternary_op(self, lhs: TensorHandle, rhs: TensorHandle, other: TensorHandle, op: Any) -> TensorHandle:
        """Any operation on three values; a selection moves bits and needs no rounding."""
        if op is np.where:
            condition = TensorHandle(lhs.data.astype(np.bool_), tl.int1)
            made = super().ternary_op(condition, rhs, other, op)
            if ORIGIN in rhs.attr and rhs.attr.get(ORIGIN) is other.attr.get(ORIGIN):
                made.attr[ORIGIN] = rhs.attr[ORIGIN]
            return made
        if any(map(is_bfloat16, (lhs, rhs, other))):
            return narrow(op(widen(lhs).data, widen(rhs).data, widen(other).data))
        return super().ternary_op(lhs, rhs, other, op)

    def create_fma(self, x: TensorHandle, y: TensorHandle, z: TensorHandle) -> TensorHandle:
        """x * y + z, rounded once."""
        if is_bfloat16(z):
            product = widen(x).data.astype(np.float64) * widen(y).data.astype(np.float64)
            return narrow((product + widen(z).data).astype(np.float32))
        return super().create_fma(x, y, z)

    def create_idiv(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        """Integer division towards zero, without leaving integers."""
        return TensorHandle((lhs.data - np.fmod(lhs.data, rhs.data)) // rhs.data, lhs.dtype.scalar)

    # -- casts -----------------------------------------------------------------------------------------------------

    def cast_impl(self, src: TensorHandle, dst_type: Any) -> TensorHandle:
        """A cast by value, bfloat16 included."""
        target = dst_type.scalar
        if is_bfloat16(src):
            if target == tl.bfloat16:
                return src
            return TensorHandle(widen(src).data.astype(ti._get_np_dtype(dst_type)), target)
        if target == tl.bfloat16:
            return narrow(src.data.astype(np.float32))
        return TensorHandle(src.data.astype(ti._get_np_dtype(dst_type)), target)

    def create_fp_to_fp(self, src: TensorHandle, dst_type: Any, rounding_mode: Any) -> TensorHandle:
        """A cast between floating types with a rounding mode; the custom 8-bit types keep the interpreter's own."""
        wide = {tl.bfloat16, tl.float16, tl.float32, tl.float64}
        to_zero = rounding_mode == ti._ir.ROUNDING_MODE.RTZ
        if src.dtype.scalar in wide and dst_type.scalar in wide and not to_zero:
            return self.cast_impl(src, dst_type)
        return super().create_fp_to_fp(src, dst_type, rounding_mode)


def _lanes(
    ptrs: TensorHandle, mask: TensorHandle
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Addresses, the mask as bool in the same shape, and the active addresses in a row."""
    addresses = np.ascontiguousarray(ptrs.data)
    flags = mask.data if mask.data.dtype == np.bool_ else mask.data.astype(np.bool_)
    active = np.ascontiguousarray(_of_shape(flags, addresses.shape))
    flat = addresses.ravel() if active.all() else addresses[active]
    return addresses, active, flat


def _of_shape(data: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return data if data.shape == shape else np.broadcast_to(data, shape)


def _undefined(shape: tuple[int, ...], kind: np.dtype[Any], element: Any) -> np.ndarray[Any, Any]:
    even, odd = _UNDEFINED_BFLOAT16 if element == tl.bfloat16 else _UNDEFINED.get(kind, (1, 0))
    flat = np.empty(int(np.prod(shape, dtype=np.int64)), dtype=kind)
    flat[0::2], flat[1::2] = even, odd
    return flat.reshape(shape)
