"""Frames, their cap, and text that is fit to show."""

from __future__ import annotations

import socket

import msgspec
import pytest

from grader.host import wire


def test_frames_are_cut_wherever_the_stream_is() -> None:
    payloads = [wire.encode(wire.Load(b"x = 1", "a.py", 3)), wire.encode(wire.Backward(1, []))]
    stream = b"".join(map(wire.frame, payloads))
    reader, found = wire.FrameReader(), []
    for byte in stream:
        reader.feed(bytes([byte]))
        found += [bytes(whole) for whole in reader.frames()]
    assert found == payloads


def test_a_length_over_the_cap_is_refused_before_it_is_read() -> None:
    with pytest.raises(wire.ProtocolError):
        wire.FrameReader().feed((wire.FRAME_LIMIT_BYTES + 1).to_bytes(4, "little"))


def test_the_end_of_the_stream_is_told_from_a_frame() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(wire.frame(b"abc")[:5])
    theirs.close()
    with pytest.raises(wire.Closed):
        wire.receive(ours)


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"type": "verdict", "passed": True}),
        msgspec.msgpack.encode({"type": "returned", "id": "one", "value": None}),
        msgspec.msgpack.encode({"type": "returned", "id": 1, "value": {"type": "tensor", "dtype": 3}}),
        msgspec.msgpack.encode(["returned", 1]),
    ],
)
def test_what_the_schema_does_not_allow_is_a_protocol_error(junk: bytes) -> None:
    with pytest.raises(wire.ProtocolError):
        wire.decode_reply(junk)


def test_a_reply_nested_without_end_is_a_protocol_error() -> None:
    value: object = None
    for _ in range(5000):
        value = {"type": "items", "kind": "list", "items": [value]}
    try:
        data = msgspec.msgpack.encode({"type": "returned", "id": 1, "value": value})
    except RecursionError:
        item = msgspec.msgpack.encode({"type": "items", "kind": "list", "items": []})[:-1]
        data = msgspec.msgpack.encode({"type": "returned", "id": 1, "value": None})[:-1] + item * 5000
    with pytest.raises(wire.ProtocolError):
        wire.decode_reply(data)


def test_text_is_bounded_and_free_of_control_characters() -> None:
    shown = wire.bounded("a\x00b\x1b[31mc\n\td\x7f\ud800" + "x" * 10_000, 100)
    assert shown.startswith("a\\x00b\\x1b[31mc\n\td\\x7f\\ud800x")
    assert shown.endswith("(cut at 100 characters)")
    assert all(char.isprintable() or char in "\n\t" for char in shown)
