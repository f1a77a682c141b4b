"""Short cuts through Triton's front end, for the time of a metered call.  None of them changes a result.

A program of a few dozen operations spends nearly all its time in the front end's bookkeeping: types compared by name,
shapes unwrapped and wrapped, a block type made anew for every value.  What is asked over and over is remembered here.
"""

from __future__ import annotations

from collections.abc import Callable
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
_patches: list[tuple[Any, str, Any, Any]] = []


def patch_language(replace: _Replace) -> None:
    """Have the language's functions run on the interpreter; what is to be replaced is found out once."""
    if not _patches:
        plain, ti._patch_attr = ti._patch_attr, _patch_attr
        try:
            scope = ti._patch_lang(_Language)
        finally:
            ti._patch_attr = plain
        for owner, name, before in scope._changes:
            _patches.append((owner, name, before, vars(owner)[name]))
        scope.restore()
    for owner, name, _, after in _patches:
        replace(owner, name, after)


def patch_bookkeeping(replace: _Replace) -> None:
    """Put the short cuts in place."""
    replace(core, "_unwrap_if_constexpr", _unwrap(core._unwrap_if_constexpr))
    replace(core.tensor, "__init__", _tensor_init)
    replace(core.block_type, "with_element_ty", _with_element_type)
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


def _with_element_type(self: Any, scalar: Any) -> Any:
    """The block type of the same shape over another scalar type, remembered by the type it comes from."""
    known = self.__dict__.setdefault("_meter_types", {})
    # The remembered type holds its scalar type, so the scalar's id stays its own.
    made = known.get(id(scalar))
    if made is None:
        made = known[id(scalar)] = core.block_type(scalar, self.shape)
    return made


def _broadcast(plain: Callable[..., Any]) -> Callable[..., Any]:
    def broadcast_impl_value(self: Any, lhs: Any, rhs: Any) -> Any:
        left, right = lhs.type, rhs.type
        if left is right or (left.is_block() and right.is_block() and left.shape.values == right.shape.values):
            return lhs, rhs
        return plain(self, lhs, rhs)

    return broadcast_impl_value


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
