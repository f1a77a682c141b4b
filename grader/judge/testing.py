"""What a hidden test may use: the names injected into `hidden_tests.py` (see CONTRIBUTING.md).

A `Trial` is one run of one test against one submission.  Every comparison
records what it saw, so that the same test can be run against a known mistake
and the two records compared (`grader.judge.diagnose`).
"""

from __future__ import annotations

import contextlib
import random
import re
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from grader.judge import compare, kernels
from grader.judge.faults import CheckFailed, LearnerRaised, MissingSymbol, TestBug, TestFault
from grader.judge.view import RemoteClass, RemoteObject, Submission
from grader.meter.child import ONE_DEVICE
from grader.meter.triton_records import MeterReport
from grader.model import Mismatch


@dataclass
class Trial:
    """One run of one hidden test: what was called and what the comparisons saw."""

    submission: Submission
    seed: int = 0
    training: bool = True
    """The mode that `pair` leaves modules in."""
    gradients: bool = False
    """Whether a metered call keeps gradients on."""
    observations: list[tuple[str, Any]] = field(default_factory=list)
    pairs: int = 0
    undecided: bool = False
    """Whether a call could not be run where it would have shown something (see `on_meta`)."""

    def observe(self, kind: str, value: Any) -> None:
        """Record what a comparison saw, gradients dropped."""
        self.observations.append((kind, _detached(value)))


_current: ContextVar[Trial] = ContextVar("trial")  # of this thread: tests run side by side
_drawing = threading.Lock()


@contextlib.contextmanager
def running(trial: Trial) -> Iterator[Trial]:
    """Make `trial` the one that `close`, `same`, `check` and `raises` report to."""
    token = _current.set(trial)
    try:
        yield trial
    finally:
        _current.reset(token)


def current_trial() -> Trial:
    """The trial of this thread.

    Raises:
        TestBug: no test is running.
    """
    try:
        return _current.get()
    except LookupError:
        raise TestBug("a comparison ran outside a test") from None


# ------------------------------------------------------------------------------------- comparisons


def close(
    actual: Any, expected: Any, says: str = "", tol: float | None = None, dtype: bool = True, trivial_ok: bool = False
) -> None:
    """Fail unless `actual` equals `expected` to a tolerance made from the dtype.

    Args:
        actual: what the submission returned: a tensor, a number, or a tuple of them.
        expected: what is right.
        says: a sentence for the learner: what this comparison means.
        tol: relative tolerance in place of the dtype's.
        dtype: whether dtypes must agree too.
        trivial_ok: allow an expected value that a constant or a copy of an input would match.
    """
    trial = current_trial()
    trial.observe("close", actual)
    if not trivial_ok:
        compare.refuse_trivial(expected, trial.submission.inputs)
    if found := compare.mismatch(actual, expected, tol, dtype):
        raise CheckFailed(says or "the values differ", found)


def same(actual: Any, expected: Any, says: str = "", dtype: bool = True) -> None:
    """Fail unless `actual` is exactly `expected` (ints, bools, lists, integer tensors, None)."""
    trial = current_trial()
    trial.observe("same", actual)
    if found := compare.differs(actual, expected, dtype):
        raise CheckFailed(says or "the values differ", found)


def check(condition: Any, says: str, seen: Any = None) -> None:
    """Fail with the sentence `says` unless `condition`; `seen` is the observed value it rests on."""
    holds = bool(condition)
    current_trial().observe("check", (holds, seen))
    if not holds:
        raise CheckFailed(says, None if seen is None else Mismatch("observed", actual=compare.noun(seen)))


@contextlib.contextmanager
def raises(expected: type[Exception], says: str = "") -> Iterator[None]:
    """Fail unless the submission raises `expected` inside the block."""
    trial = current_trial()
    try:
        yield
    except LearnerRaised as error:
        trial.observe("raises", error.type_name)
        if isinstance(error, expected):
            return
        if error.not_started:
            raise
        raise CheckFailed(
            f"{says or 'a bad argument'}: must raise {expected.__name__}, and raised {error.message}",
            frames=error.frames,
        ) from None
    trial.observe("raises", "nothing")
    raise CheckFailed(f"{says or 'a bad argument'}: must raise {expected.__name__}, and nothing was raised")


def cost(report: MeterReport, ideal_bytes: float, says: str, rereads: Sequence[str] = (), limit: float = 1.1) -> None:
    """Fail unless a metered call moved at most `limit` times `ideal_bytes`, in 32-byte sectors that are used.

    `rereads` names arguments that do not grow with the rows: programs may read them again (shown, not counted).
    """
    holds, text, seen = kernels.check_cost(report, ideal_bytes, tuple(rereads), limit)
    check(holds, f"{says}: {text}", seen)


def compiles(reports: Sequence[MeterReport], says: str = "the kernels compile for sm_80 and sm_90") -> None:
    """Fail unless every kernel compiles as it was launched, spills nothing and fits into shared memory."""
    submission = current_trial().submission
    signatures = tuple(dict.fromkeys(one for report in reports for one in report.signatures))
    problems = kernels.compiled(submission.source.decode("utf-8-sig"), signatures).problems
    check(
        not problems, "; ".join((says, *problems[:2])), tuple(problem.partition(" does not")[0] for problem in problems)
    )


# -------------------------------------------------------------------------------------- helpers


def part(number: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a test as belonging to part `number`."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function.kit_part = number  # type: ignore[attr-defined]
        return function

    return mark


def pair(
    mine: RemoteClass | Callable[..., Any],
    ref: Callable[..., Any],
    *args: Any,
    dtype: torch.dtype | None = None,
    keep: Sequence[str] = (),
    **kwargs: Any,
) -> tuple[Any, Any]:
    """Build the learner's and the reference's object with the same weights, by state_dict name.

    Every floating parameter is redrawn (normal, scaled by fan-in, around 1 where the reference starts at 1),
    so that ones and zeros hide nothing; names that end with one of `keep` stay as the reference has them.
    """
    learner = mine(*args, **kwargs)
    trial = current_trial()
    trial.pairs += 1
    generator = torch.Generator().manual_seed((trial.seed + trial.pairs) % 2**63)
    # A reference's own initialisation draws from torch's generator, which the tests beside this one share.
    with _drawing, torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(trial.seed % 2**63)
        reference = ref(*args, **kwargs)
        parameters = _parameters(reference)
        for name, parameter in parameters.items():
            if any(name.endswith(kept) for kept in keep):
                continue
            fan_in = parameter.shape[-1] if parameter.dim() > 1 else 4
            centre = 1.0 if parameter.dim() == 1 and bool((parameter == 1).all()) else 0.0
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / fan_in**0.5
            parameter.copy_(centre + noise)
        if isinstance(reference, RemoteObject):  # a recorded reference: what was drawn are copies
            reference.load_state_dict(parameters)
    if dtype is not None:
        reference = reference.to(dtype)
        learner.to(dtype)
    learner.load_state_dict({name: tensor.detach() for name, tensor in reference.state_dict().items()})
    if not trial.training:
        learner.eval()
        reference.eval()
    return learner, reference


def _parameters(module: Any) -> dict[str, torch.Tensor]:
    """A reference's parameters by name, to be written to; of a recorded one, copies of them."""
    if isinstance(module, RemoteObject):
        state = module.state_dict()
        return {name: state[name] for name in module.parameter_names()[0]}
    return dict(module.named_parameters())


def grads(module: Any) -> dict[str, torch.Tensor | None]:
    """Gradients of a submission's or a reference's parameters, by name."""
    if isinstance(module, RemoteObject):
        return module.grads()
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor outside the graph."""
    return tensor.detach().clone()


# How torch says that tensors of two devices met; anything else that `meta` cannot do is no fault of the learner's.
_DEVICE_COMPLAINTS = (
    "same device",
    "different device",
    "on device meta",
    "but got cpu",
    "is on cpu",
    "device cpu",
    "mixed device",
)

# Writing a meta tensor into one of the CPU says this; so does reading its value, which is no fault of a device.
_COPIED_OUT = "cannot copy out of meta tensor"
_READS_A_VALUE = re.compile(
    r"\.(cpu|tolist|numpy|item|to)\(|\b(float|int|bool|list|tuple|set|sorted|min|max|range)\(|^(if|elif|while|for|assert)\b"
)


def on_meta(call: Callable[[], Any], says: str = "") -> Any:
    """Run `call`, whose tensors and modules are on the meta device; fail where another device came in.

    Returns the result, or None where a data-dependent step cannot run on meta.
    """
    trial = current_trial()
    says = says or "a tensor was made on another device than the input's"
    trial.submission.under = ONE_DEVICE
    try:
        result = call()
    except LearnerRaised as error:
        if error.not_started:
            raise
        text = error.message.lower()
        device_fault = any(complaint in text for complaint in _DEVICE_COMPLAINTS) or (
            _COPIED_OUT in text and not (error.frames and _READS_A_VALUE.search(error.frames[-1].text))
        )
        trial.observe("meta", device_fault)
        if device_fault:
            raise CheckFailed(f"{says}: {error.message}", frames=error.frames) from None
        trial.undecided = True
        return None
    finally:
        trial.submission.under = ""
    strangers = {tensor.device.type for tensor in _tensors(result)} - {"meta"}
    trial.observe("meta", bool(strangers))
    if strangers:
        raise CheckFailed(f"{says}: the result is on {', '.join(sorted(strangers))}")
    return result


@contextlib.contextmanager
def spoiled() -> Iterator[None]:
    """In the block, what went into a call and what came out of it is overwritten, as a caller does with his own memory.

    What the submission keeps of either without copying it is then no longer what it was.
    """
    submission = current_trial().submission
    submission.spoils = True
    try:
        yield
    finally:
        submission.spoils = False


class Rng:
    """Seeded draws for one test, on the device under test."""

    def __init__(self, seed: int, device: str = "cpu") -> None:
        self._device = device
        self._generator = torch.Generator().manual_seed(seed)
        self._python = random.Random(seed)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Standard normal draws."""
        return torch.randn(shape, generator=self._generator, dtype=torch.float64).to(dtype).to(self._device)

    def uniform(self, low: float, high: float, *shape: int, dtype: torch.dtype = torch.float32) -> Any:
        """Uniform draws in [low, high); a Python float without a shape."""
        if not shape:
            return self._python.uniform(low, high)
        drawn = low + (high - low) * torch.rand(shape, generator=self._generator, dtype=torch.float64)
        return drawn.to(dtype).to(self._device)

    def integers(self, low: int, high: int, *shape: int) -> Any:
        """Integers in [low, high); a Python int without a shape, else an int64 tensor."""
        if not shape:
            return self._python.randrange(low, high)
        return torch.randint(low, high, shape, generator=self._generator).to(self._device)

    def choice(self, options: Sequence[Any]) -> Any:
        """One of the options."""
        return self._python.choice(options)

    def permutation(self, count: int) -> torch.Tensor:
        """A random order of 0..count-1."""
        return torch.randperm(count, generator=self._generator).to(self._device)

    def generator(self) -> torch.Generator:
        """A fresh CPU generator with a seed of its own."""
        return torch.Generator().manual_seed(self._python.randrange(2**62))


def test_seed(run_seed: int, name: str) -> int:
    """The seed of one test in one run."""
    return (run_seed * 1_000_003 + zlib.crc32(name.encode())) % 2**62


test_seed.__test__ = False  # type: ignore[attr-defined]

INJECTED: dict[str, Any] = {
    "part": part,
    "pair": pair,
    "close": close,
    "same": same,
    "check": check,
    "raises": raises,
    "grads": grads,
    "plain": plain,
    "on_meta": on_meta,
    "spoiled": spoiled,
    "cost": cost,
    "compiles": compiles,
    "pytest": pytest,
    "torch": torch,
}


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)


def _detached(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, tuple | list):
        return type(value)(_detached(item) for item in value)
    return value


__all__ = ["INJECTED", "MissingSymbol", "Rng", "TestFault", "Trial", "running", "test_seed"]
