"""What the command line and the judge say to each other: msgpack frames over one socket."""

from __future__ import annotations

import msgspec

from grader.model import Attempt, Isolation, TestResult


class GradeOrder(msgspec.Struct, frozen=True, tag="grade"):
    """Grade one file.

    `first` names tests to run before the others, `only` (parts of names) all that are run; `timeout_seconds`
    replaces the exercise's; `diagnose` False skips naming mistakes.
    """

    exercise: str
    content_root: str
    source: bytes
    filename: str
    file: str
    part: int | None = None
    seed: int = 0
    device: str = "cpu"
    isolation: Isolation = Isolation.PROCESS
    speed: bool = False
    pdb: bool = False
    first: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    timeout_seconds: float | None = None
    diagnose: bool = True


class Started(msgspec.Struct, frozen=True, tag="started"):
    """Grading began; so many tests will run."""

    total: int


class Tested(msgspec.Struct, frozen=True, tag="tested"):
    """One test ended."""

    result: TestResult


class Diagnosing(msgspec.Struct, frozen=True, tag="diagnosing"):
    """The tests are done; known mistakes are being compared."""


class Measuring(msgspec.Struct, frozen=True, tag="measuring"):
    """A cost or a speed is being measured."""

    name: str


class Judged(msgspec.Struct, frozen=True, tag="judged"):
    """The verdict on values and costs, before the speed targets are measured."""

    attempt: Attempt


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The whole result."""

    attempt: Attempt


class Fault(msgspec.Struct, frozen=True, tag="fault"):
    """The request was wrong (code 2) or the grader failed (code 3)."""

    message: str
    hint: str
    code: int


Progress = Started | Tested | Diagnosing | Measuring | Judged
Event = Progress | Finished | Fault

encoder = msgspec.msgpack.Encoder()
order_decoder: msgspec.msgpack.Decoder[GradeOrder] = msgspec.msgpack.Decoder(GradeOrder)
event_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)
