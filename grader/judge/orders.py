"""What the command line and the judge say to each other: msgpack frames over one socket."""

from __future__ import annotations

import msgspec

from grader.model import Attempt, Isolation, TestResult


class GradeOrder(msgspec.Struct, frozen=True, tag="grade"):
    """Grade one file.

    `first` names tests to run before the others, `only` (parts of names) all that are run; `timeout_seconds`
    replaces the exercise's; `diagnose` False skips naming mistakes; `lanes` is how many tests may run side by side.
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
    lanes: int = 1


class ProveOrder(msgspec.Struct, frozen=True, tag="prove"):
    """Run a learner's own tests against the solution, right answers written otherwise, and every known mistake."""

    exercise: str
    content_root: str
    tests: bytes
    filename: str
    seed: int = 0
    isolation: Isolation = Isolation.PROCESS


class ProofResult(msgspec.Struct, frozen=True):
    """What a learner's tests did to one module: the ids of the tests that failed, or why none could run."""

    kind: str
    name: str
    failed: tuple[str, ...] = ()
    total: int = 0
    trouble: str = ""
    messages: tuple[str, ...] = ()


class Proved(msgspec.Struct, frozen=True, tag="proved"):
    """The learner's tests have met every module: kinds solution, right and mistake."""

    results: tuple[ProofResult, ...]


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
    """The verdict so far: on the tests alone; when `whole`, with mistakes named and costs held to their targets."""

    attempt: Attempt
    whole: bool = True


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The whole result."""

    attempt: Attempt


class Fault(msgspec.Struct, frozen=True, tag="fault"):
    """The request was wrong (code 2) or the grader failed (code 3)."""

    message: str
    hint: str
    code: int


Progress = Started | Tested | Diagnosing | Measuring | Judged
Event = Progress | Finished | Proved | Fault
Order = GradeOrder | ProveOrder

encoder = msgspec.msgpack.Encoder()
order_decoder: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
event_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)
