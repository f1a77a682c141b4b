"""A call that must keep to one device, watched where torch's meta device looks away.

Many operations on meta tensors take one on the CPU beside them without a word (a product, a gather, an embedding); on
a GPU each of them raises.  Here they raise too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

MIXED_NOWHERE = frozenset(
    [
        "matmul",
        "__matmul__",
        "__rmatmul__",
        "mm",
        "bmm",
        "baddbmm",
        "addmm",
        "addbmm",
        "mv",
        "dot",
        "inner",
        "outer",
        "einsum",
        "tensordot",
        "linear",
        "bilinear",
        "conv1d",
        "conv2d",
        "conv_transpose1d",
        "index_select",
        "gather",
        "scatter",
        "scatter_",
        "scatter_add",
        "scatter_add_",
        "scatter_reduce",
        "scatter_reduce_",
        "index_add",
        "index_add_",
        "index_copy",
        "index_copy_",
        "embedding",
        "bucketize",
        "searchsorted",
        "repeat_interleave",
        "take_along_dim",
        "cat",
        "concat",
        "stack",
        "where",
        "masked_fill",
        "masked_fill_",
        "scaled_dot_product_attention",
    ]
)
"""Operations that no device shares with another, by name.  Indexing and copying do, and are not among them."""


class _OneDevice(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in MIXED_NOWHERE:
            devices = {tensor.device.type for tensor in _tensors((*args, *kwargs.values())) if tensor.dim()}
            if len(devices) > 1:
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but {name} was given some on "
                    f"{' and some on '.join(sorted(devices))}"
                )
        return func(*args, **kwargs)


def metered(call: functools.partial[Any], session: Any) -> tuple[Any, bytes]:
    """The call's result; there is nothing to report."""
    with _OneDevice():
        return call(), b""


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
