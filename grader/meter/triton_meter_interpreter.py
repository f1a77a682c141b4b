"""What of Triton's interpreter is replaced while a call is metered, and put back afterwards.

The language is patched once for the whole call (the interpreter patches it again for every helper call, which is most
of its time), launches run without copying storages, reductions and scans work on whole slices, and autotuning needs
no driver.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter as ti
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import (
    FunctionRewriter,
    GridExecutor,
    InterpretedFunction,
    ReduceOps,
    ScanOps,
    TensorHandle,
)
from triton.tools.tensor_descriptor import TensorDescriptor

from grader.meter.replacing import replacer
from grader.meter.triton_meter_builder import ORIGIN, MeteringBuilder
from grader.meter.triton_meter_fast import patch_bookkeeping, patched_language
from grader.meter.triton_meter_ledger import Ledger, origin_of
from grader.meter.triton_meter_memory import FILLED
from grader.meter.triton_meter_signature import OPTION_NAMES, signature_of
from grader.meter.triton_records import FaultKind

_TRIED_CONFIGS = 2
"""Tuning runs the kernel once for this many configurations, uncounted: enough to show a kernel that cannot be rerun."""

MAX_WARPS = 32


class LaunchError(Exception):
    """A launch that Triton would refuse on a GPU, although the interpreter runs it."""


def run_grid(executor: Any, ledger: Ledger, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run one launch: every program of the grid in order, on the caller's own memory."""
    function = executor.fn
    spec = inspect.getfullargspec(function)
    names = {*spec.args, *spec.kwonlyargs}
    options = {name: value for name, value in kwargs.items() if name not in names}
    unknown = sorted(set(options) - OPTION_NAMES)
    if unknown:
        raise LaunchError(f"{function.__name__} has no parameter {unknown[0]}")
    warps = options.get("num_warps", 4)
    if warps < 1 or warps > MAX_WARPS or warps & (warps - 1):
        raise LaunchError(f"num_warps must be a power of two up to {MAX_WARPS}; {function.__name__} asks for {warps}")
    for hook in executor.pre_run_hooks:
        hook(*args, **kwargs)
    bound = inspect.getcallargs(function, *args, **{k: v for k, v in kwargs.items() if k in names})
    constant = set(executor.constexprs)
    grid = executor.grid(bound) if callable(executor.grid) else executor.grid
    grid = tuple(int(size) for size in (grid if isinstance(grid, (tuple, list)) else (grid,)))
    if not 1 <= len(grid) <= 3:
        raise LaunchError(f"a grid has one to three dimensions; {function.__name__} got {len(grid)}")
    grid = grid + (1,) * (3 - len(grid))
    code = function.__code__
    signature = signature_of(function.__name__, code.co_firstlineno, bound, constant, options)
    ledger.begin_launch(function.__name__, code.co_filename, signature)
    try:
        values = {
            name: value if name in constant else _as_argument(name, value, ledger) for name, value in bound.items()
        }
        builder = ti.interpreter_semantic.builder
        builder.set_grid_dim(*grid)
        programs = itertools.product(*map(range, grid))
        for place in reversed(list(programs)) if ledger.reverse else programs:
            builder.set_grid_idx(*place)
            ledger.begin_program()
            function(**values)
    finally:
        ledger.end_launch()


def _as_argument(name: str, value: Any, ledger: Ledger) -> Any:
    """A kernel argument as the interpreter's value; a tensor becomes a pointer that knows where it came from."""
    if isinstance(value, TensorDescriptor):
        described = ti._implicit_cvt(value)
        described.handle.base.attr[ORIGIN] = _origin(name, value.base, ledger)
        return described
    if isinstance(value, tuple):
        return ti._tuple_create(value, tuple(_as_argument(name, item, ledger) for item in value))
    if isinstance(value, float):
        # On a GPU a float argument is a float32 scalar, not a Python number that takes the other side's type.
        return tl.tensor(TensorHandle(np.array([value], dtype=np.float32), tl.float32), tl.float32)
    made = ti._implicit_cvt(value)
    if hasattr(value, "data_ptr"):
        made.handle.attr[ORIGIN] = _origin(name, value, ledger)
    return made


def _origin(name: str, value: Any, ledger: Ledger) -> Any:
    tensor = ti._unwrap_tensor(value)
    if not isinstance(tensor, torch.Tensor):
        return None
    home = ledger.memory.of(tensor)
    if home is None:
        home = ledger.memory.adopt(tensor, "foreign", name)
        home.mark(FILLED)
        home.remember()
        ledger.note(
            FaultKind.FOREIGN,
            "{tensor} is neither an argument of the launcher nor memory it got from torch",
            argument=name,
            home=home,
        )
    return origin_of(name, tensor, home)


# -- reductions and scans on whole slices ---------------------------------------------------------------------------


def _as_tensors(arrays: list[np.ndarray[Any, Any]], types: list[Any]) -> list[Any]:
    made = []
    for array, dtype in zip(arrays, types, strict=True):
        array = np.ascontiguousarray(array)
        kind = tl.block_type(dtype, list(array.shape)) if array.shape else dtype
        made.append(tl.tensor(TensorHandle(array if array.shape else array.reshape(1), dtype.scalar), kind))
    return made


def _combine(function: Any, left: list[Any], right: list[Any], types: list[Any]) -> list[np.ndarray[Any, Any]]:
    """Apply a combine function to slices; its results as arrays in the slices' shape and dtype."""
    shape, kinds = left[0].shape, [array.dtype for array in left]
    result = function(*_as_tensors(left, types), *_as_tensors(right, types))
    results = result if isinstance(result, tuple) else (result,)
    arrays = []
    for value, kind in zip(results, kinds, strict=True):
        data = value.handle.data if isinstance(value, tl.tensor) else np.asarray(value)
        arrays.append(
            np.broadcast_to(data.reshape(shape) if data.size > 1 else data.reshape(-1)[0], shape).astype(kind)
        )
    return arrays


def _reduce_slices(self: Any, inputs: Any) -> list[Any]:
    """Reduce by halves: neighbours are combined in order, so an associative function is enough."""
    original_axis = self.axis
    inputs, axis = self.unravel(inputs, self.axis)
    types = [value.dtype for value in inputs]
    rank = inputs[0].handle.data.ndim
    arrays = [np.moveaxis(value.handle.data, axis, 0) for value in inputs]
    while arrays[0].shape[0] > 1:
        even = arrays[0].shape[0] // 2 * 2
        joined = _combine(self.combine_fn.fn, [a[0:even:2] for a in arrays], [a[1:even:2] for a in arrays], types)
        arrays = [np.concatenate([new, old[even:]]) for new, old in zip(joined, arrays, strict=True)]
    results = []
    for array, value in zip(arrays, inputs, strict=True):
        data = array[0]
        if self.keep_dims:
            data = np.expand_dims(data, axis) if original_axis is not None else data.reshape((1,) * rank)
        elif original_axis is None:
            data = data.item()
        results.append(self.to_tensor(data, value.dtype))
    return results


def _scan_slices(self: Any, inputs: Any) -> list[Any]:
    """Scan in log2(length) steps; each combines every element with the one a power of two before it."""
    types = [value.dtype for value in inputs]
    arrays = [np.moveaxis(value.handle.data, self.axis, 0).copy() for value in inputs]
    length, step = arrays[0].shape[0], 1
    while step < length:
        # All elements are combined, since a block's length is a power of two; the first `step` keep their value.
        before = np.maximum(np.arange(length) - step, 0)
        joined = _combine(self.combine_fn.fn, [a[before] for a in arrays], arrays, types)
        arrays = [np.concatenate([old[:step], new[step:]]) for new, old in zip(joined, arrays, strict=True)]
        step *= 2
    return [self.to_tensor(np.moveaxis(a, 0, self.axis), v.dtype) for a, v in zip(arrays, inputs, strict=True)]


def _materialize(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Pointers made from a tensor descriptor come from the descriptor's tensor."""

    def materialize_pointers(self: Any, offsets: Any) -> Any:
        pointers, mask = plain(self, offsets)
        if ORIGIN in self.base.attr:
            pointers.attr[ORIGIN] = self.base.attr[ORIGIN]
        return pointers, mask

    return materialize_pointers


# -- patching ----------------------------------------------------------------------------------------------------------


def _numpy_dtypes(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Triton type to numpy type, remembered: the interpreter builds its whole table anew for every value."""
    of_scalar = lru_cache(maxsize=None)(plain)

    def numpy_dtype(kind: Any) -> Any:
        scalar = kind.element_ty if isinstance(kind, tl.block_type) else kind
        return plain(scalar) if isinstance(scalar, tl.pointer_type) else of_scalar(scalar)  # a pointer has no hash

    return numpy_dtype


class _LoopVariables(ti.ASTTransformer):  # type: ignore[misc]
    """Makes the variable of a loop over ``range`` a tensor, as it is on a GPU (``row.to(tl.int64)``)."""

    def visit_For(self, node: ast.For) -> ast.For:
        """Convert the variable first thing in the body; a static range counts in Python."""
        node = self.generic_visit(node)
        called = node.iter.func if isinstance(node.iter, ast.Call) else None
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if name == "range" and isinstance(node.target, ast.Name):
            convert = ast.parse(f"{node.target.id} = interpreter_semantic.to_tensor({node.target.id}, False)").body[0]
            for part in ast.walk(convert):
                ast.copy_location(part, node)
            node.body.insert(0, convert)
        return node


_definitions: dict[tuple[str, int, str, str], types.CodeType] = {}
"""Rewritten kernels by file, line, name and text: a file is loaded anew for every test, and its text is the same."""
DEFINITIONS_KEPT = 256


def _rewrite(rewriter: Any) -> Any:
    """The interpreter's own rewriting of a kernel, done once for each text."""
    code = getattr(rewriter.fn, "__code__", None)
    if code is None:  # nothing to read; Triton leaves it as it is
        return _plain_rewrite(rewriter)
    text = "".join(linecache.getlines(code.co_filename))
    rewriter.key = (code.co_filename, code.co_firstlineno, code.co_qualname, text)
    if text and rewriter.key in _definitions:
        return _define(rewriter, _definitions[rewriter.key])
    return _plain_rewrite(rewriter)


def _compile_and_define(rewriter: Any, tree: ast.Module) -> Any:
    code = compile(tree, filename=rewriter.filename, mode="exec")
    if rewriter.key[-1]:
        while len(_definitions) >= DEFINITIONS_KEPT:
            _definitions.pop(next(iter(_definitions)))
        _definitions[rewriter.key] = code
    return _define(rewriter, code)


def _define(rewriter: Any, code: types.CodeType) -> Any:
    """Run a definition in its module, with the names that rewritten code uses."""
    namespace = {**rewriter.kwargs}
    for name, value in vars(ti).items():
        rewriter.fn.__globals__.setdefault(name, value)
    exec(code, rewriter.fn.__globals__, namespace)
    return namespace[rewriter.fn.__name__]


_plain_rewrite = FunctionRewriter.rewrite_ast


@contextmanager
def patched(ledger: Ledger) -> Iterator[None]:
    """Replace the interpreter's parts for the time of one metered call."""

    def launch(executor: Any, *args: Any, **kwargs: Any) -> None:
        run_grid(executor, ledger, args, kwargs)

    def device_call(function: Any, *args: Any, **kwargs: Any) -> Any:
        return function.rewrite()(*args, **kwargs)

    def tune(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        return _try_config(tuner, ledger, args, config, meta)

    class NoScope:
        def restore(self) -> None:
            return None

    with patched_language(), ExitStack() as stack, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        replace = replacer(stack)
        patch_bookkeeping(replace)
        replace(ti, "_patch_lang", lambda function: NoScope())
        replace(ti.interpreter_semantic, "builder", MeteringBuilder(ledger))
        replace(ti, "_get_np_dtype", _numpy_dtypes(ti._get_np_dtype))
        replace(ti.TensorDescHandle, "materialize_pointers", _materialize(ti.TensorDescHandle.materialize_pointers))
        replace(GridExecutor, "__call__", launch)
        replace(InterpretedFunction, "__call__", device_call)
        replace(ReduceOps, "generic_reduce", _reduce_slices)
        replace(ScanOps, "generic_scan", _scan_slices)
        replace(Autotuner, "_bench", tune)
        replace(FunctionRewriter, "ast_transformer", _LoopVariables())
        replace(FunctionRewriter, "rewrite_ast", _rewrite)
        replace(FunctionRewriter, "_compile_and_exec", _compile_and_define)
        yield


def _try_config(tuner: Any, ledger: Ledger, args: tuple[Any, ...], config: Any, meta: dict[str, Any]) -> list[float]:
    """Run one configuration as tuning does on a GPU, without counting; the first configuration wins.

    What a kernel leaves behind when it is rerun (a sum added twice) is left behind here too.
    """
    place = tuner.configs.index(config)
    if place >= _TRIED_CONFIGS:
        return [float("inf")] * 3
    current = dict(meta, **config.all_kwargs())
    full = {**tuner.nargs, **current}
    states = [segment.state.copy() for home in ledger.memory.homes for segment in home.segments]
    segments = [segment for home in ledger.memory.homes for segment in home.segments]
    counting, ledger.counting = ledger.counting, False
    try:
        if config.pre_hook:
            config.pre_hook(full)
        tuner.pre_hook(full)
        tuner.fn.run(*args, **current)
        tuner.post_hook(full, exception=None)
    finally:
        ledger.counting = counting
        for segment, state in zip(segments, states, strict=True):
            segment.state[:] = state
    return [float(place)] * 3
