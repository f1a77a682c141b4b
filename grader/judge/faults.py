"""What can go wrong while a hidden test runs, each with the outcome it stands for."""

from __future__ import annotations

import builtins
from typing import Any, ClassVar

from grader.host.wire import Frame, Raised
from grader.model import Mismatch, Outcome


class TestFault(Exception):
    """A hidden test ended other than by passing; `message` is a sentence for the learner."""

    __test__ = False
    outcome: ClassVar[Outcome] = Outcome.FAILED
    not_started: bool = False

    def __init__(self, message: str, mismatch: Mismatch | None = None, frames: tuple[Frame, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.mismatch = mismatch
        self.frames = frames


class CheckFailed(TestFault):
    """A comparison did not hold."""


class BadReturn(CheckFailed):
    """A call returned something of another type than the signature says, or changed its arguments."""


class MissingSymbol(TestFault):
    """The learner's file does not define a name the exercise asks for."""

    not_started = True


class HostTimeout(TestFault):
    """A call did not come back in time; its process was killed."""

    outcome = Outcome.TIMEOUT


class HostCrashed(TestFault):
    """The process of the learner's code ended before it answered."""

    outcome = Outcome.CRASHED


class HostMemory(TestFault):
    """The learner's code asked for more memory than it may have."""

    outcome = Outcome.MEMORY


class HostOutput(TestFault):
    """The learner's code printed more than it may."""

    outcome = Outcome.OUTPUT


class Tampered(TestFault):
    """The host answered in a way that only interference explains."""

    outcome = Outcome.ERROR


class LearnerRaised(TestFault):
    """The learner's code raised.  Also an instance of the built-in class that was raised, so that
    `pytest.raises(ValueError)` in a hidden test works."""

    outcome = Outcome.ERROR
    type_name: str = ""
    bases: tuple[str, ...] = ()

    @property
    def not_started(self) -> bool:  # type: ignore[override]
        """Whether this is the stub's NotImplementedError, raised by a line of the file (torch raises its own)."""
        return (
            self.type_name == "NotImplementedError"
            and bool(self.frames)
            and self.frames[-1].text.startswith("raise NotImplementedError")
        )


class TestBug(Exception):
    """A hidden test is itself at fault; never the learner's failure."""

    __test__ = False


# Exceptions that would end the judge, or carry meaning for pytest, are never raised as themselves.
_RAISABLE = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, Exception) and value not in (StopIteration, StopAsyncIteration)
}
_classes: dict[str, type[LearnerRaised]] = {}
_NO_TERMINAL = "breakpoint() has no terminal here; kit grade NAME --pdb gives it one"


def learner_raised(raised: Raised) -> TestFault:
    """The exception to raise in the judge for what was raised in the host."""
    frames = tuple(raised.frames)
    if raised.memory:
        return HostMemory(f"out of memory: {raised.message}", frames=frames)
    base = next((name for name in raised.bases if name in _RAISABLE), "Exception")
    if base not in _classes:
        _classes[base] = _joined(base)
    said = _NO_TERMINAL if raised.type_name == "bdb.BdbQuit" else raised.message
    error = _classes[base](f"{raised.type_name}: {said}" if said else raised.type_name, None, frames)
    error.type_name, error.bases = raised.type_name, tuple(raised.bases)
    return error


def _joined(base: str) -> type[LearnerRaised]:
    builtin: Any = _RAISABLE[base]
    if base in ("Exception", "UnicodeDecodeError", "UnicodeEncodeError", "UnicodeTranslateError"):
        return LearnerRaised
    try:
        return type(f"LearnerRaised{base}", (LearnerRaised, builtin), {"__test__": False})
    except TypeError:  # a built-in whose layout does not combine
        return LearnerRaised
