"""The learner's module seen from the judge: functions, classes, objects, with autograd across the boundary.

A view never runs anything of the learner's in this process.  One call is one
autograd node: its backward is a second message, and parameter gradients are
fetched by name afterwards.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from grader.host import wire
from grader.host.values import Encoder, shape_text, tensor_from_wire, tensor_to_wire
from grader.judge import kernels
from grader.judge.contract import complaint, describe, return_annotation
from grader.judge.faults import BadReturn, LearnerRaised, MissingSymbol, TestFault, learner_raised
from grader.meter.triton_records import MeterReport
from grader.model import Mismatch


class Channel(Protocol):
    """Something that answers requests: a host process or a session in this one."""

    def ask(self, request: wire.Request) -> wire.Reply:
        """The reply.  Raises a TestFault when the other side dies, hangs or floods."""
        ...


class Foreign:
    """A value that could not be carried over; equal to nothing, comparable with nothing."""

    def __init__(self, name: str) -> None:
        self.type_name = name

    def __repr__(self) -> str:
        return f"<{self.type_name}>"

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


class Submission:
    """The learner's module.  Attributes are its public names.

    Args:
        channel: who answers.
        reference: the solution module, for return annotations and for messages.
        on_call: told of every call, as text, before it is made.
    """

    def __init__(
        self, channel: Channel, reference: Any = None, on_call: Callable[[str], None] = lambda text: None
    ) -> None:
        self._channel = channel
        self._reference = reference
        self._on_call = on_call
        self._names: dict[str, str] = {}
        self._call_ids = itertools.count(1)
        self._anchor = torch.zeros((), requires_grad=True)
        self._may_mutate = False
        self._rng_untouched = True
        self.meter = ""
        self.under = ""
        """A meter for every call that has none of its own."""
        self.spoils = False
        """Whether arguments and results are overwritten after every call."""
        self.source = b""
        self.report: MeterReport | None = None
        self.last_call = ""
        self.inputs: list[torch.Tensor] = []

    def load(self, source: bytes, filename: str, seed: int) -> None:
        """Run the learner's file.  Raises a TestFault when that raises, hangs or crashes."""
        self.source = source
        self.take_load(self._channel.ask(wire.Load(source, filename, seed)))

    def take_load(self, reply: wire.Reply) -> None:
        """Take the answer to a load that was sent ahead.  Raises a TestFault when the file raised."""
        if isinstance(reply, wire.Raised):
            raise learner_raised(reply)
        if not isinstance(reply, wire.Loaded):
            raise wire.ProtocolError("load was not answered by loaded")
        self._names = dict(reply.names)

    @property
    def names(self) -> dict[str, str]:
        """Public names of the learner's module, with what each is: class, function or value."""
        return dict(self._names)

    def mutating(self) -> Submission:
        """From here on calls may change their arguments, and the judge's tensors follow."""
        self._may_mutate = True
        return self

    def global_rng_untouched(self) -> bool:
        """Whether the last call left the host's global random generators as they were."""
        return self._rng_untouched

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        expected = getattr(self._reference, name, None)
        kind = self._names.get(name)
        if kind is None:
            near = ", ".join(sorted(found for found, what in self._names.items() if what != "value")) or "nothing"
            raise MissingSymbol(f"your file does not define `{name}` (it defines {near})")
        if isinstance(expected, type) and kind != "class":
            raise MissingSymbol(f"`{name}` is a {kind} in your file; it must be a class")
        if inspect.isfunction(expected) and kind == "value":
            raise MissingSymbol(f"`{name}` is a value in your file; it must be a function")
        if kind == "value":
            return self._value(self._asked_value(wire.Attribute("", name)))
        return RemoteClass(self, name, expected) if kind == "class" else RemoteFunction(self, name, expected)

    def metered(
        self, name: str, *args: Any, far: dict[int, int] | None = None, reverse: bool = False, **kwargs: Any
    ) -> tuple[Any, MeterReport]:
        """Call a kernel's launcher; its result, and what its kernels did.

        Args:
            name: the launcher.
            args: its arguments, as in a plain call.
            far: distance in elements of the rows of these arguments, by place, so that offsets pass 2^31.
            reverse: run the programs of every grid last to first, as a GPU may.
            kwargs: its keyword arguments.
        """
        expected = getattr(self, name)._expected
        meter = kernels.meter(expected, far or {}, reverse)
        result, _ = self.call(name, None, args, kwargs, name, expected, meter)
        assert self.report is not None
        return result, self.report

    # ------------------------------------------------------------------------------ internals

    def _ask(self, request: wire.Request) -> wire.Reply:
        reply = self._channel.ask(request)
        if isinstance(reply, wire.Raised):
            raise learner_raised(reply)
        return reply

    def _asked_value(self, request: wire.Request) -> wire.Value:
        reply = self._ask(request)
        if not isinstance(reply, wire.Returned):
            raise wire.ProtocolError("a request was answered by another kind of reply")
        return reply.value

    def call(
        self,
        target: str | wire.Ref,
        method: str | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        text: str,
        expected: Callable[..., Any] | None = None,
        meter: str = "",
    ) -> tuple[Any, bytes]:
        """Make a call; the result as this side's values, and the meter's report.

        Raises:
            TestFault: the call raised, changed an argument, or returned another type than `expected` is annotated with.
        """
        self.last_call = f"{text}({_arguments_text(args, kwargs)})"
        self._on_call(self.last_call)
        with_grad: list[torch.Tensor] = []
        generators: list[torch.Generator] = []
        grad = torch.is_grad_enabled()

        def slot_of(tensor: torch.Tensor) -> int:
            self.inputs.append(tensor)
            if not (grad and tensor.requires_grad):
                return -1
            with_grad.append(tensor)
            return len(with_grad) - 1

        def generator_slot(generator: torch.Generator) -> int:
            generators.append(generator)
            return len(generators) - 1

        encode = Encoder(slot_of, _ref_of, keep_strides=True, generator_slot=generator_slot)
        wired_args = [encode(arg) for arg in args]
        wired_kwargs = [(name, encode(value)) for name, value in kwargs.items()]
        request = wire.Call(
            next(self._call_ids), target, method, wired_args, wired_kwargs, grad, meter or self.under, self.spoils
        )
        reply = self._ask(request)
        if not isinstance(reply, wire.Returned):
            raise wire.ProtocolError("a call was not answered by its result")
        if self.meter and meter.startswith(self.meter):
            self.report = kernels.examine(text, reply.meter, meter)
        self._rng_untouched = not reply.global_rng_touched
        for generator, state in zip(generators, reply.generators, strict=True):
            generator.set_state(torch.frombuffer(bytearray(state.state), dtype=torch.uint8))
        if reply.mutated and not self._may_mutate:
            what = " and ".join(reply.mutated)
            raise BadReturn(f"{text} changed {what} in place; arguments and earlier results must be left as they were")
        for place, value in reply.changed:
            if place >= len(args) or not isinstance(args[place], torch.Tensor) or args[place].is_meta:
                raise wire.ProtocolError("an argument changed that was not sent")
            changed = tensor_from_wire(value)
            if changed.shape != args[place].shape or changed.dtype != args[place].dtype:
                raise BadReturn(f"{text} changed the shape or dtype of argument {place + 1}")
            args[place].copy_(changed)
        annotation = return_annotation(expected)
        if problem := complaint(reply.value, annotation):
            raise BadReturn(f"{text} {problem}", Mismatch(what=text, actual=describe(reply.value)))
        return self._connected(request.id, reply.value, with_grad), reply.meter

    def _connected(self, call_id: int, value: wire.Value, inputs: list[torch.Tensor]) -> Any:
        """The value with its gradient-carrying tensors made outputs of one autograd node."""
        carried: list[wire.TensorData] = []
        _collect(value, carried)
        if not carried or not torch.is_grad_enabled():
            return self._value(value)
        carried.sort(key=lambda tensor: tensor.slot)
        if [tensor.slot for tensor in carried] != list(range(len(carried))):
            raise wire.ProtocolError("a reply's gradient slots are not a numbering")
        outputs = _Boundary.apply(self, call_id, carried, self._anchor, *inputs)  # type: ignore[no-untyped-call]
        return self._value(value, outputs)

    def _value(self, value: wire.Value, outputs: tuple[torch.Tensor, ...] = ()) -> Any:
        match value:
            case wire.TensorData():
                return outputs[value.slot] if outputs and value.slot >= 0 else tensor_from_wire(value)
            case wire.BigInt():
                return int(value.hex, 16)
            case wire.Items():
                items = [self._value(item, outputs) for item in value.items]
                return tuple(items) if value.kind == "tuple" else items
            case wire.Pairs():
                return {_hashable(self._value(key)): self._value(item, outputs) for key, item in value.pairs}
            case wire.Named():
                return getattr(torch, value.name, value.name) if value.kind == "dtype" else torch.device(value.name)
            case wire.Ref():
                return RemoteObject(self, value, None, value.type_name)
            case wire.Foreign():
                return Foreign(value.type_name)
            case wire.GeneratorData():
                return Foreign("torch.Generator")
        return value


class _Boundary(torch.autograd.Function):
    """One remote call as an autograd node."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        submission: Submission,
        call_id: int,
        carried: list[wire.TensorData],
        anchor: torch.Tensor,
        *inputs: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.submission, ctx.call_id, ctx.inputs = submission, call_id, len(inputs)
        ctx.set_materialize_grads(False)
        return tuple(tensor_from_wire(tensor) for tensor in carried)

    @staticmethod
    def backward(ctx, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:  # type: ignore[no-untyped-def]
        sent = [tensor_to_wire(grad, slot) for slot, grad in enumerate(gradients) if grad is not None]
        reply = ctx.submission._ask(wire.Backward(ctx.call_id, sent))
        if not isinstance(reply, wire.Gradients) or len(reply.values) != ctx.inputs:
            raise wire.ProtocolError("backward was not answered by one gradient per input")
        return (None, None, None, None, *(None if value is None else tensor_from_wire(value) for value in reply.values))


class RemoteFunction:
    """A function of the learner's file."""

    def __init__(self, submission: Submission, name: str, expected: Any) -> None:
        self._submission, self._name, self._expected = submission, name, expected

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function in the host."""
        submission = self._submission
        meter = submission.meter and kernels.meter(self._expected)
        return submission.call(self._name, None, args, kwargs, self._name, self._expected, meter)[0]

    def metered(self, meter: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bytes]:
        """Call under a meter of the host's; the result and the meter's report."""
        return self._submission.call(self._name, None, args, kwargs, self._name, self._expected, meter)

    @property
    def wire_place(self) -> tuple[str | wire.Ref, str | None, RemoteObject | None]:
        """How a request names this callable, and the object it belongs to."""
        return self._name, None, None


class RemoteClass:
    """A class of the learner's file; calling it builds an object in the host."""

    def __init__(self, submission: Submission, name: str, expected: Any) -> None:
        self._submission, self._name, self._expected = submission, name, expected

    def __call__(self, *args: Any, **kwargs: Any) -> RemoteObject:
        """Build an object of the class in the host."""
        built, _ = self._submission.call(self._name, None, args, kwargs, self._name)
        if not isinstance(built, RemoteObject):
            raise BadReturn(f"`{self._name}(...)` did not give an object of the class")
        text = f"{self._name}({_arguments_text(args, kwargs)})"
        return RemoteObject(self._submission, built._ref, self._expected, text)


class RemoteObject:
    """An object that lives in the host: call it, call its methods, read its attributes."""

    def __init__(self, submission: Submission, ref: wire.Ref, expected: Any, text: str) -> None:
        self._submission, self._ref, self._expected, self._text = submission, ref, expected, text

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the object itself (a module's forward) in the host."""
        return self.metered("", args, kwargs)[0]

    def metered(self, meter: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bytes]:
        """Call under a meter of the host's; the result and the meter's report."""
        expected = getattr(self._expected, "forward", None)
        return self._submission.call(self._ref, None, args, kwargs, self._text, expected, meter)

    @property
    def wire_place(self) -> tuple[str | wire.Ref, str | None, RemoteObject | None]:
        """How a request names this callable, and the object it belongs to."""
        return self._ref, None, self

    @property
    def is_module(self) -> bool:
        """Whether this is a torch.nn.Module."""
        return self._ref.kind == "module"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        expected = getattr(self._expected, name, None)
        if inspect.isfunction(expected):
            return RemoteMethod(self, name, expected)
        return self._read(wire.Attribute(self._ref, name), f"{self._text}.{name}", name)

    def __getitem__(self, index: int | str) -> Any:
        return self._read(wire.Attribute(self._ref, index, "item"), f"{self._text}[{index!r}]", str(index))

    def __repr__(self) -> str:
        return self._text

    def __len__(self) -> int:
        return int(self._submission._asked_value(wire.Attribute(self._ref, "", "length")))  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def _read(self, request: wire.Attribute, text: str, name: str) -> Any:
        try:
            value = self._submission._asked_value(request)
        except AttributeError as error:
            if not isinstance(error, TestFault):
                raise
            raise MissingSymbol(f"{self._text} has no attribute `{name}`") from None
        found = self._submission._value(value)
        if isinstance(found, RemoteObject):
            if found._ref.kind == "function":
                return RemoteMethod(self, name, None)
            found._text = text
        return found

    # ---------------------------------------------------------------- torch.nn.Module's own operations

    def _module(self, op: Any, *args: Any) -> Any:
        if self._ref.kind != "module":
            raise BadReturn(f"`{self._text}` must be a torch.nn.Module")
        encode = Encoder()
        request = wire.ModuleOp(self._ref, op, [encode(arg) for arg in args])
        return self._submission._value(self._submission._asked_value(request))

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The module's tensors by name, copies."""
        found: dict[str, torch.Tensor] = self._module("state_dict")
        return found

    def parameter_names(self) -> tuple[list[str], list[str]]:
        """The names of parameters and of buffers."""
        parameters, buffers = self._module("parameters")
        return parameters, buffers

    def load_state_dict(self, state: dict[str, torch.Tensor], parameters: list[str] | None = None) -> None:
        """Copy tensors in by name.

        Raises:
            BadReturn: a name is missing, misshapen, or a parameter stands there that nobody asked for; the
                message lists what was found.
        """
        own = self.state_dict()
        found = ", ".join(f"{name} {tuple(t.shape)}" for name, t in own.items()) or "no parameters at all"
        for name, tensor in state.items():
            if name not in own or not isinstance(own[name], torch.Tensor):
                raise BadReturn(f"{self._text} has no parameter `{name}` {tuple(tensor.shape)}; found: {found}")
            if own[name].shape != tensor.shape:
                raise BadReturn(
                    f"{self._text}: `{name}` has shape {tuple(own[name].shape)}; it must be {tuple(tensor.shape)}"
                )
        extra = [name for name in self.parameter_names()[0] if name not in state]
        if extra:
            raise BadReturn(f"{self._text} has a parameter nobody asked for: {', '.join(extra[:6])}")
        self._module("load_state_dict", state)

    def to(self, target: torch.dtype | torch.device | str) -> RemoteObject:
        """Move or cast the module in the host."""
        self._module("to", target)
        return self

    def train(self, mode: bool = True) -> RemoteObject:
        """Set training mode."""
        self._module("train", mode)
        return self

    def eval(self) -> RemoteObject:
        """Set evaluation mode."""
        return self.train(False)

    def zero_grad(self) -> None:
        """Forget the parameters' gradients."""
        self._module("zero_grad")

    def grads(self) -> dict[str, torch.Tensor | None]:
        """The parameters' gradients by name, None where none arrived."""
        found: dict[str, torch.Tensor | None] = self._module("grads")
        return found


class RemoteMethod:
    """A method of an object in the host."""

    def __init__(self, owner: RemoteObject, name: str, expected: Any) -> None:
        self._owner, self._name, self._expected = owner, name, expected

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method in the host."""
        return self.metered("", args, kwargs)[0]

    @property
    def wire_place(self) -> tuple[str | wire.Ref, str | None, RemoteObject | None]:
        """How a request names this callable, and the object it belongs to."""
        return self._owner._ref, self._name, self._owner

    def metered(self, meter: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bytes]:
        """Call under a meter of the host's; the result and the meter's report."""
        owner, text = self._owner, f"{self._owner._text}.{self._name}"
        try:
            return owner._submission.call(owner._ref, self._name, args, kwargs, text, self._expected, meter)
        except LearnerRaised as error:
            if error.type_name == "AttributeError" and not error.frames:
                raise MissingSymbol(f"{owner._text} has no method `{self._name}`") from None
            raise


def _ref_of(value: Any) -> wire.Ref | None:
    return value._ref if isinstance(value, RemoteObject) else None


def _collect(value: wire.Value, found: list[wire.TensorData]) -> None:
    match value:
        case wire.TensorData() if value.slot >= 0:
            found.append(value)
        case wire.Items():
            for item in value.items:
                _collect(item, found)
        case wire.Pairs():
            for _, item in value.pairs:
                _collect(item, found)


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | bytes | type(None)) else repr(value)


def _arguments_text(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return ", ".join(
        [*(shape_text(arg) for arg in args), *(f"{name}={shape_text(arg)}" for name, arg in kwargs.items())]
    )
