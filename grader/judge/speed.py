"""Speed and growth targets: the submission and the reference in turn, each in a host of its own."""

from __future__ import annotations

import inspect
import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np
import torch

from grader.errors import ContentError, GraderFault
from grader.host import limits, wire
from grader.host.process import Host, HostLost
from grader.judge.benchmarks import Benchmarks, Draw, GrowthBenchmark, SpeedBenchmark
from grader.judge.faults import TestFault
from grader.judge.pack import Pack
from grader.judge.timing import PARALLEL, Comparison, TimedSide
from grader.judge.view import Submission
from grader.meter.device_share import achieved_on, device_peaks
from grader.meter.growth import measure_growth
from grader.meter.paired import MAX_REPETITIONS, PairedRatio, measure_pair, verdict_of
from grader.model import GrowthTarget, SpeedResult, SpeedTarget, SpeedVerdict

BUDGET_SECONDS = 10.0
SAMPLE_SECONDS = 20.0
"""One sample may take this long; what takes longer has failed by far."""
TIMED_MEMORY_BYTES = 3072 * limits.MEBIBYTE


class Hosts(Protocol):
    """Starts processes (see `grader.host.process.Zygote`)."""

    @property
    def pid(self) -> int:
        """The process below which they run."""
        ...

    def host(self, bounds: limits.Limits) -> Host:
        """A fresh host."""
        ...


class SpeedJudge:
    """Measures one submission's speed targets.

    Args:
        pack: the exercise.
        mine: starts hosts for the submission.
        theirs: starts hosts for the reference, where no submission's code ever ran.
        load: the submission's file.
        device: cpu or cuda.
        budget_seconds: at most this long per target.
    """

    def __init__(
        self,
        pack: Pack,
        mine: Hosts,
        theirs: Hosts,
        load: wire.Load,
        device: str = "cpu",
        budget_seconds: float = BUDGET_SECONDS,
    ) -> None:
        self._pack, self._mine, self._theirs, self._load = pack, mine, theirs, load
        self._device, self._budget_seconds = device, budget_seconds
        self._bounds = limits.Limits(memory_bytes=TIMED_MEMORY_BYTES)
        self.notes: list[str] = []
        """What is worth telling beside the verdicts: how near a kernel came to what the device can do."""

    def measure(
        self, benchmarks: Benchmarks, parts: Sequence[int], progress: Callable[[str], None] = lambda name: None
    ) -> list[SpeedResult]:
        """Measure the speed and growth targets of some parts.

        Args:
            benchmarks: the exercise's.
            parts: numbers of the parts that hold otherwise.
            progress: told of each target.

        Raises:
            GraderFault: the reference's host cannot be used.
            ContentError: a benchmark is at fault.
        """
        found: list[SpeedResult] = []
        for target, benchmark in benchmarks.speeds:
            if target.part in parts and target.applies_to(self._device):
                progress(target.name)
                found.append(self.speed(target, benchmark))
        for growth_target, growth_benchmark in benchmarks.growths:
            if growth_target.part in parts:
                progress(growth_target.name)
                found.append(self.growth(growth_target, growth_benchmark))
        return found

    def speed(self, target: SpeedTarget, benchmark: SpeedBenchmark) -> SpeedResult:
        """Measure one paired ratio."""
        try:
            with self._sides() as sides:
                comparison = self._compare(sides, _sided(benchmark), benchmark.backward)
                most = min(MAX_REPETITIONS, comparison.most_repetitions())
                sides.mine.start_accounts()
                found = measure_pair(
                    comparison.sample_mine,
                    comparison.sample_theirs,
                    target.target,
                    self._budget_seconds,
                    np.random.default_rng(secrets.randbits(64)),
                    max_repetitions=most,
                    overhead_share=comparison.overhead_share,
                )
                return self._judged(target, found, sides.mine.threads_used())
        except TestFault as fault:
            return self._faulty(target.name, target.target, target.part, fault)

    def growth(self, target: GrowthTarget, benchmark: GrowthBenchmark) -> SpeedResult:
        """Fit one exponent."""
        unit = "exponent, less the reference's" if target.relative else "exponent"
        try:
            with self._sides() as sides:
                comparisons = {size: self._compare(sides, _sized(benchmark, size), False) for size in benchmark.sizes}
                most = {size: min(MAX_REPETITIONS, each.most_repetitions()) for size, each in comparisons.items()}
                found = measure_growth(
                    lambda size, repetitions, draw: comparisons[size].sample_mine(repetitions, draw),
                    benchmark.sizes,
                    target.limit,
                    self._budget_seconds,
                    np.random.default_rng(secrets.randbits(64)),
                    (lambda size, repetitions, draw: comparisons[size].sample_theirs(repetitions, draw))
                    if target.relative
                    else None,
                    max_repetitions=most.__getitem__,
                )
        except TestFault as fault:
            return self._faulty(target.name, target.limit, target.part, fault, unit)
        return SpeedResult(
            target.name,
            self._device,
            found.exponent,
            found.low,
            found.high,
            target.limit,
            found.verdict,
            target.part,
            _cause(found.verdict, target.cause),
            unit,
        )

    # ------------------------------------------------------------------------------ building

    @contextmanager
    def _sides(self) -> Iterator[_Sides]:
        """Both hosts with their files loaded, killed at the end."""
        solution = wire.Load(self._pack.solution.encode(), self._load.filename, self._load.seed)
        hosts: list[Host] = []
        try:
            made = []
            for zygote, load, trusted in ((self._mine, self._load, False), (self._theirs, solution, True)):
                host = zygote.host(self._bounds)
                hosts.append(host)
                side = TimedSide(host, SAMPLE_SECONDS, trusted)
                if not trusted:
                    side.watch(zygote.pid)
                view = Submission(_Channel(host, self._pack.exercise.timeout_seconds, trusted), self._pack.reference)
                view.load(load.source, load.filename, load.seed)
                made.append((side, view))
            yield _Sides(*made[0], *made[1])
        finally:
            for host in hosts:
                host.kill()

    def _compare(self, sides: _Sides, build: _Building, backward: bool) -> Comparison:
        """A benchmark built three times, all with the same weights."""
        try:
            local, my_draw = build(self._pack.reference, "submission")
            theirs_local, their_draw = build(self._pack.reference, "reference")
            theirs, _ = build(sides.their_module, "reference")
            _give_weights(theirs_local, theirs, self._device)
        except (TestFault, TypeError, AttributeError, ValueError) as error:
            raise ContentError(f"{self._pack.exercise.slug}: a speed benchmark is at fault: {error}") from error
        mine, _ = build(sides.my_module, "submission")
        _give_weights(local, mine, self._device)
        return Comparison(
            (sides.mine, mine, my_draw), (sides.theirs, theirs, their_draw), local, self._device, backward
        )

    # ------------------------------------------------------------------------------ verdicts

    def _judged(self, target: SpeedTarget, found: PairedRatio, threads: float) -> SpeedResult:
        ratio, low, high, verdict = found.ratio, found.low, found.high, found.verdict
        cause = _cause(verdict, target.cause)
        if threads > PARALLEL:
            # What several threads did at once is charged as one thread would have taken.
            ratio, low, high = ratio * threads, low * threads, high * threads
            verdict = verdict_of(low, high, target.target)
            cause = f"the timed calls kept {threads:.1f} threads busy, and are charged for all of them"
        if self._device == "cuda" and target.moved_bytes and math.isfinite(ratio):
            achieved = achieved_on(device_peaks(), target, ratio * found.reference_ns)
            self.notes.append(f"{target.name}: {achieved.words}")
            if achieved.problem:
                verdict, cause = SpeedVerdict.FAIL, achieved.problem
        return SpeedResult(target.name, self._device, ratio, low, high, target.target, verdict, target.part, cause)

    def _faulty(self, name: str, target: float, part: int, fault: TestFault, unit: str = "") -> SpeedResult:
        result = SpeedResult(
            name, self._device, math.inf, math.inf, math.inf, target, SpeedVerdict.FAIL, part, fault.message
        )
        return msgspec.structs.replace(result, unit=unit) if unit else result


@dataclass(frozen=True)
class _Sides:
    """Both hosts and the modules in them."""

    mine: TimedSide
    my_module: Submission
    theirs: TimedSide
    their_module: Submission


_Building = Callable[[Any, str], tuple[Any, Draw]]


class _Channel:
    """A host as something to ask while a benchmark is being built."""

    def __init__(self, host: Host, seconds: float, trusted: bool) -> None:
        self._host, self._seconds, self._trusted = host, seconds, trusted

    def ask(self, request: wire.Request) -> wire.Reply:
        try:
            return self._host.ask(request, time.monotonic() + self._seconds)
        except HostLost as lost:
            if self._trusted:
                raise GraderFault(f"the reference's host ended: {lost.detail}", "grade again") from None
            raise TestFault(f"the process of the timed code ended: {lost.detail}") from None


def _sized(benchmark: GrowthBenchmark, size: int) -> _Building:
    if len(inspect.signature(benchmark.build).parameters) > 2:
        return lambda module, side: benchmark.build(module, size, side)
    return lambda module, side: benchmark.build(module, size)


def _sided(benchmark: SpeedBenchmark) -> _Building:
    """With the side where the benchmark asks for it."""
    if len(inspect.signature(benchmark.build).parameters) > 1:
        return benchmark.build
    return lambda module, side: benchmark.build(module)


def _give_weights(local: Any, remote: Any, device: str) -> None:
    """Give the host's module the weights of the one here."""
    owner = getattr(local, "__self__", local)
    _, _, remote_owner = remote.wire_place
    if not isinstance(owner, torch.nn.Module) or remote_owner is None or not remote_owner.is_module:
        return
    remote_owner.load_state_dict({name: tensor.detach() for name, tensor in owner.state_dict().items()})
    if device != "cpu":
        owner.to(device)
        remote_owner.to(torch.device(device))


def _cause(verdict: SpeedVerdict, cause: str) -> str:
    if verdict is SpeedVerdict.INCONCLUSIVE:
        return "the machine was too busy to tell; this is no failure"
    return cause if verdict is SpeedVerdict.FAIL else ""
