"""The words of the kit as frozen data: exercises, parts, mistakes, attempts, verdicts.

Nothing here does anything; every other module speaks in these types.  The
structs that cross a process boundary or end up in ``--json`` are
``msgspec.Struct`` so that one definition gives both the type and the schema.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import msgspec

INTERPRET_VARIABLE = "TRITON_INTERPRET"
"""1 where Triton's kernels are interpreted, 0 where they are compiled for the GPU that is there."""


class Outcome(StrEnum):
    """How one hidden test ended."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    MEMORY = "memory"
    OUTPUT = "output"
    SKIPPED = "skipped"


class Isolation(StrEnum):
    """What stands between the learner's code and the judge."""

    NONE = "none"
    PROCESS = "process"
    BWRAP = "bwrap"


class SpeedVerdict(StrEnum):
    """What the interval of a paired ratio says about its target."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Part:
    """One rung of an exercise: number from 1, title, points, the symbols it asks for, what reveals wait for."""

    number: int
    title: str
    points: int
    symbols: tuple[str, ...]


@dataclass(frozen=True)
class Edit:
    """One replacement in a solution's text; ``find`` occurs exactly ``count`` times."""

    find: str
    replace: str
    count: int = 1


@dataclass(frozen=True)
class Mistake:
    """A known wrong variant of a solution, as replacements in its text."""

    id: str
    title: str
    part: int
    edits: tuple[Edit, ...]
    says: str
    hint: str
    seen_in: str = ""
    kind: str = "wrong"  # "wrong": values differ; "costly": right values, a cost target fails


@dataclass(frozen=True)
class CostTarget:
    """A limit on a deterministic cost, as a ratio; ``required`` False is a stretch, shown only.

    A value under ``floor`` is no result: so little was counted that the work must have been done
    where nothing counts it.
    """

    name: str
    part: int
    limit: float
    unit: str
    required: bool = True
    cause: str = ""
    floor: float = 0.0


@dataclass(frozen=True)
class SpeedTarget:
    """A limit on the paired time ratio of a benchmark in ``benchmarks.py``.

    Attributes:
        device: where it is measured; empty for wherever the tests run.
        moved_bytes: what one call must move, for a kernel's share of the device's bandwidth; 0 where it has none.
        flops: matrix operations of one call.
    """

    name: str
    part: int
    target: float
    cause: str = ""
    device: str = ""
    moved_bytes: float = 0.0
    flops: float = 0.0

    def applies_to(self, device: str) -> bool:
        """Whether it is measured on this device."""
        return self.device in ("", device)


@dataclass(frozen=True)
class GrowthTarget:
    """A limit on the exponent with which a benchmark's time grows with its size.

    ``relative`` True: on how much larger it may be than the reference's.
    """

    name: str
    part: int
    limit: float
    relative: bool = False
    cause: str = ""


@dataclass(frozen=True)
class Exercise:
    """One exercise folder, read from disk and checked."""

    slug: str
    title: str
    track: str
    stars: int
    minutes: int
    source: str
    parts: tuple[Part, ...]
    given: tuple[str, ...]
    folder: Path
    solution_path: Path
    timeout_seconds: float = 5.0
    reveal_after_attempts: int = 3
    reveal_after_minutes: int = 20
    costs: tuple[CostTarget, ...] = ()
    speeds: tuple[SpeedTarget, ...] = ()
    growths: tuple[GrowthTarget, ...] = ()
    symbols_minutes: dict[str, int] = field(default_factory=dict)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Every public name the learner writes, in the order of the parts."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.symbols))

    @property
    def max_points(self) -> int:
        """The sum of the parts' points."""
        return sum(part.points for part in self.parts)


class Mismatch(msgspec.Struct, frozen=True):
    """Where two values differ: worst element, error there, what was allowed, slices around it."""

    what: str
    where: str = ""
    error: float = 0.0
    allowed: float = 0.0
    actual: str = ""
    expected: str = ""
    actual_shape: str = ""
    expected_shape: str = ""


class TestResult(msgspec.Struct, frozen=True):
    """The verdict of one hidden test.

    ``call`` is the learner's call as text with shapes; ``trace`` holds only lines of
    the learner's file; ``printed`` is what the learner's code printed, bounded and escaped.
    """

    id: str
    part: int
    outcome: Outcome
    message: str = ""
    seconds: float = 0.0
    call: str = ""
    mismatch: Mismatch | None = None
    trace: tuple[str, ...] = ()
    printed: str = ""
    not_started: bool = False
    """True when the test met nothing but the stub's NotImplementedError or a missing symbol."""


class PartResult(msgspec.Struct, frozen=True):
    """Whether every test of a part passed."""

    number: int
    title: str
    passed: bool
    points: int = 0


class Diagnosis(msgspec.Struct, frozen=True):
    """A known mistake that explains failures: the tests it explains, why, and what to try."""

    mistake: str
    title: str
    says: str
    tests: tuple[str, ...]
    hint: str = ""


class CostResult(msgspec.Struct, frozen=True):
    """One deterministic cost against its limit."""

    name: str
    value: float
    limit: float
    unit: str
    passed: bool
    part: int = 1
    required: bool = True
    cause: str = ""


class SpeedResult(msgspec.Struct, frozen=True):
    """One paired time ratio with its bootstrap 95% interval against its target.

    With another ``unit`` than a ratio of times, ``ratio`` is the exponent of a growth.
    """

    name: str
    device: str
    ratio: float
    low: float
    high: float
    target: float
    verdict: SpeedVerdict
    part: int = 1
    cause: str = ""
    unit: str = "x the reference's time"


class Attempt(msgspec.Struct, frozen=True):
    """One graded file: what ``--json`` prints (see ``grader.cli.render``)."""

    exercise: str
    file: str
    seed: int
    device: str
    isolation: Isolation
    seconds: float
    passed: bool
    points: int
    max_points: int
    parts: tuple[PartResult, ...]
    tests: tuple[TestResult, ...]
    diagnosis: tuple[Diagnosis, ...] = ()
    costs: tuple[CostResult, ...] = ()
    speed: tuple[SpeedResult, ...] = ()
    notes: tuple[str, ...] = ()
    load_error: str = ""
    ran_on: str = ""
    """For kernels: which tiers ran, in words."""


@dataclass(frozen=True)
class Skipped:
    """Something that was not judged, and why."""

    reason: str
