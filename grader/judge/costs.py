"""Deterministic cost targets: part of the verdict, measured once the tests of a part pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

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


def own_cost(pack: Pack, benchmark: CostBenchmark, source: str, run_seed: int, device: str = "cpu") -> float:
    """The value of one cost of source of our own, in this process.

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
) -> float:
    """The value of one cost: of the second of two runs, so that what a module sets up once is not counted.

    Raises:
        TestFault: the submission gave a wrong answer, raised or died on the way.
        ValueError: the value is no number.
    """
    value = math.nan
    for run in ("warm-up", "measured"):
        seed = test_seed(run_seed, f"{benchmark.name}/{run}")
        torch.manual_seed(seed)
        with running(Trial(submission, seed)):
            value = float(benchmark.run(submission, pack.reference, Rng(seed, device)))
    if not math.isfinite(value):
        raise ValueError(f"the cost benchmark {benchmark.name!r} returned {value}")
    return value


def judged(target: CostTarget, value: float) -> CostResult:
    """A value against its target."""
    enough = value >= target.floor
    cause = target.cause if enough else UNCOUNTED.format(value=value, unit=target.unit)
    passed = enough and value <= target.limit
    return CostResult(
        target.name, value, target.limit, target.unit, passed, target.part, target.required, "" if passed else cause
    )


def _not_measured(target: CostTarget, message: str) -> CostResult:
    return CostResult(
        target.name, 0.0, target.limit, f"{target.unit} (not measured)", False, target.part, target.required, message
    )
