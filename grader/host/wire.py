"""What judge and host say to each other: one struct per message, msgpack under a length prefix.

Nothing that comes from a host is ever unpickled.  A tensor travels as dtype,
shape and bytes; an object stays in the host and travels as a `Ref`; anything
else that the kit has no word for travels as its type's name (`Foreign`), so a
judge never runs a method of something a learner made.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Literal

import msgspec

FRAME_LIMIT_BYTES = 1 << 29
TEXT_LIMIT_CHARS = 4000
_HEADER = struct.Struct("<I")


class ProtocolError(Exception):
    """A frame that the protocol does not allow: too large, malformed, or of another schema."""


class Closed(Exception):
    """The other end is gone."""


# ------------------------------------------------------------------------------------------ values


class TensorData(msgspec.Struct, frozen=True, tag="tensor"):
    """A tensor by value.  `strides` None means contiguous; `slot` is its place among the outputs
    (or inputs) of a call that carry gradient, -1 where none does."""

    dtype: str
    shape: list[int]
    data: bytes
    strides: list[int] | None = None
    device: str = "cpu"
    slot: int = -1


class BigInt(msgspec.Struct, frozen=True, tag="int"):
    """An int beyond 64 bits, in hexadecimal."""

    hex: str


class Items(msgspec.Struct, frozen=True, tag="items"):
    """A tuple or a list."""

    kind: Literal["tuple", "list"]
    items: list[Value]


class Pairs(msgspec.Struct, frozen=True, tag="dict"):
    """A dict, in order."""

    pairs: list[tuple[Value, Value]]


class Named(msgspec.Struct, frozen=True, tag="named"):
    """A torch dtype or device, by name."""

    kind: Literal["dtype", "device"]
    name: str


class Ref(msgspec.Struct, frozen=True, tag="ref"):
    """Something that stays in the host."""

    id: int
    kind: Literal["module", "object", "function", "class"]
    type_name: str


class GeneratorData(msgspec.Struct, frozen=True, tag="generator"):
    """A CPU torch.Generator's state; `slot` tells several apart."""

    state: bytes
    slot: int


class Foreign(msgspec.Struct, frozen=True, tag="foreign"):
    """A value the kit does not carry: a tensor subclass, an array, an object with odd equality."""

    type_name: str
    text: str = ""


Value = None | bool | int | float | str | TensorData | BigInt | Items | Pairs | Named | Ref | GeneratorData | Foreign


# ---------------------------------------------------------------------------------------- requests


class Load(msgspec.Struct, frozen=True, tag="load"):
    """Run the learner's file as a fresh module."""

    source: bytes
    filename: str
    seed: int


class Call(msgspec.Struct, frozen=True, tag="call"):
    """Call a name of the module, or a method of a `Ref` (None calls the object itself).

    `meter` names a child-side meter to run the call under ("" for none).  With `spoil`, the memory of arguments and
    results is overwritten once the result has been read, as a caller does who uses his buffers again.
    """

    id: int
    target: str | Ref
    method: str | None
    args: list[Value]
    kwargs: list[tuple[str, Value]]
    grad: bool = True
    meter: str = ""
    spoil: bool = False


class Backward(msgspec.Struct, frozen=True, tag="backward"):
    """Send gradients of a call's outputs backward; answered by its inputs' gradients."""

    call: int
    gradients: list[TensorData]


class Attribute(msgspec.Struct, frozen=True, tag="attribute"):
    """Read an attribute, an item or the length of a `Ref`."""

    target: str | Ref
    name: str | int
    kind: Literal["attribute", "item", "length"] = "attribute"


class ModuleOp(msgspec.Struct, frozen=True, tag="module"):
    """An operation of torch.nn.Module itself, immune to a learner's override."""

    target: Ref
    op: Literal["state_dict", "load_state_dict", "to", "train", "zero_grad", "grads", "parameters"]
    args: list[Value] = []


class Arguments(msgspec.Struct, frozen=True):
    """One call's arguments."""

    args: list[Value]
    kwargs: list[tuple[str, Value]] = []


class Timed(msgspec.Struct, frozen=True, tag="timed"):
    """Call once per entry of `turns`, and keep the results (see `grader.host.timed`).

    Call number i gets argument set i modulo their number, after its tensors have been rolled by `turns[i]` elements
    (0: left as they are).  A single set may be used as several copies in turn, each with memory of its own.
    """

    target: str | Ref
    method: str | None
    arguments: list[Arguments]
    turns: list[int]
    backward: bool = False
    device: str = "cpu"
    copies: int = 1


class TimedAnswer(msgspec.Struct, frozen=True, tag="timed_answer"):
    """Give the result of one call of the last `Timed`."""

    place: int


class Prove(msgspec.Struct, frozen=True, tag="prove"):
    """Run a learner's own tests against the module that was loaded; answered by [id, outcome, message] each."""

    tests: bytes
    filename: str
    name: str
    seed: int


Request = Load | Call | Backward | Attribute | ModuleOp | Timed | TimedAnswer | Prove


# ----------------------------------------------------------------------------------------- replies


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """The module ran; its public names and what each is."""

    names: list[tuple[str, str]]


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """A call came back.  `mutated` names arguments that were changed in place, `changed` holds the positional tensors
    among them, by place, as they are now."""

    id: int
    value: Value
    mutated: list[str] = []
    changed: list[tuple[int, TensorData]] = []
    generators: list[GeneratorData] = []
    global_rng_touched: bool = False
    meter: bytes = b""


class Gradients(msgspec.Struct, frozen=True, tag="gradients"):
    """Gradients of a call's inputs, None where none arrived."""

    values: list[TensorData | None]


class Frame(msgspec.Struct, frozen=True):
    """One line of a traceback, of the learner's file only."""

    line: int
    function: str
    text: str


class Raised(msgspec.Struct, frozen=True, tag="raised"):
    """The learner's code raised.  `bases` are the built-in classes in its method resolution order."""

    type_name: str
    bases: list[str]
    message: str
    frames: list[Frame]
    memory: bool = False


class TimedRun(msgspec.Struct, frozen=True, tag="timed_run"):
    """Every call of a `Timed` is done: a fingerprint of each result, and the calls' work by the host's own account."""

    fingerprints: list[bytes]
    inside_ns: int


Reply = Loaded | Returned | Gradients | Raised | TimedRun

_encoder = msgspec.msgpack.Encoder()
_request_decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_reply_decoder: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def encode(message: Request | Reply | Value) -> bytes:
    """The message's bytes, without the length prefix."""
    return _encoder.encode(message)


def decode_request(data: bytes | bytearray) -> Request:
    """A judge's request.  Raises ProtocolError."""
    try:
        return _request_decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ProtocolError(str(error)) from None


def decode_reply(data: bytes | bytearray) -> Reply:
    """A host's reply.  Raises ProtocolError."""
    try:
        return _reply_decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise ProtocolError(str(error)) from None


def frame(payload: bytes) -> bytes:
    """The payload with its length in front.  Raises ProtocolError when it is over the cap."""
    if len(payload) > FRAME_LIMIT_BYTES:
        raise ProtocolError(f"a message of {len(payload)} bytes is over the limit of {FRAME_LIMIT_BYTES}")
    return _HEADER.pack(len(payload)) + payload


class FrameReader:
    """Cuts a byte stream into frames, never holding more than one frame over the cap."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take bytes as they came.  Raises ProtocolError on a length over the cap."""
        self._buffer += data
        if len(self._buffer) >= _HEADER.size and _HEADER.unpack_from(self._buffer)[0] > FRAME_LIMIT_BYTES:
            raise ProtocolError("a frame announces more bytes than the limit")

    def frames(self) -> Iterator[bytearray]:
        """Every whole frame so far."""
        while len(self._buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer)
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            whole = self._buffer[_HEADER.size : end]
            del self._buffer[:end]
            yield whole


def receive(channel: socket.socket) -> bytearray:
    """Block until one frame has come.  Raises Closed at the end of the stream."""
    header = _receive_exactly(channel, _HEADER.size)
    (length,) = _HEADER.unpack(header)
    if length > FRAME_LIMIT_BYTES:
        raise ProtocolError("a frame announces more bytes than the limit")
    return _receive_exactly(channel, length)


def _receive_exactly(channel: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view = memoryview(data)
    got = 0
    while got < count:
        step = channel.recv_into(view[got:])
        if step == 0:
            raise Closed
        got += step
    return data


def bounded(text: str, limit: int = TEXT_LIMIT_CHARS) -> str:
    """The text with control characters escaped and its length bounded, fit for a terminal or an XML file."""
    clean = "".join(c if c in "\n\t" or (c.isprintable() and c != "\x7f") else _escaped(c) for c in text[: limit + 1])
    return clean if len(text) <= limit else clean[:limit] + f"… (cut at {limit} characters)"


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
