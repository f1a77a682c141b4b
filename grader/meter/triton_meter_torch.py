"""The launcher's torch calls: allocations get guard bands and poison, everything is logged, arithmetic is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch._library.custom_ops import OPDEFS
from torch.utils._python_dispatch import TorchDispatchMode

from grader.meter.replacing import replacer
from grader.meter.triton_meter_ledger import Ledger
from grader.meter.triton_meter_memory import FILLED, UNWRITTEN, poison
from grader.meter.triton_records import FaultKind

_EMPTY = frozenset(["empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"])
_FILLED = frozenset(
    [
        "zeros",
        "zeros_like",
        "new_zeros",
        "ones",
        "ones_like",
        "new_ones",
        "full",
        "full_like",
        "new_full",
        "scalar_tensor",
        "arange",
    ]
)
_COPIES = frozenset(
    [
        "clone",
        "_to_copy",
        "copy_",
        "fill_",
        "zero_",
        "_unsafe_view",
        "_reshape_copy",
        "cat",
        "stack",
        "constant_pad_nd",
        "repeat",
    ]
)
_QUIET = frozenset(
    [
        "detach",
        "alias",
        "lift",
        "is_same_size",
        "sym_size",
        "sym_stride",
        "sym_numel",
        "sym_storage_offset",
        "set_",
        "promote_types",
        "result_type",
        "can_cast",
    ]
)
_WAYS_OUT = ("numpy", "tolist", "__dlpack__")


class LauncherMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches every torch operation between the kernels of one call."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Wrapping the handler for torch.compile would import torch._dynamo at the first operation: three seconds.
        return False

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ledger = ledger

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation, log it, and house what it made."""
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[-1]
        inputs = [value for value in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        if own := OPDEFS.get(func._schema.name):
            # A launcher may be registered as an operator: what it does inside is looked at as if it were called.
            device = inputs[0].device.type if inputs else "cpu"
            with self:
                return own._backend_fns.get(device, own._init_fn)(*args, **kwargs)
        result = func(*args, **kwargs)
        if name in _QUIET or _is_view(func):
            return result
        allocation, fill, copy = name in _EMPTY, name in _FILLED, name in _COPIES
        outputs = [value for value in torch.utils._pytree.tree_leaves(result) if isinstance(value, torch.Tensor)]
        moved = 0 if allocation else sum(map(_bytes, outputs))
        if copy and name not in ("fill_", "zero_"):
            moved += sum(_bytes(value) for value in inputs if not any(value is out for out in outputs))
        self.ledger.torch_op(name, moved, allocation or fill or copy)
        if copy:
            self._refuse_strangers(name, inputs)
        return torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda out: self._settle(out, name, inputs, allocation, copy), result
        )

    def _refuse_strangers(self, name: str, inputs: list[torch.Tensor]) -> None:
        """Note memory that came into the call some other way (numpy, Python's lists) and is copied into it."""
        for value in inputs:
            if value.numel() and self.ledger.memory.of(value) is None:
                self.ledger.note(
                    FaultKind.FOREIGN,
                    f"the launcher copies ({name}) memory that is neither an argument nor made by torch in this call",
                    tensor=name,
                )

    def _settle(
        self, out: torch.Tensor, name: str, inputs: list[torch.Tensor], allocation: bool, copy: bool
    ) -> torch.Tensor:
        """House a new tensor, or note what an operation did to one that has a home."""
        memory = self.ledger.memory
        home = memory.of(out)
        if home is None:
            if allocation:
                poison(out)
            out = memory.house(out, "allocation", "scratch")
            home = memory.of(out)
        assert home is not None
        state = memory.state_of(out)
        if state is not None:
            state[...] = UNWRITTEN if allocation else FILLED
            if copy and name in ("clone", "_to_copy", "copy_", "_reshape_copy", "_unsafe_view"):
                self._inherit(state, inputs[-1] if name == "copy_" else inputs[0])
        home.remember()
        return out

    def _inherit(self, state: np.ndarray[Any, Any], source: torch.Tensor) -> None:
        """A copy's elements come from whoever made the copied ones."""
        origin = self.ledger.memory.state_of(source)
        if origin is not None:
            state[...] = np.broadcast_to(origin, state.shape) if origin.shape != state.shape else origin


@contextmanager
def numbers_watched(ledger: Ledger) -> Iterator[None]:
    """Note when the launcher takes numbers out of a tensor, past torch: no tensor on a GPU allows that.

    What it computed from them would reach a kernel as scalars, and show nowhere.
    """
    plain = {name: getattr(torch.Tensor, name) for name in _WAYS_OUT}

    def watched(name: str) -> Callable[..., Any]:
        def take(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if ledger.memory.of(tensor) is not None:
                ledger.torch_op(name.strip("_"), _bytes(tensor), False)
            return plain[name](tensor, *args, **kwargs)

        return take

    with ExitStack() as stack:
        replace = replacer(stack)
        for name in _WAYS_OUT:
            replace(torch.Tensor, name, watched(name))
        yield


def _is_view(func: Any) -> bool:
    """Whether an operation only looks at its argument's memory in another way."""
    results = func._schema.returns
    return bool(results) and all(one.alias_info is not None and not one.alias_info.is_write for one in results)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
