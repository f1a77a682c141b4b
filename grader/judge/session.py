"""Grading one file after another with a warm zygote: tests in hosts, several side by side; verdicts formed here."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import torch

from grader.catalogue import Catalogue, read_mistakes
from grader.errors import GraderFault, RequestError
from grader.host import limits, wire
from grader.host.process import Host, HostLost, Zygote
from grader.host.session import Session
from grader.judge import kernels
from grader.judge.diagnose import VariantRuns, diagnose
from grader.judge.lanes import HostChannel, HostedTests, Ran, load_end, load_sentence, loaded
from grader.judge.orders import Diagnosing, GradeOrder, Judged, Progress, Started, Tested
from grader.judge.pack import HiddenTest, Pack, load_pack
from grader.judge.targets import Targets
from grader.judge.trial import Ended, InProcess, run_own_test, run_test
from grader.judge.view import Submission
from grader.meter.child import METERS
from grader.model import Attempt, Diagnosis, Exercise, Isolation, Outcome, PartResult, TestResult

PUBLIC_ONLY = "these are the public tests alone; your instructor grades with more"
CUDA_SLACK = 4
"""Every host opens the device anew: seconds, and gigabytes of the driver's own."""
COST_DEADLINE = 8
"""Deadlines of a test that measuring a cost may take: up to four runs of several calls, each slowed by the meter to a
multiple of its time.  The tests have passed by then, so that it is a bound and no judgement."""


class Judge:
    """Grades orders; keeps the zygote and the packs warm."""

    def __init__(self, zygotes: dict[Isolation, Zygote], reference_zygote: Zygote) -> None:
        self._zygotes = zygotes
        self._reference_zygote = reference_zygote
        self._starting = threading.Lock()
        self._targets = Targets(self._their_zygote)
        self._bounds = limits.Limits()
        self._packs: dict[str, Pack] = {}
        self._content_root: Path | None = None
        self._runs: dict[tuple[str, int, str], VariantRuns] = {}

    def close(self) -> None:
        """End every zygote and host."""
        for zygote in (*self._zygotes.values(), self._reference_zygote):
            zygote.close()

    def grade(self, order: GradeOrder, progress: Callable[[Progress], None]) -> Attempt:
        """Grade one file.

        Raises:
            RequestError: no such part or device.
            GraderFault: a hidden test is itself at fault, or hosts cannot be started.
        """
        started = time.monotonic()
        order = msgspec.structs.replace(order, device=_device(order.device))
        pack = self.pack(order)
        if order.device == "cuda" and order.timeout_seconds is None:
            order = msgspec.structs.replace(order, timeout_seconds=CUDA_SLACK * pack.exercise.timeout_seconds)
        if pack.tape is not None:  # a recorded reference knows one seed
            order = msgspec.structs.replace(order, seed=pack.tape.seed)
        on_kernels = pack.exercise.track == "kernels"
        if on_kernels and order.isolation is not Isolation.NONE and kernels.interpreted():
            self.zygote(order.isolation).prepare(kernels.INTERPRETER)
        self._targets.prepare(pack.exercise)
        tests = self._chosen(pack, order)
        progress(Started(len(tests)))
        load_error = ""
        ended: list[Ended] = []
        results: list[TestResult] = []
        for ran in self._run(pack, tests, order):
            if ran.load_fault:
                load_error = ran.load_fault
                results = [self._not_loaded(test, ran.end) for test in tests]
                for result in results:
                    progress(Tested(result))
                break
            ended.append(ran.end)
            results.append(_result(ran.end, ran.printed))
            progress(Tested(results[-1]))
        self._settle_bugs(pack, ended, order)
        progress(Judged(_attempt(pack.exercise, order, results, (), load_error), whole=False))
        named: tuple[Diagnosis, ...] = ()
        if order.diagnose and any(end.outcome is not Outcome.PASSED for end in ended):
            progress(Diagnosing())
            named = diagnose(pack, ended, self.runs(pack, order))
        attempt = _attempt(pack.exercise, order, results, named, load_error)
        if pack.tape is not None:
            attempt = msgspec.structs.replace(attempt, notes=(*attempt.notes, PUBLIC_ONLY))
        if on_kernels:
            attempt = msgspec.structs.replace(
                attempt,
                ran_on=kernels.ran_on(results, order.device),
                notes=(
                    *attempt.notes,
                    *kernels.notes(pack.exercise.folder, order.source.decode("utf-8-sig", "replace")),
                ),
            )
        loads = functools.partial(self._loads, pack, order)
        mine = functools.partial(self.zygote, order.isolation)
        attempt = self._targets.measure(pack, attempt, order, loads, mine, progress)
        return msgspec.structs.replace(attempt, seconds=round(time.monotonic() - started, 3))

    def pack(self, order: GradeOrder) -> Pack:
        """The exercise's pack, loaded once."""
        self._content_root = Path(order.content_root)
        key = f"{order.content_root}:{order.exercise}"
        if key not in self._packs:
            exercise = Catalogue(Path(order.content_root)).exercise(order.exercise)
            if exercise.track == "kernels" and (reason := kernels.why_not()):
                raise RequestError(f"{exercise.slug} is a GPU-kernel challenge: {reason}", "the other tracks work here")
            self._packs[key] = load_pack(exercise, read_mistakes(exercise))
            gc.freeze()  # a collection amid tests would look through all of it: a tenth of a second
        return self._packs[key]

    def runs(self, pack: Pack, order: GradeOrder) -> VariantRuns:
        """The variants' endings under the order's seed, kept while the seed stays."""
        key = (pack.exercise.slug, order.seed, order.device)
        if key not in self._runs:
            self._runs = {key: VariantRuns(pack, order.seed, order.device)}
        return self._runs[key]

    def zygote(self, isolation: Isolation) -> Zygote:
        """A living zygote of this isolation level."""
        with self._starting:
            found = self._zygotes.get(isolation)
            if found is None or not found.alive:
                if found is not None:
                    found.close()
                found = self._zygotes[isolation] = Zygote.executed(isolation)
            if self._content_root is not None:
                found.lock(self._content_root)
            return found

    def _their_zygote(self) -> Zygote:
        """Where hosts of the reference come from: of a zygote that never starts a submission."""
        if not self._reference_zygote.alive:
            self._reference_zygote = Zygote.executed(Isolation.PROCESS)
        return self._reference_zygote

    # ---------------------------------------------------------------------------- one attempt

    @contextlib.contextmanager
    def _loads(self, pack: Pack, order: GradeOrder) -> Iterator[Callable[[], Submission]]:
        """Fresh loads of the submission, each in a host of its own where there are hosts; all end with the block."""
        load = wire.Load(order.source, order.filename, order.seed)
        hosts: list[Host] = []
        bounds = self._bounds_on(order.device)

        def fresh() -> Submission:
            if order.isolation is Isolation.NONE:
                own = Submission(InProcess(Session(meters=METERS)), pack.reference)
                own.load(load.source, load.filename, load.seed)
                return own
            hosts.append(self.zygote(order.isolation).host(bounds))
            with contextlib.suppress(HostLost):
                hosts[-1].await_ready()
            channel = HostChannel(hosts[-1], bounds.load_seconds, bounds)
            submission = Submission(channel, pack.reference)
            submission.load(load.source, load.filename, load.seed)
            seconds = order.timeout_seconds or pack.exercise.timeout_seconds
            channel.start_clock(COST_DEADLINE * seconds * max(1, len(pack.exercise.costs)))
            return submission

        try:
            yield fresh
        finally:
            for host in hosts:
                host.kill(wait=False)

    def _bounds_on(self, device: str) -> limits.Limits:
        if device != "cuda":
            return self._bounds
        return dataclasses.replace(self._bounds, memory_bytes=CUDA_SLACK * self._bounds.memory_bytes)

    def _chosen(self, pack: Pack, order: GradeOrder) -> list[HiddenTest]:
        numbers = {part.number for part in pack.exercise.parts}
        if order.part is not None and order.part not in numbers:
            raise RequestError(
                f"{order.exercise} has no part {order.part}", f"its parts are {', '.join(map(str, sorted(numbers)))}"
            )
        tests = [
            test
            for test in pack.tests
            if order.part in (None, test.part) and (not order.only or any(name in test.id for name in order.only))
        ]
        urgent = set(order.first)
        return sorted(tests, key=lambda test: (test.id not in urgent, test.part))

    def _run(self, pack: Pack, tests: Sequence[HiddenTest], order: GradeOrder) -> Iterator[Ran]:
        """Each test's ending, in order; a load fault is the last."""
        if order.isolation is Isolation.NONE:
            for test in tests:
                submission = Submission(InProcess(Session(meters=METERS, post_mortem=order.pdb)), pack.reference)
                fault = loaded(submission, None, wire.Load(order.source, order.filename, order.seed))
                if fault is not None:
                    yield Ran(load_end(test, fault), load_fault=load_sentence(fault))
                    return
                yield Ran(run_test(pack, test, submission, order.seed, order.device))
            return
        tests_in_hosts = HostedTests(pack, order, self._bounds_on(order.device), lambda: self.zygote(order.isolation))
        yield from tests_in_hosts.run(tests, order.lanes)

    def _not_loaded(self, test: HiddenTest, end: Ended) -> TestResult:
        return TestResult(test.id, test.part, end.outcome, f"not run: the file could not be loaded ({end.message})")

    def _settle_bugs(self, pack: Pack, ended: Sequence[Ended], order: GradeOrder) -> None:
        """Raise GraderFault where a test tripped over itself: the reference trips it too."""
        for end in ended:
            if not end.test_bug or pack.tape is not None:  # public tests were proved when they were recorded
                continue
            own = run_own_test(pack, pack.solution, end.test, order.seed, order.device)
            if end.outcome is Outcome.ERROR or own.outcome is not Outcome.PASSED:
                raise GraderFault(
                    f"the hidden test {end.test.id} of {pack.exercise.slug} is at fault: {end.test_bug}",
                    f"please report it with --seed {order.seed}; another seed may work",
                )


def _device(wanted: str) -> str:
    """``auto`` as the device there is; asking for CUDA where there is none is a wrong request."""
    if wanted == "cpu":
        return wanted
    if torch.cuda.is_available():
        return "cuda"
    if wanted == "auto":
        return "cpu"
    raise RequestError(f"--device {wanted}: torch finds no CUDA device here", "--device auto takes what there is")


def _result(end: Ended, printed: str) -> TestResult:
    return TestResult(
        end.test.id,
        end.test.part,
        end.outcome,
        wire.bounded(end.message),
        round(end.seconds, 4),
        end.call,
        end.mismatch,
        tuple(f"line {frame.line}, in {frame.function}: {wire.bounded(frame.text, 200)}" for frame in end.frames),
        printed,
        end.not_started,
    )


def _attempt(
    exercise: Exercise,
    order: GradeOrder,
    results: list[TestResult],
    named: tuple[Diagnosis, ...],
    load_error: str,
) -> Attempt:
    by_part: dict[int, list[TestResult]] = {}
    for result in results:
        by_part.setdefault(result.part, []).append(result)
    parts = tuple(
        PartResult(
            part.number,
            part.title,
            bool(by_part.get(part.number)) and all(r.outcome is Outcome.PASSED for r in by_part[part.number]),
            part.points,
        )
        for part in exercise.parts
        if order.part in (None, part.number)
    )
    return Attempt(
        exercise=exercise.slug,
        file=order.file,
        seed=order.seed,
        device=order.device,
        isolation=order.isolation,
        seconds=0.0,
        passed=bool(parts) and all(part.passed for part in parts),
        points=sum(part.points for part in parts if part.passed),
        max_points=sum(part.points for part in parts),
        parts=parts,
        tests=tuple(results),
        diagnosis=named,
        load_error=load_error,
    )
