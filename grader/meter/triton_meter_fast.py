"""Short cuts through Triton's front end, for the time of a metered call.  None of them changes a result.

A program of a few dozen operations spends nearly all its time in the front end's bookkeeping: types compared by name,
shapes unwrapped and wrapped, a block type made anew for every value.  What is asked over and over is remembered here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import triton.language as tl
from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as ti

_Replace = Callable[[Any, str, Any], None]
_UNCOMMON = (list, tuple, core.tuple, core.constexpr)


class _Language:
    """Stands for a kernel whose globals see all of the language, so that one patch covers every kernel."""


_Language.__globals__ = {"tl": tl, "core": core}  # type: ignore[attr-defined]
_INHERITED = object()
_block_types: dict[tuple[int, tuple[Any, ...]], dict[str, Any]] = {}
"""What is known of the block types of numbers, by the id of the number's type and the sizes."""
_patches: list[tuple[Any, str, Any, Any]] = []
"""Owner, name, what stands there, what is to stand there while a call is metered."""


@contextmanager
def patched_language() -> Iterator[None]:
    """Have the language's functions run on the interpreter; what is to be replaced is found out once."""
    if not _patches:
        plain, ti._patch_attr = ti._patch_attr, _patch_attr
        try:
            scope = ti._patch_lang(_Language)
        finally:
            ti._patch_attr = plain
        # The interpreter changes some twice.
        changes = {(owner, name): vars(owner)[name] for owner, name, _ in scope._changes}
        scope.restore()
        _patches.extend((*place, vars(place[0]).get(place[1], _INHERITED), after) for place, after in changes.items())
    try:
        for owner, name, _, after in _patches:
            setattr(owner, name, after)
        yield
    finally:
        for owner, name, before, _ in _patches:
            if before is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def patch_bookkeeping(replace: _Replace) -> None:
    """Put the short cuts in place."""
    replace(core, "_unwrap_if_constexpr", _unwrap(core._unwrap_if_constexpr))
    replace(core.tensor, "__init__", _tensor_init)
    replace(core.block_type, "__init__", _block_type_init(core.block_type.__init__))
    replace(core.block_type, "with_element_ty", _with_element_type)
    operands = TritonSemantic.binary_op_type_checking_impl
    replace(TritonSemantic, "binary_op_type_checking_impl", _operands(operands))
    replace(TritonSemantic, "broadcast_impl_value", _broadcast(TritonSemantic.broadcast_impl_value))
    replace(TritonSemantic, "cast", _cast(TritonSemantic.cast))
    replace(TritonSemantic, "arange", _arange(TritonSemantic.arange))


def _patch_attr(owner: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
    """As the interpreter does it, past the wrapper that asks whether there is a semantic."""
    plain = getattr(member, "__wrapped__", member)
    semantic = ti.interpreter_semantic

    def interpreted(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = semantic
        return plain(*args, **kwargs)

    scope.set_attr(owner, name, interpreted)


def _unwrap(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def unwrap_if_constexpr(value: Any) -> Any:
        if type(value) is core.constexpr:
            return value.value
        return plain(value) if isinstance(value, _UNCOMMON) else value

    return unwrap_if_constexpr


def _tensor_init(self: Any, handle: Any, type: Any) -> None:
    """A tensor; its shape and size as constexpr are those of its type, made once for each type."""
    self.handle = handle
    self.type = type
    self.dtype = type.scalar
    known = vars(type).get("_meter_shape")
    if known is None:
        sizes = tuple(type.shape) if type.is_block() else ()
        count = 1
        for size in sizes:
            count *= size
        known = core.tuple([core.constexpr(size) for size in sizes]), core.constexpr(count)
        type._meter_shape = known
    self.shape, self.numel = known


def _block_type_init(plain: Callable[..., None]) -> Callable[..., None]:
    """A block type like one made before has all that was found out about that one.

    Blocks of pointers are remembered for one metered call: every launch makes pointer types of its own.
    """
    of_pointers: dict[tuple[int, tuple[Any, ...]], dict[str, Any]] = {}

    def init(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple([size.value if type(size) is core.constexpr else size for size in shape])
        known = of_pointers if isinstance(element_ty, core.pointer_type) else _block_types
        # What is remembered holds its element type, so the element type's id stays its own.
        key = id(element_ty), sizes
        attributes = known.get(key)
        if attributes is None:
            plain(self, element_ty, list(sizes))
            self._meter_types = {}
            known[key] = vars(self)
        else:
            vars(self).update(attributes)

    return init


def _with_element_type(self: Any, scalar: Any) -> Any:
    """The block type of the same shape over another scalar type, remembered by the type it comes from."""
    if isinstance(scalar, core.pointer_type):
        return core.block_type(scalar, self.shape)
    known = self.__dict__.setdefault("_meter_types", {})
    # The remembered type holds its scalar type, so the scalar's id stays its own.
    made = known.get(id(scalar))
    if made is None:
        made = known[id(scalar)] = core.block_type(scalar, self.shape)
    return made


def _operands(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Two operands of one type, or a pointer and an integer, need no conversion: only one shape."""

    def binary_op_type_checking_impl(
        self: Any,
        lhs: Any,
        rhs: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> Any:
        if type(lhs) is core.tensor and type(rhs) is core.tensor:
            left, right = lhs.dtype, rhs.dtype
            if left.is_ptr():
                if allow_lhs_ptr and right.is_int():
                    return self.broadcast_impl_value(lhs, rhs)
            elif left is right and not div_or_mod:
                return self.broadcast_impl_value(lhs, rhs)
        return plain(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    return binary_op_type_checking_impl


def _broadcast(plain: Callable[..., Any]) -> Callable[..., Any]:
    def broadcast_impl_value(self: Any, lhs: Any, rhs: Any) -> Any:
        left, right = lhs.type, rhs.type
        if left is right:
            return lhs, rhs
        if left.is_block():
            if not right.is_block():
                return lhs, _splat(self, rhs, left)
            sizes, others = left.shape.values, right.shape.values
            if sizes == others:
                return lhs, rhs
            if len(sizes) == len(others) and all(
                a == b or a == 1 or b == 1 for a, b in zip(sizes, others, strict=True)
            ):
                joined = [b if a == 1 else a for a, b in zip(sizes, others, strict=True)]
                return _stretched(self, lhs, joined), _stretched(self, rhs, joined)
        elif right.is_block():
            return _splat(self, lhs, right), rhs
        return plain(self, lhs, rhs)

    return broadcast_impl_value


def _stretched(semantic: Any, value: Any, sizes: list[int]) -> Any:
    """A block of as many dimensions as `sizes`, those of size 1 stretched."""
    if value.type.shape.values == sizes:
        return value
    kind = core.block_type(value.type.scalar, sizes)
    return core.tensor(semantic.builder.create_broadcast(value.handle, sizes), kind)


def _splat(semantic: Any, value: Any, like: Any) -> Any:
    """A scalar as a block of a type's shape; the block's type is remembered, and not built again to be asked for."""
    kind = like.with_element_ty(value.type.scalar)
    return core.tensor(semantic.builder.create_splat(kind, value.handle), kind)


def _cast(plain: Callable[..., Any]) -> Callable[..., Any]:
    def cast(self: Any, value: Any, kind: Any, rounding: Any = None) -> Any:
        if rounding is None and value.dtype is kind.scalar:
            return value
        return plain(self, value, kind, rounding)

    return cast


def _arange(plain: Callable[..., Any]) -> Callable[..., Any]:
    """The same range in every program is one value, so that all types made from it are made once."""
    known: dict[tuple[Any, Any], Any] = {}

    def arange(self: Any, start: Any, end: Any, *, ret_ty: Any = None) -> Any:
        if ret_ty is not None or type(start) is not int or type(end) is not int:
            return plain(self, start, end, ret_ty=ret_ty)
        made = known.get((start, end))
        if made is None:
            made = known[start, end] = plain(self, start, end)
        return core.tensor(ti.TensorHandle(made.handle.data, made.handle.dtype), made.type)

    return arange
