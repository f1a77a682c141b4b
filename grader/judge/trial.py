"""Running one hidden test against one submission, and telling how it ended."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any

import torch

from grader.host import wire
from grader.host.session import Session
from grader.judge.faults import BadReturn, CheckFailed, LearnerRaised, TestBug, TestFault
from grader.judge.kernels import METER, KernelFault
from grader.judge.pack import HiddenTest, Pack
from grader.judge.testing import Rng, Trial, running, test_seed
from grader.judge.view import Submission
from grader.meter.child import METERS
from grader.model import Mismatch, Outcome

DISPLAY_NAME = "{}.py"
SPEAKING = (Outcome.FAILED, Outcome.ERROR)
"""How a test ends that saw what it did not want to see; others saw nothing, or nothing wrong."""
# How torch says that two tensors do not fit: each operation in words of its own.
_SIZES_DIFFER = re.compile(
    r".*inconsistent tensor size.*|.*The size of tensor a .*|.*shapes cannot be multiplied.*|.*size mismatch.*|"
    r".*must match the (existing )?size.*|.*[sS]izes? of tensors? must match.*",
    re.DOTALL,
)
_WHICH_DIMENSION = re.compile(r"(non-singleton |in )?dimension \d+")
# How torch says that backward() was called on a tensor outside of any graph.
_NO_GRADIENT = "does not require grad and does not have a grad_fn"


class InProcess:
    """A session in this process: for code of our own, and for `--isolation none`."""

    def __init__(self, session: Session | None = None) -> None:
        self.session = session or Session(meters=METERS)

    def ask(self, request: wire.Request) -> wire.Reply:
        """The session's answer."""
        return self.session.handle(request)


@dataclass(frozen=True)
class Ended:
    """How a test ended, and everything its comparisons saw on the way."""

    test: HiddenTest
    outcome: Outcome
    message: str = ""
    seconds: float = 0.0
    call: str = ""
    mismatch: Mismatch | None = None
    frames: tuple[wire.Frame, ...] = ()
    observations: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    not_started: bool = False
    undecided: bool = False
    """Whether it passed only because something could not be run; such a pass contradicts no mistake."""
    test_bug: str = ""
    """What the test itself did wrong (its own exception), where nothing of the learner's explains it."""

    @property
    def at_fault(self) -> bool:
        """Whether the test used the kit wrongly, whatever the submission does."""
        return bool(self.test_bug) and self.outcome is Outcome.ERROR


def run_test(pack: Pack, test: HiddenTest, submission: Submission, run_seed: int, device: str = "cpu") -> Ended:
    """Run one test against a loaded submission.  Never raises for what the submission does."""
    seed = test_seed(run_seed, test.id)
    trial = Trial(submission, seed)
    submission.meter = METER if pack.exercise.track == "kernels" else ""
    given = {"submission": submission, "reference": pack.reference_of(test), "rng": Rng(seed, device), "device": device}
    arguments = {name: given[name] for name in test.fixtures} | test.parameters
    started_ns = time.perf_counter_ns()
    outcome, message, not_started, bug = Outcome.PASSED, "", False, ""
    mismatch: Mismatch | None = None
    frames: tuple[wire.Frame, ...] = ()
    torch.default_generator.manual_seed(seed)
    try:
        with running(trial):
            test.function(**arguments)
    except TestFault as fault:
        outcome, message, mismatch, frames = fault.outcome, fault.message, fault.mismatch, fault.frames
        not_started = fault.not_started
        if isinstance(fault, KernelFault):
            trial.observe("kernel", fault.seen)
        elif not isinstance(fault, CheckFailed) or isinstance(fault, BadReturn):  # a comparison has recorded itself
            trial.observe("fault", _seen(fault))
    except TestBug as error:
        outcome, bug = Outcome.ERROR, str(error)
    except wire.ProtocolError as error:
        outcome, message = (
            Outcome.ERROR,
            f"tampering: the answer was not in the protocol ({wire.bounded(str(error), 200)})",
        )
    except AssertionError as error:
        outcome, message = Outcome.FAILED, str(error) or "an expectation did not hold"
        trial.observe("assert", message)
    except Exception as error:
        # The test tripped over a value it could not use.  Whether that is the learner's doing is
        # settled by the caller, who runs the same test on the reference.
        outcome = Outcome.FAILED
        message = f"the test could not use what was returned: {type(error).__name__}: {wire.bounded(str(error), 300)}"
        if _NO_GRADIENT in str(error):
            message = "what was returned carries no gradient: it was detached, or made anew from values"
        bug = f"{type(error).__name__}: {error}"
        trial.observe("unusable", type(error).__name__)
    seconds = (time.perf_counter_ns() - started_ns) / 1e9
    return Ended(
        test,
        outcome,
        message,
        seconds,
        submission.last_call,
        mismatch,
        frames,
        tuple(trial.observations),
        not_started,
        trial.undecided,
        bug,
    )


def _seen(fault: TestFault) -> tuple[str, str]:
    """What a fault shows of the code that met it: of the learner's own `raise` the type, since its words are theirs."""
    own = isinstance(fault, LearnerRaised) and fault.frames and fault.frames[-1].text.startswith(("raise", "assert"))
    if own and isinstance(fault, LearnerRaised):
        return "raised", fault.type_name
    return type(fault).__name__, _SIZES_DIFFER.sub(_sizes, fault.message)


def _sizes(complaint: re.Match[str]) -> str:
    """The sizes that did not fit, without torch's words for the operation that noticed."""
    numbers = re.findall(r"\d+", _WHICH_DIMENSION.sub("", complaint[0]))
    return f"sizes {' '.join(sorted(set(numbers), key=int))} differ"


def run_own(pack: Pack, source: str, tests: tuple[HiddenTest, ...], run_seed: int, device: str = "cpu") -> list[Ended]:
    """Run tests against source of our own, in this process, each on a fresh load."""
    return [run_own_test(pack, source, test, run_seed, device) for test in tests]


def run_own_test(pack: Pack, source: str, test: HiddenTest, run_seed: int, device: str = "cpu") -> Ended:
    """Run one test against source of our own, in this process, on a fresh load."""
    submission = Submission(InProcess(), pack.reference)
    try:
        submission.load(source.encode(), DISPLAY_NAME.format(pack.exercise.slug), run_seed)
    except TestFault as fault:
        return Ended(test, Outcome.ERROR, fault.message, frames=fault.frames, observations=(("load", fault.message),))
    return run_test(pack, test, submission, run_seed, device)
