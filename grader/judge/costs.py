"""Deterministic cost targets: part of the verdict, measured once the tests of a part pass.

A cost is measured in every setting that code may ask for (`SETTINGS`), since a path for one of them may cost what the
others save.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from grader.errors import ContentError
from grader.host import wire
from grader.host.session import Session
from grader.judge.benchmarks import Benchmarks, CostBenchmark
from grader.judge.faults import HostTimeout, TestFault
from grader.judge.pack import Pack
from grader.judge.testing import Rng, Trial, running, test_seed
from grader.judge.trial import InProcess
from grader.judge.view import Submission
from grader.meter.child import METERS
from grader.model import CostResult, CostTarget

UNCOUNTED = (
    "counted as {value:.4g} {unit}, less than any right answer needs: the work was done outside torch's operations"
)


@dataclass(frozen=True)
class Setting:
    """How modules stand and whether gradients are kept while a cost is measured; `says` tells it from the first."""

    training: bool
    gradients: bool
    says: str


SETTINGS = (
    Setting(True, False, ""),
    Setting(False, False, "in evaluation mode"),
    Setting(True, True, "with gradients"),
)


Measured = list[tuple[Setting, float]]
"""The values of one cost, by setting."""


def measure_costs(
    pack: Pack,
    benchmarks: Benchmarks,
    parts: Sequence[int],
    submission: Callable[[], Submission],
    run_seed: int,
    device: str = "cpu",
    progress: Callable[[str], None] = lambda name: None,
) -> list[CostResult]:
    """Measure the cost targets of some parts.

    Args:
        pack: the exercise.
        benchmarks: its benchmarks.
        parts: numbers of the parts whose tests passed.
        submission: a fresh load of the learner's file, asked for at the start and after one has ended.
        run_seed: of the benchmarks' inputs.
        device: where tensors lie.
        progress: told of each target.

    Raises:
        ContentError: a benchmark itself is at fault.
    """
    found: list[CostResult] = []
    loaded: Submission | None = None
    for target, benchmark in benchmarks.costs:
        if target.part not in parts:
            continue
        progress(target.name)
        try:
            try:
                loaded = loaded or submission()
                value = cost_value(pack, benchmark, loaded, run_seed, device)
            except HostTimeout:  # the tests passed in time: a busy machine is likelier than a loop
                loaded = submission()
                value = cost_value(pack, benchmark, loaded, run_seed, device)
            found.append(judged(target, value))
        except (TestFault, wire.ProtocolError) as fault:
            loaded = None
            message = fault.message if isinstance(fault, TestFault) else f"tampering: {wire.bounded(str(fault), 200)}"
            found.append(_not_measured(target, message))
        except Exception as error:
            # The benchmark tripped over something.  If it does so over the solution too, it is our fault.
            own_cost(pack, benchmark, pack.solution, run_seed, device)
            loaded = None
            found.append(_not_measured(target, f"the benchmark could not use what was returned: {error}"))
    return found


def own_cost(pack: Pack, benchmark: CostBenchmark, source: str, run_seed: int, device: str = "cpu") -> Measured:
    """The values of one cost of source of our own, in this process.

    Raises:
        ContentError: the benchmark does not work on it.
    """
    submission = Submission(InProcess(Session(meters=METERS)), pack.reference)
    try:
        submission.load(source.encode(), f"{pack.exercise.slug}.py", run_seed)
        return cost_value(pack, benchmark, submission, run_seed, device)
    except Exception as error:
        raise ContentError(
            f"{pack.exercise.slug}: the cost benchmark {benchmark.name!r} is at fault: {type(error).__name__}: {error}"
        ) from error


def cost_value(
    pack: Pack, benchmark: CostBenchmark, submission: Submission, run_seed: int, device: str = "cpu"
) -> Measured:
    """The values of one cost, after a run that does not count, so that what a module sets up once is free.

    Raises:
        TestFault: the submission gave a wrong answer, raised or died on the way.
        ValueError: a value is no number.
    """

    def value_of(run: str, setting: Setting) -> tuple[float, bool]:
        seed = test_seed(run_seed, f"{benchmark.name}/{run}")
        torch.manual_seed(seed)
        trial = Trial(submission, seed, setting.training, setting.gradients)
        with running(trial):
            value = float(benchmark.run(submission, pack.reference, Rng(seed, device)))
        if not math.isfinite(value):
            raise ValueError(f"the cost benchmark {benchmark.name!r} returned {value}")
        return value, trial.pairs > 0

    _, has_modules = value_of("warm-up", SETTINGS[0])
    settings = [setting for setting in SETTINGS if setting.training or has_modules]
    # Inputs of its own for each, so that an answer kept from another setting is a wrong one.
    return [(setting, value_of(f"measured {setting.says}".strip(), setting)[0]) for setting in settings]


def judged(target: CostTarget, measured: Measured) -> CostResult:
    """A cost against its target: its value in the first setting that misses it, or in the first."""
    setting, value = next(
        ((setting, value) for setting, value in measured if not target.floor <= value <= target.limit), measured[0]
    )
    enough = value >= target.floor
    passed = enough and value <= target.limit
    cause = target.cause if enough else UNCOUNTED.format(value=value, unit=target.unit)
    if setting.says:
        cause = f"{cause} (measured {setting.says}; in training without gradients it is within the target)"
    return CostResult(
        target.name, value, target.limit, target.unit, passed, target.part, target.required, "" if passed else cause
    )


def _not_measured(target: CostTarget, message: str) -> CostResult:
    return CostResult(
        target.name, 0.0, target.limit, f"{target.unit} (not measured)", False, target.part, target.required, message
    )
