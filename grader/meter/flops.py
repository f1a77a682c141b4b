"""Floating-point operations of one dispatched tensor operation, by formula.

``torch.utils.flop_counter`` knows matrix products and convolutions.  It misses
the attention kernels of the CPU, refuses grouped heads, and calls everything
element by element free, so that a matrix product written as a multiplication
and a sum would cost nothing.  The formulas here count every operation whose
result is floating: what a person would count on paper, one per multiplication,
addition, comparison or function of a number.  Moving data costs no FLOPs (its
bytes are counted elsewhere), and integers and booleans, such as masks and
one-hot tables, cost none either.
"""

from __future__ import annotations

import grader.meter.child  # noqa: F401  (before torch.utils.flop_counter, which imports triton)

# isort: split

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

# Operations tagged "pointwise" by torch that only move data.
_MOVES = frozenset({"clone", "where", "masked_fill", "positive", "conj_physical", "sgn_"})

# FLOPs per element of the input: reductions, scans, and fused operations as they would be written out.
_PER_INPUT_ELEMENT = {
    "sum": 1,
    "nansum": 1,
    "mean": 1,
    "prod": 1,
    "amax": 1,
    "amin": 1,
    "max": 1,
    "min": 1,
    "aminmax": 2,
    "argmax": 1,
    "argmin": 1,
    "norm": 2,
    "linalg_vector_norm": 2,
    "var": 3,
    "var_mean": 3,
    "std": 3,
    "std_mean": 3,
    "logsumexp": 4,
    "cumsum": 1,
    "cumprod": 1,
    "cummax": 1,
    "cummin": 1,
    "logcumsumexp": 4,
    "_logcumsumexp": 4,
    "_cummax_helper": 1,
    "_cummin_helper": 1,
    "_softmax": 5,
    "_log_softmax": 5,
    "_safe_softmax": 5,
    "_softmax_backward_data": 4,
    "_log_softmax_backward_data": 4,
    "native_layer_norm": 8,
    "native_layer_norm_backward": 16,
    "native_group_norm": 8,
    "native_group_norm_backward": 16,
    "_fused_rms_norm": 4,
    "_fused_rms_norm_backward": 10,
    "native_batch_norm": 8,
    "native_dropout": 1,
    "nll_loss_forward": 1,
    "glu": 2,
    "glu_backward": 4,
    "softplus_backward": 2,
    "log_sigmoid_forward": 3,
    "log_sigmoid_backward": 3,
    "trace": 1,
    "dot": 2,
    "vdot": 2,
    "segment_reduce": 1,
}

# Scatters that add: one addition for every element of the source, whose place among the arguments is given.
_PER_SOURCE_ELEMENT = {
    "index_add": 3,
    "scatter_add": 3,
    "scatter_reduce": 3,
    "index_reduce": 3,
}

# Backward passes of gathers: an addition for every element of the incoming gradient (the first argument).
_PER_GRADIENT_ELEMENT = frozenset({"embedding_dense_backward", "cumsum_backward"})

_SORTS = frozenset({"sort", "topk", "kthvalue", "median", "nanmedian", "unique_dim", "_unique2"})


def tensors_in(*values: Any) -> Iterator[Tensor]:
    """Every tensor inside nested lists, tuples and dicts, in order."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(*value)
        elif isinstance(value, dict):
            yield from tensors_in(*value.values())


@cache
def base_name(func: Any) -> str:
    """``mul`` for ``aten.mul_.Tensor``, ``aten.mul.out`` and ``aten._foreach_mul.List`` alike."""
    name = str(func._schema.name).split("::")[-1]
    if name.startswith("_foreach_"):
        name = name.removeprefix("_foreach_")
    if name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    return name


@cache
def _pointwise_names() -> frozenset[str]:
    """Names of the operations torch tags as element by element, in place or not."""
    names = set()
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        if not hasattr(packet, "overloads"):
            continue
        if any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads()):
            names.add(name.rstrip("_") if not name.startswith("__") else name)
    return frozenset(names) - _MOVES


@cache
def is_contraction(func: Any) -> bool:
    """Whether the operation is a matrix product, a convolution or attention: the part torch's own counter means."""
    return (
        "scaled_dot_product" in str(func._schema.name)
        or base_name(func) in _CONTRACTIONS
        or _packet(func) in flop_registry
    )


_CONTRACTIONS = frozenset({"mv", "addmv", "addr", "addbmm", "dot", "vdot", "_grouped_mm", "_scaled_grouped_mm"})


def _packet(func: Any) -> Any:
    return getattr(func, "_overloadpacket", None)


def operation_flops(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> int:
    """FLOPs of one dispatched operation from the shapes of its arguments and result.

    Args:
        func: the overload that ran, such as ``torch.ops.aten.mm.default``.
        args: its positional arguments.
        kwargs: its named arguments.
        out: what it returned.

    Returns:
        The count; 0 for views, data movement and operations on integers and booleans.
    """
    name = base_name(func)
    if "scaled_dot_product" in name:
        return _attention_flops(name, args)
    if name in _CONTRACTIONS:
        return _vector_product_flops(name, args, out)
    if _packet(func) in flop_registry:
        return int(flop_registry[_packet(func)](*args, **kwargs, out_val=out))
    results = list(tensors_in(out))
    inputs = list(tensors_in(args, kwargs))
    if not any(_is_number(tensor) for tensor in (*results, *inputs)):
        return 0
    first = inputs[0] if inputs else None
    if name.startswith("_fft_"):
        return _fft_flops(args, out)
    if name in _SORTS and first is not None:
        return first.numel() * max(1, math.ceil(math.log2(max(2, _last(first)))))
    # A max or min of two tensors is element by element, and falls through to that rule.
    of_two = name in ("max", "min") and len(args) > 1 and isinstance(args[1], Tensor)
    if name in _PER_INPUT_ELEMENT and first is not None and not of_two:
        return _PER_INPUT_ELEMENT[name] * _numbers(_first_group(args, first))
    if name in _PER_SOURCE_ELEMENT:
        source = args[_PER_SOURCE_ELEMENT[name]] if len(args) > _PER_SOURCE_ELEMENT[name] else None
        return source.numel() if isinstance(source, Tensor) else 0
    if name == "index_put" and ((len(args) > 3 and args[3]) or kwargs.get("accumulate")):
        return int(args[2].numel())
    if name in _PER_GRADIENT_ELEMENT and first is not None:
        return first.numel()
    if name in _pointwise_names():
        per_element = 2 if name in ("addcmul", "addcdiv", "lerp") else 1
        return per_element * _numbers(results or inputs[:1])
    return 0


def _is_number(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _numbers(tensors: list[Tensor]) -> int:
    """Elements of the floating tensors; a comparison of floats gives booleans, which a mask does not pay for."""
    return sum(tensor.numel() * (2 if tensor.is_complex() else 1) for tensor in tensors if _is_number(tensor))


def _first_group(args: tuple[Any, ...], first: Tensor) -> list[Tensor]:
    if args and isinstance(args[0], (list, tuple)):
        return list(tensors_in(args[0]))
    return [first]


def _last(tensor: Tensor) -> int:
    return int(tensor.shape[-1]) if tensor.dim() else 1


def _attention_flops(name: str, args: tuple[Any, ...]) -> int:
    """Two products and a softmax per QUERY head; grouped keys cost what their queries do.

    A causal flag does not halve the count, so that an explicit mask and the flag cost the same.
    """
    backward = name.endswith("_backward")
    query, key, value = args[1:4] if backward else args[:3]
    width, length_k, width_v = int(query.shape[-1]), int(key.shape[-2]), int(value.shape[-1])
    scores = math.prod(query.shape[:-1]) * length_k
    if backward:
        # Recomputed scores, dP, dQ and dK over the key width, dV over the value width.
        return int(scores * (2 * (3 * width + 2 * width_v) + 4))
    return int(scores * (2 * (width + width_v) + 5))


def _vector_product_flops(name: str, args: tuple[Any, ...], out: Any) -> int:
    if name == "addr":
        return 2 * int(out.numel())
    if name == "addmv":
        return 2 * int(args[1].numel())
    if name == "addbmm":
        return 2 * int(args[1].numel()) * int(args[2].shape[-1])
    if name in ("dot", "vdot", "mv"):
        return 2 * int(args[0].numel())
    # Grouped products: every row of the left operand meets one matrix of the right one.
    return 2 * int(args[0].numel()) * int(args[1].shape[-1])


def _fft_flops(args: tuple[Any, ...], out: Any) -> int:
    """5 n log2 n per complex transform of length n, half of it when one side is real."""
    source, dims = args[0], args[1]
    result = next(tensors_in(out), source)
    full = source if source.numel() >= result.numel() else result
    real = not (source.is_complex() and result.is_complex())
    length = max(2, math.prod(max(int(source.shape[dim]), int(result.shape[dim])) for dim in dims))
    flops = math.ceil(5 * full.numel() * math.log2(length))
    return flops // 2 if real else flops
