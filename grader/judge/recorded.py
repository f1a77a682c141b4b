"""A reference that only remembers: public tests in a student kit compare with what the solution once answered.

A tape holds, for each public test and one fixed seed, what the reference was asked
and what it answered, in the messages of `grader.host.wire`.  Played, it stands
where the reference stood; it can answer nothing else, so it gives nothing away
beyond values.  Requests are matched by what they ask and by shapes, not by
floating-point values, which differ in the last bit from one machine to another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from grader.errors import ContentError
from grader.host import wire
from grader.judge.faults import CheckFailed
from grader.judge.view import Channel, Submission

SCHEMA = 1


class Exchange(msgspec.Struct, frozen=True, array_like=True):
    """One request's digest, and the reply it got."""

    request: str
    reply: wire.Reply


class Tape(msgspec.Struct, frozen=True):
    """Everything the reference answered in the public tests of one exercise; ``seed`` is the run seed they need."""

    slug: str
    seed: int
    tests: dict[str, list[Exchange]]
    schema: int = SCHEMA


class Recorder:
    """A channel that passes requests on and keeps what went by."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.exchanges: list[Exchange] = []

    def ask(self, request: wire.Request) -> wire.Reply:
        """The channel's own reply."""
        reply = self._channel.ask(request)
        self.exchanges.append(Exchange(digest(request), reply))
        return reply


class Player:
    """A channel that gives the recorded replies, in order."""

    def __init__(self, exchanges: list[Exchange]) -> None:
        self._left: Iterator[Exchange] = iter(exchanges)

    def ask(self, request: wire.Request) -> wire.Reply:
        """The reply recorded at this place.

        Raises:
            CheckFailed: something else was asked than when it was recorded: the submission returned other shapes,
                or not what the test went on with.
        """
        exchange = next(self._left, None)
        if exchange is None or exchange.request != digest(request):
            raise CheckFailed("what was returned has another shape or kind than the solution's, so the test stops here")
        return exchange.reply


def played(tape: Tape, test_id: str, contract: Any) -> Submission:
    """The reference of one public test; ``contract`` is the stub module, for annotations.

    Raises:
        ContentError: the tape has no such test.
    """
    if test_id not in tape.tests:
        raise ContentError(f"{tape.slug}: nothing is recorded for the public test {test_id}", "unpack the kit again")
    view = Submission(Player(tape.tests[test_id]), contract)
    view.load(b"", f"{tape.slug}.py", tape.seed)
    return view


def read_tape(path: Path) -> Tape:
    """Read a tape from disk.

    Raises:
        ContentError: it is missing, damaged or of another schema.
    """
    try:
        tape = msgspec.msgpack.decode(path.read_bytes(), type=Tape)
    except (OSError, msgspec.DecodeError) as error:
        raise ContentError(
            f"{path.name} of {path.parent.name} cannot be read: {error}", "unpack the kit again"
        ) from error
    if tape.schema != SCHEMA:
        raise ContentError(f"{path.name} of {path.parent.name} was recorded by another version of the kit")
    return tape


def digest(request: wire.Request) -> str:
    """What a request asks, without the values of its tensors and floats."""
    if isinstance(request, wire.Load):
        return "load"
    plain = _without_values(msgspec.to_builtins(request, builtin_types=(bytes,)))
    return hashlib.sha256(msgspec.json.encode(plain)).hexdigest()[:16]


def _without_values(value: Any) -> Any:
    if isinstance(value, dict):
        if value.get("type") == "tensor":
            return ["tensor", value["dtype"], value["shape"], value["device"]]
        return {key: _without_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_values(item) for item in value]
    if isinstance(value, float):
        return "float"
    return "" if isinstance(value, bytes) else value
