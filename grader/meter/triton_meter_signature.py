"""How a launch is described for the compiler, from the arguments that were really passed."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from triton.runtime.interpreter import _unwrap_tensor
from triton.runtime.jit import JITCallable, KernelInterface, mangle_type
from triton.tools.tensor_descriptor import TensorDescriptor

from grader.meter.triton_records import ArgumentSignature, LaunchSignature

OPTION_NAMES = frozenset(
    [
        "num_warps",
        "num_stages",
        "num_ctas",
        "maxnreg",
        "ir_override",
        "debug",
        "sanitize_overflow",
        "enable_fp_fusion",
        "launch_cooperative_grid",
        "launch_pdl",
        "extern_libs",
        "warp_size",
    ]
)
_ALIGNMENT = 16


def signature_of(
    kernel: str, line: int, bound: dict[str, Any], constant: set[str], options: dict[str, Any]
) -> LaunchSignature:
    """The specialisation that a launch with these arguments asks for.

    Args:
        kernel: the function's name.
        line: the line of its ``def``.
        bound: every parameter with its value, in order.
        constant: the parameters annotated ``tl.constexpr``.
        options: ``num_warps`` and the like.
    """
    return LaunchSignature(
        kernel=kernel,
        line=line,
        arguments=tuple(
            _constant(name, value) if name in constant else _argument(name, value) for name, value in bound.items()
        ),
        num_warps=int(options.get("num_warps") or 4),
        num_stages=int(options.get("num_stages") or 3),
        num_ctas=int(options.get("num_ctas") or 1),
        maxnreg=options.get("maxnreg"),
    )


def _constant(name: str, value: Any) -> ArgumentSignature:
    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, tl.dtype):
        return ArgumentSignature(name, "dtype", value=str(value))
    if isinstance(value, (JITCallable, KernelInterface)):
        return ArgumentSignature(name, "function", value=str(value.__name__))
    if value is None or isinstance(value, (bool, int, float, str)):
        return ArgumentSignature(name, "constexpr", value=value)
    if isinstance(value, tuple):
        items = tuple(_constant(f"{name}[{place}]", item) for place, item in enumerate(value))
        return ArgumentSignature(name, "constant tuple", items=items, fields=_fields(value))
    return ArgumentSignature(name, "unsupported", type=type(value).__name__)


def _argument(name: str, value: Any) -> ArgumentSignature:
    if value is None:
        return ArgumentSignature(name, "none")
    if isinstance(value, tl.constexpr):
        return _constant(name, value)
    if isinstance(value, tuple):
        items = tuple(_argument(f"{name}[{place}]", item) for place, item in enumerate(value))
        return ArgumentSignature(name, "tuple", items=items, fields=_fields(value))
    if isinstance(value, TensorDescriptor):
        element = mangle_type(value.base)[1:]
        shape = ",".join(str(int(size)) for size in value.block_shape)
        return ArgumentSignature(name, "descriptor", type=f"tensordesc<{element}[{shape}]>")
    tensor = _unwrap_tensor(value)
    if isinstance(tensor, torch.Tensor):
        return ArgumentSignature(name, "tensor", type=mangle_type(value), aligned=value.data_ptr() % _ALIGNMENT == 0)
    if isinstance(value, bool):
        return ArgumentSignature(name, "bool", type="u1", value=value)
    if isinstance(value, int):
        # Only what specialises: whether it is 1, and whether 16 divides it.
        return ArgumentSignature(
            name, "int", type=mangle_type(value), value=1 if value == 1 else None, aligned=value % _ALIGNMENT == 0
        )
    if isinstance(value, float):
        return ArgumentSignature(name, "float", type="fp32")
    return ArgumentSignature(name, "unsupported", type=type(value).__name__)


def _fields(value: tuple[Any, ...]) -> tuple[str, ...]:
    """The names of a NamedTuple's items."""
    return tuple(getattr(value, "_fields", ()))
