"""The meter: run a launcher on Triton's interpreter and say what its kernels really did to memory.

``TRITON_INTERPRET=1`` must be in the environment before triton is first imported; the host of a kernel challenge does
that.  One metered call::

    call = run_metered(module.softmax, (x,), {})
    call.result, call.error, call.report
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from grader.errors import GraderFault
from grader.meter.triton_records import FaultKind, MeterReport, Options
from grader.model import INTERPRET_VARIABLE

if TYPE_CHECKING:
    from grader.meter.triton_meter_memory import Home

_kept: list[Home] = []
"""What the launchers of earlier calls allocated in this process."""


@dataclass(frozen=True)
class MeteredCall:
    """What a launcher returned or raised, and what it did.

    ``arguments`` are the tensors it was given, in the caller's order, as it left them: an in-place kernel's answer.
    """

    result: Any
    error: BaseException | None
    report: MeterReport
    arguments: tuple[torch.Tensor, ...] = ()


def require_interpreter() -> None:
    """Refuse to meter when triton was imported without its interpreter.

    Raises:
        GraderFault: triton runs compiled in this process, or is not installed.
    """
    try:
        from triton import knobs
    except ImportError as problem:
        raise GraderFault("Triton is not installed", "kernels need Linux; see kit doctor") from problem
    if not knobs.runtime.interpret or os.environ.get(INTERPRET_VARIABLE) != "1":
        raise GraderFault(f"{INTERPRET_VARIABLE}=1 was not set before triton was imported")


class TritonMeter:
    """A context in which Triton kernels run metered::

    with TritonMeter() as meter:
        x = meter.house({"x": x})["x"]
        y = softmax(x)
    report = meter.report(y)
    """

    def __init__(self) -> None:
        require_interpreter()
        from grader.meter.triton_meter_ledger import Ledger
        from grader.meter.triton_meter_memory import Memory

        self.memory = Memory()
        self.ledger = Ledger(self.memory)
        self._stack: Any = None

    def house(self, named: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Move the launcher's tensors between guard bands; those that share a storage still do afterwards."""
        from grader.meter.triton_meter_memory import INPUT

        groups: dict[int, list[str]] = {}
        for name, tensor in named.items():
            groups.setdefault(tensor.untyped_storage().data_ptr() or id(tensor), []).append(name)
        housed: dict[str, torch.Tensor] = {}
        for names in groups.values():
            tensors = self.memory.house_group([named[name] for name in names], "input", names)
            housed.update(zip(names, tensors, strict=True))
            home = self.memory.of(tensors[0])
            assert home is not None
            home.mark(INPUT)
            home.remember()
        return {name: housed[name] for name in named}

    def admit(self, tensors: list[tuple[str, torch.Tensor]]) -> None:
        """Tensors that were there before the call: what is written to them outside a kernel shows from now on."""
        from grader.meter.triton_meter_memory import DENSE_LIMIT_BYTES, FILLED

        for home in _kept:
            if home.is_in_use:
                self.memory.readmit(home)
        for name, tensor in tensors:
            if self.memory.of(tensor) is None and tensor.untyped_storage().nbytes() <= DENSE_LIMIT_BYTES:
                home = self.memory.adopt(tensor, "constant", name)
                home.mark(FILLED)
                home.remember()

    def keep(self, result: Any) -> None:
        """Remember what the launcher allocated and did not return: it may keep that for its next call."""
        returned = [self.memory.of(value) for value in _tensors(result)]
        _kept[:] = [
            home
            for home in self.memory.homes
            if home.kind in ("allocation", "kept") and home.is_in_use and not any(home is one for one in returned)
        ]

    def __enter__(self) -> TritonMeter:
        from contextlib import ExitStack

        from grader.meter.triton_meter_interpreter import patched
        from grader.meter.triton_meter_torch import LauncherMode, numbers_watched

        self._stack = ExitStack()
        self._stack.enter_context(patched(self.ledger))
        self._stack.enter_context(numbers_watched(self.ledger))
        self._stack.enter_context(LauncherMode(self.ledger))
        return self

    def __exit__(self, *failure: Any) -> None:
        self._stack.close()

    def report(self, result: Any = None, arguments: Iterable[torch.Tensor] = ()) -> MeterReport:
        """Close the books: look for elements of the result that no kernel wrote, and name every tensor.

        Args:
            result: what the launcher returned (a tensor, a tuple of them, None).
            arguments: tensors whose elements the launcher was to write in place.
        """
        ledger, memory = self.ledger, self.memory
        ledger.note_host_writes()
        label = {id(home): home.label for home in memory.homes if home.kind == "input"}
        results = _tensors(result)
        for place, value in enumerate(results):
            name = "result" if len(results) == 1 else f"result[{place}]"
            home = memory.of(value)
            if home is not None:
                label.setdefault(id(home), name)
            if value.numel():
                self._check_written(value, name)
        return MeterReport(
            kernels=ledger.kernels(),
            traffic=ledger.traffic(label),
            torch_ops=ledger.torch_ops(),
            faults=ledger.faults(label),
            signatures=ledger.signatures(),
        )

    def _check_written(self, value: torch.Tensor, name: str) -> None:
        from grader.meter.triton_meter_memory import INPUT, UNWRITTEN

        home = self.memory.of(value)
        if home is None:
            self.ledger.note(FaultKind.NO_KERNEL, f"{name} is memory that no kernel wrote", tensor=name)
            return
        state = self.memory.state_of(value)
        if state is None:
            return
        missing = (state == UNWRITTEN) | (state == INPUT)
        if not missing.any():
            return
        count = int(missing.sum())
        first = tuple(int(index[0]) for index in missing.nonzero())
        kind = FaultKind.UNWRITTEN if (state[missing] == UNWRITTEN).all() else FaultKind.NO_KERNEL
        where = "[" + ", ".join(map(str, first)) + "]"
        text = (
            f"no kernel wrote {count} of the {value.numel()} elements of {name}; the first is {where}"
            if kind is FaultKind.UNWRITTEN
            else f"{count} of the {value.numel()} elements of {name} are the caller's own, not a kernel's"
        )
        self.ledger.note(kind, text, tensor=name, count=count, offset=int(missing.ravel().argmax()))


def run_metered(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    options: Options | None = None,
) -> MeteredCall:
    """Run a launcher once under the meter.

    Args:
        function: the launcher.
        args: its positional arguments; tensors are copied between guard bands first.
        kwargs: its keyword arguments.
        options: rows far apart, programs in reverse.

    Returns:
        The result and the report.  An exception of the launcher is returned in ``error``, not raised, so that the
        report is never lost; a fault that the launcher swallowed is in the report all the same.
    """
    kwargs = dict(kwargs or {})
    from grader.meter.triton_meter_memory import far_apart

    options = options or Options()
    labels = _labels(function, len(args), options.names)
    named = {labels[i]: value for i, value in enumerate(args) if isinstance(value, torch.Tensor)}
    named |= {name: value for name, value in kwargs.items() if isinstance(value, torch.Tensor)}
    for place, stride in options.far.items():
        named[labels[place]] = far_apart(named[labels[place]], stride)
    meter = TritonMeter()
    meter.ledger.reverse = options.reverse
    housed = meter.house(named)
    meter.admit(_module_tensors(function))
    positional = tuple(housed.get(labels[i], value) for i, value in enumerate(args))
    keyword = {name: housed.get(name, value) for name, value in kwargs.items()}
    result: Any = None
    error: BaseException | None = None
    with meter:
        try:
            result = function(*positional, **keyword)
        except Exception as problem:
            error = problem
    _copy_back(args, kwargs, labels, housed)
    report = meter.report(result)
    meter.keep(result)
    return MeteredCall(result, error, report, tuple(housed.values()))


def metered(call: functools.partial[Any], session: Any) -> tuple[Any, bytes]:
    """The host's side of a metered call: its result, and the report as msgpack.

    In-place changes are copied back to the caller's tensors.  A launcher that raised without a fault raises here too;
    one that raised because of a fault returns None, since the report says why.

    ``session.meter_options`` holds ``Options`` as JSON.
    """
    options = msgspec.json.decode(session.meter_options or "{}", type=Options)
    if any(isinstance(value, torch.Tensor) and value.is_cuda for value in (*call.args, *call.keywords.values())):
        done = _run_compiled(call, options)
    else:
        done = run_metered(call.func, call.args, call.keywords, options=options)
    if done.error is not None and not done.report.faults:
        raise done.error
    return (None if done.error is not None else done.result), msgspec.msgpack.encode(done.report)


def _run_compiled(call: functools.partial[Any], options: Options) -> MeteredCall:
    """The same call on a GPU: compiled, with the checks that need no interpreter."""
    from triton import knobs

    from grader.meter.triton_meter_cuda import run_on_device

    if knobs.runtime.interpret:
        raise GraderFault(f"a call on a GPU must be compiled, and {INTERPRET_VARIABLE}=1 was set in this process")
    names = _labels(call.func, len(call.args), options.names)
    return MeteredCall(*run_on_device(call.func, call.args, call.keywords, names))


def _labels(function: Callable[..., Any], count: int, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """What positional arguments are called: as asked, else as the launcher calls them, else by number."""
    names = list(wanted)
    if not names:
        with contextlib.suppress(TypeError, ValueError):
            names = list(inspect.signature(function).parameters)
    names = names[:count]
    return tuple(names + [f"argument {place + 1}" for place in range(len(names), count)])


def _tensors(result: Any) -> list[torch.Tensor]:
    return [value for value in torch.utils._pytree.tree_leaves(result) if isinstance(value, torch.Tensor)]


def _copy_back(
    args: tuple[Any, ...], kwargs: dict[str, Any], labels: tuple[str, ...], housed: dict[str, torch.Tensor]
) -> None:
    """Give the caller's tensors what the launcher left in theirs, where that is something else."""
    from grader.meter.triton_meter_memory import copy_back

    for name, value in [*zip(labels, args, strict=True), *kwargs.items()]:
        if isinstance(value, torch.Tensor) and value.data_ptr() != housed[name].data_ptr():
            copy_back(value, housed[name])


def _module_tensors(function: Callable[..., Any]) -> list[tuple[str, torch.Tensor]]:
    """Tensors that the learner's module holds, by name: constants made when it was imported, buffers kept since."""
    found: list[tuple[str, torch.Tensor]] = []

    def look(name: str, value: Any, depth: int) -> None:
        if isinstance(value, torch.Tensor):
            if value.layout is torch.strided and value.device.type == "cpu":
                found.append((name, value))
        elif depth and isinstance(value, dict | list | tuple):
            for item in value.values() if isinstance(value, dict) else value:
                look(name, item, depth - 1)
        elif depth and getattr(value, "__module__", None) == module and hasattr(value, "__dict__"):
            # A function's attributes, a class's, an object's.
            look(name, dict(vars(value)), depth)

    names = getattr(function, "__globals__", {})
    module = names.get("__name__")
    for name, value in list(names.items()):
        look(name, value, 2)
    return found
