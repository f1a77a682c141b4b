"""The learner's module and its objects, and the answers to a judge's requests about them.

The same session serves a host process (over a socket, see `child`) and the
judge's own process (`--isolation none`, and the known mistakes, whose code is
ours).  It forms no verdict: it returns values, and what was raised.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import linecache
import pdb
import random
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from grader.host import wire
from grader.host.proving import run_tests
from grader.host.timed import TimedCalls
from grader.host.values import Encoder, tensor_from_wire, tensor_to_wire, type_name

MODULE_NAME = "submission"
EARLIER_RESULT = "what an earlier call returned"
RESULTS_WATCHED = 6
_BUILTIN_ERRORS = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}

Meter = Callable[[functools.partial[Any], "Session"], tuple[Any, bytes]]
"""Runs a call, whose function and arguments it may look at, and returns its result with a report (see `grader.meter`).

What follows a colon in a request's meter is its options, found in `Session.meter_options`."""


class Session:
    """One load of the learner's file.  Not thread-safe; one request at a time."""

    def __init__(
        self, folder: Path | None = None, meters: dict[str, Meter] | None = None, post_mortem: bool = False
    ) -> None:
        self._folder = folder
        self._meters = meters or {}
        self._post_mortem = post_mortem
        self._module: types.ModuleType | None = None
        self._filename = ""
        self._forget()

    def _forget(self) -> None:
        """Drop everything of the last load."""
        self._objects: dict[int, Any] = {}
        self._ids: dict[int, int] = {}
        self._inputs: dict[int, list[torch.Tensor]] = {}
        self.meter_options = ""
        self._outputs: dict[int, list[torch.Tensor]] = {}
        self._returned: list[tuple[Any, bytes]] = []
        self._timed = TimedCalls(lambda value, leaves: self._decode(value, leaves, []), self._encode, self._callable)

    # -------------------------------------------------------------------------------- dispatch

    def handle(self, request: wire.Request) -> wire.Reply:
        """Answer one request.  Whatever the learner's code raises is an answer too."""
        try:
            match request:
                case wire.Load():
                    return self._load(request)
                case wire.Call():
                    return self._call(request)
                case wire.Backward():
                    return self._backward(request)
                case wire.Attribute():
                    return wire.Returned(0, self._encode(self._read(request)))
                case wire.Prove():
                    return wire.Returned(0, self._prove(request))
                case wire.ModuleOp():
                    return wire.Returned(0, self._module_op(request))
                case wire.Timed():
                    return self._timed.run(request)
                case wire.TimedAnswer():
                    return self._timed.answer(request)
        except BaseException as error:
            if self._post_mortem and error.__traceback__ is not None:
                pdb.post_mortem(error.__traceback__)
            return self._raised(error)

    # ------------------------------------------------------------------------------------ load

    def _load(self, request: wire.Load) -> wire.Reply:
        self._forget()
        torch.default_generator.manual_seed(request.seed)
        random.seed(request.seed)
        np.random.seed(request.seed % 2**32)
        name = Path(request.filename).stem or MODULE_NAME
        module = types.ModuleType(MODULE_NAME)
        if self._folder is not None:
            # A real file, for what opens it by its path.  Where an earlier test has filled the disk it goes without:
            # inspect.getsource (Triton's jit, dataclasses, torch.compile) reads the lines kept below.
            path = self._folder / f"{name}.py"
            with contextlib.suppress(OSError):
                path.write_bytes(request.source)
            self._filename = str(path)
        else:
            self._filename = f"<{name}.py>"
        text = request.source.decode("utf-8-sig")
        linecache.cache[self._filename] = (len(text), None, text.splitlines(keepends=True), self._filename)
        module.__file__ = self._filename
        sys.modules[MODULE_NAME] = module  # dataclasses and pickling look a class's module up there
        self._module = module
        exec(_compiled(text, self._filename), module.__dict__)
        return wire.Loaded([(name, _kind(value)) for name, value in vars(module).items() if _is_own(name, value)])

    # ----------------------------------------------------------------------------------- calls

    def _call(self, request: wire.Call) -> wire.Reply:
        leaves: list[torch.Tensor] = []
        generators: list[torch.Generator] = []
        args = [self._decode(arg, leaves, generators) for arg in request.args]
        kwargs = {name: self._decode(value, leaves, generators) for name, value in request.kwargs}
        before = [wire.encode(_values_of(arg)) for arg in (*args, *kwargs.values())]
        function = self._callable(request.target, request.method)
        global_state = _global_rng_state()
        report = b""
        with torch.set_grad_enabled(request.grad):
            if request.meter:
                name, _, self.meter_options = request.meter.partition(":")
                result, report = self._meters[name](functools.partial(function, *args, **kwargs), self)
            else:
                result = function(*args, **kwargs)
        touched = _global_rng_state() != global_state
        names = [f"argument {place + 1}" for place in range(len(args))] + list(kwargs)
        mutated = [
            name
            for name, was, arg in zip(names, before, (*args, *kwargs.values()), strict=True)
            if wire.encode(_values_of(arg)) != was
        ]
        if any(wire.encode(_values_of(earlier)) != was for earlier, was in self._returned):
            mutated.append(EARLIER_RESULT)
        self._returned = [*self._returned[1 - RESULTS_WATCHED :], (result, wire.encode(_values_of(result)))]
        outputs: list[torch.Tensor] = []
        value = self._encode(result, outputs)
        self._inputs[request.id], self._outputs[request.id] = leaves, outputs
        states = [
            wire.GeneratorData(generator.get_state().numpy().tobytes(), slot)
            for slot, generator in enumerate(generators)
        ]
        changed = [
            (place, tensor_to_wire(arg))
            for place, (name, arg) in enumerate(zip(names, args, strict=False))
            if name in mutated and isinstance(arg, torch.Tensor)
        ]
        if request.spoil:
            self._returned = []
            for tensor in _tensors_of((args, kwargs, result)):
                with contextlib.suppress(RuntimeError):  # an expanded tensor cannot be written
                    tensor.detach().fill_(1)
        return wire.Returned(request.id, value, mutated, changed, states, touched, report)

    def _backward(self, request: wire.Backward) -> wire.Reply:
        outputs, leaves = self._outputs[request.call], self._inputs[request.call]
        for leaf in leaves:
            leaf.grad = None
        # Weighted sums and not grad_tensors=, which would import sympy (0.8 s) into every host.
        with torch.enable_grad():  # in this process, a judge's own backward has switched it off
            weighted = [(outputs[gradient.slot] * tensor_from_wire(gradient)).sum() for gradient in request.gradients]
            total = sum(part.to(torch.float64) for part in weighted)
        if isinstance(total, torch.Tensor):
            total.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        return wire.Gradients([None if leaf.grad is None else tensor_to_wire(leaf.grad) for leaf in leaves])

    # --------------------------------------------------------------------------------- objects

    def _read(self, request: wire.Attribute) -> Any:
        target = self._resolve(request.target)
        match request.kind:
            case "attribute":
                return getattr(target, str(request.name))
            case "item":
                return target[request.name]
            case "length":
                return len(target)

    def _module_op(self, request: wire.ModuleOp) -> wire.Value:
        module = self._resolve(request.target)
        args = [self._decode(arg, [], []) for arg in request.args]
        nn = torch.nn.Module
        match request.op:
            case "state_dict":
                return self._encode(dict(nn.state_dict(module)))
            case "load_state_dict":
                with torch.no_grad():
                    own = {**dict(nn.named_parameters(module)), **dict(nn.named_buffers(module))}
                    for name, tensor in args[0].items():
                        own[name].copy_(tensor)
            case "to":
                nn.to(module, *args)
            case "train":
                module.train(*args)
            case "zero_grad":
                nn.zero_grad(module)
            case "grads":
                return self._encode({name: parameter.grad for name, parameter in nn.named_parameters(module)})
            case "parameters":
                own = dict(nn.named_parameters(module))
                return self._encode([list(own), [name for name, _ in nn.named_buffers(module)]])
        return None

    def _prove(self, request: wire.Prove) -> wire.Value:
        assert self._module is not None, "a load comes first"
        self._filename = request.filename  # what is raised now is raised by the tests
        return self._encode(run_tests(request.tests, request.filename, request.name, self._module, request.seed))

    def _resolve(self, target: str | wire.Ref) -> Any:
        if isinstance(target, str):
            return getattr(self._module, target)
        return self._objects[target.id]

    def _callable(self, target: str | wire.Ref, method: str | None) -> Callable[..., Any]:
        found = self._resolve(target)
        if method is None:
            return found  # type: ignore[no-any-return]
        return getattr(found, method)  # type: ignore[no-any-return]

    def _refer(self, value: Any) -> wire.Ref | None:
        kind = type(value)
        if issubclass(kind, torch.nn.Module):
            name = "module"
        elif isinstance(value, type):
            name = "class"
        elif kind in (types.FunctionType, types.BuiltinFunctionType, types.MethodType):
            name = "function"
        elif kind.__module__ == MODULE_NAME:
            name = "object"
        else:
            return None
        # The object is kept, so its id stays its own as long as the session lives.
        identity = self._ids.setdefault(id(value), len(self._ids) + 1)
        self._objects[identity] = value
        return wire.Ref(identity, name, type_name(kind))  # type: ignore[arg-type]

    # ---------------------------------------------------------------------------------- values

    def _encode(self, value: Any, outputs: list[torch.Tensor] | None = None) -> wire.Value:
        def slot_of(tensor: torch.Tensor) -> int:
            if outputs is None or not tensor.requires_grad:
                return -1
            outputs.append(tensor)
            return len(outputs) - 1

        return Encoder(slot_of, self._refer)(value)

    def _decode(self, value: wire.Value, leaves: list[torch.Tensor], generators: list[torch.Generator]) -> Any:
        match value:
            case wire.TensorData():
                tensor = tensor_from_wire(value)
                if value.slot >= 0:
                    leaves.append(tensor.requires_grad_())
                return tensor
            case wire.BigInt():
                return int(value.hex, 16)
            case wire.Items():
                items = [self._decode(item, leaves, generators) for item in value.items]
                return tuple(items) if value.kind == "tuple" else items
            case wire.Pairs():
                return {
                    self._decode(key, leaves, generators): self._decode(item, leaves, generators)
                    for key, item in value.pairs
                }
            case wire.Named():
                return getattr(torch, value.name) if value.kind == "dtype" else torch.device(value.name)
            case wire.Ref():
                return self._objects[value.id]
            case wire.GeneratorData():
                generator = torch.Generator()
                generator.set_state(torch.frombuffer(bytearray(value.state), dtype=torch.uint8))
                generators.append(generator)
                return generator
            case wire.Foreign():
                raise wire.ProtocolError("a judge sends no foreign value")
        return value

    # ---------------------------------------------------------------------------------- errors

    def _raised(self, error: BaseException) -> wire.Raised:
        frames = [
            wire.Frame(frame.lineno or 0, frame.name, (frame.line or "").strip())
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == self._filename
        ]
        kind = type(error)
        message = _message(error)
        if isinstance(error, SyntaxError) and error.filename == self._filename:
            frames = [wire.Frame(error.lineno or 0, "<module>", (error.text or "").strip())]
            message = str(error.msg)
        bases = [base.__name__ for base in kind.__mro__ if _BUILTIN_ERRORS.get(base.__name__) is base]
        memory = issubclass(kind, MemoryError) or "can't allocate memory" in message
        return wire.Raised(type_name(kind), bases, wire.bounded(message), frames[-12:], memory)


@functools.lru_cache(maxsize=64)
def _compiled(text: str, filename: str) -> types.CodeType:
    """The code of a file: it is loaded afresh for every test, and parsed once."""
    return compile(text, filename, "exec", dont_inherit=True)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "(its message could not be read)"


def _kind(value: Any) -> str:
    if isinstance(value, type):
        return "class"
    return "function" if callable(value) else "value"


def _is_own(name: str, value: Any) -> bool:
    return not name.startswith("_") and not isinstance(value, types.ModuleType)


def _tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors in nested tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for item in value for tensor in _tensors_of(item)] if isinstance(value, tuple | list) else []


def _values_of(arg: Any) -> wire.Value:
    return Encoder(generator_slot=lambda generator: -1)(None if isinstance(arg, torch.Generator) else arg)


def _global_rng_state() -> tuple[bytes, Any, Any]:
    numpy_state = np.random.get_state(legacy=True)
    return (torch.get_rng_state().numpy().tobytes(), random.getstate(), (numpy_state[1].tobytes(), numpy_state[2:]))  # type: ignore[index]
