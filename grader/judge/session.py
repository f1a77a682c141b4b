"""Grading one file after another with a warm zygote: a fresh host for every test, verdicts formed here."""

from __future__ import annotations

import contextlib
import functools
import time
from collections import Counter
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
from grader.judge.faults import (
    HostCrashed,
    HostMemory,
    HostOutput,
    HostTimeout,
    Tampered,
    TestFault,
)
from grader.judge.orders import Diagnosing, GradeOrder, Judged, Progress, Started, Tested
from grader.judge.pack import HiddenTest, Pack, load_pack
from grader.judge.targets import Targets
from grader.judge.trial import Ended, InProcess, run_own_test, run_test
from grader.judge.view import Submission
from grader.meter.child import METERS
from grader.model import Attempt, Diagnosis, Exercise, Isolation, Outcome, PartResult, TestResult

_FAULTS: dict[str, type[TestFault]] = {
    "timeout": HostTimeout,
    "crashed": HostCrashed,
    "memory": HostMemory,
    "output": HostOutput,
    "tampered": Tampered,
}
_SPEAKING = (Outcome.FAILED, Outcome.ERROR)
TESTS_PER_HOST = 8
TIMEOUTS_PER_PART = 2
"""After so many tests of a part ran out of time its others are not run: the part is lost already, and each would
take its whole deadline again."""
HURRY = 10
"""Once a part is lost to a test that ran out of time, its others get this fraction of the deadline: no point depends
on them, and endless loops are rarely alone."""
NOT_RUN = "not run: {count} tests of this part ran out of time already"
_SENTENCES = {
    "timeout": "no answer within {seconds:g} s, so the process was killed; look for a loop that does not end",
    "crashed": "your code ended its process before it answered (os._exit, a crash in native code, or a killed process)",
    "memory": "your code used more memory than the {mebibytes} MiB it may have",
    "output": "your code printed more than {output} MiB, so the process was killed",
    "tampered": "tampering: the process of your code sent something that is not an answer",
}


class HostChannel:
    """A host as something to ask, with one deadline for a whole test."""

    def __init__(self, host: Host, seconds: float, bounds: limits.Limits) -> None:
        self._host, self._seconds, self._bounds = host, seconds, bounds
        self._deadline = time.monotonic() + seconds

    def start_clock(self, seconds: float) -> None:
        """Give the requests from here on `seconds` together."""
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._host.count_starving_from_now()

    def ask(self, request: wire.Request) -> wire.Reply:
        """The host's reply.  Raises the TestFault that stands for its end."""
        try:
            return self._host.ask(request, self._deadline)
        except HostLost as lost:
            raise self._fault(lost) from None

    def loaded(self) -> wire.Reply:
        """The reply to a load that was sent ahead."""
        try:
            return self._host.reply(self._deadline)
        except HostLost as lost:
            raise self._fault(lost) from None

    def _fault(self, lost: HostLost) -> TestFault:
        sentence = _SENTENCES[lost.why].format(
            seconds=self._seconds, mebibytes=self._bounds.memory_bytes >> 20, output=self._bounds.output_bytes >> 20
        )
        return _FAULTS[lost.why](sentence)


class Hosts:
    """Hosts for one file's tests.  The next one is forked, and loads the file, while one is in use."""

    def __init__(self, zygote: Callable[[], Zygote], bounds: limits.Limits, load: wire.Load) -> None:
        self._zygote, self._bounds, self._load = zygote, bounds, load
        self._next: Host | None = None
        self._used: Host | None = None
        self._tests_in_host = 0

    def fresh(self) -> Host:
        """A host that has run nothing but the load, which has been sent."""
        self.drop()
        host, self._next = self._next or self._start(), None
        self._next = self._start()
        self._used, self._tests_in_host = host, 1
        return host

    def again(self) -> Host | None:
        """The last host with the file loaded anew, or None where another fresh one is due."""
        if self._used is None or self._tests_in_host >= TESTS_PER_HOST:
            return None
        self._tests_in_host += 1
        try:
            self._used.restart_output()
            self._used.send(self._load)
        except HostLost:
            self.drop()
            return None
        return self._used

    def drop(self, wait: bool = False) -> bool:
        """End the host last used; False when that could not be done."""
        used, self._used = self._used, None
        if used is None:
            return True
        used.kill(wait)
        return used.ended_cleanly

    def close(self) -> None:
        """End every host."""
        self.drop()
        if self._next is not None:
            self._next.kill(wait=False)
            self._next = None

    def _start(self) -> Host:
        try:
            host = self._zygote().host(self._bounds)
        except GraderFault:  # the learner's code has killed the zygote; asking again gives a new one
            host = self._zygote().host(self._bounds)
        with contextlib.suppress(HostLost):  # its reply will tell how it ended
            host.send(self._load)
        return host


class Judge:
    """Grades orders; keeps the zygote and the packs warm."""

    def __init__(
        self, zygote: Zygote | None, bounds: limits.Limits | None = None, reference_zygote: Zygote | None = None
    ) -> None:
        self._zygotes: dict[Isolation, Zygote] = {Isolation.PROCESS: zygote} if zygote else {}
        self._reference_zygote = reference_zygote
        self._targets = Targets(self._their_zygote)
        self._bounds = bounds or limits.Limits()
        self._packs: dict[str, Pack] = {}
        self._content_root: Path | None = None
        self._runs: dict[tuple[str, int, str], VariantRuns] = {}

    def close(self) -> None:
        """End every zygote and host."""
        for zygote in (*self._zygotes.values(), self._reference_zygote):
            if zygote is not None:
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
        if pack.tape is not None:  # a recorded reference knows one seed
            order = msgspec.structs.replace(order, seed=pack.tape.seed)
        on_kernels = pack.exercise.track == "kernels"
        if on_kernels and order.isolation is not Isolation.NONE:
            self.zygote(order.isolation).prepare(kernels.INTERPRETER)
        self._targets.prepare(pack.exercise)
        tests = self._chosen(pack, order)
        progress(Started(len(tests)))
        load_error = ""
        ended: list[Ended] = []
        results: list[TestResult] = []
        for end, printed, fault in self._run(pack, tests, order):
            if fault:
                load_error = fault
                results = [self._not_loaded(test, end) for test in tests]
                for result in results:
                    progress(Tested(result))
                break
            ended.append(end)
            results.append(_result(end, printed))
            progress(Tested(results[-1]))
        self._settle_bugs(pack, ended, order)
        progress(Judged(_attempt(pack.exercise, order, results, (), load_error), whole=False))
        named: tuple[Diagnosis, ...] = ()
        if order.diagnose and any(end.outcome is not Outcome.PASSED for end in ended):
            progress(Diagnosing())
            named = diagnose(pack, ended, self.runs(pack, order))
        attempt = _attempt(pack.exercise, order, results, named, load_error)
        if on_kernels:
            attempt = msgspec.structs.replace(
                attempt,
                ran_on=kernels.ran_on(results),
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
        return self._packs[key]

    def runs(self, pack: Pack, order: GradeOrder) -> VariantRuns:
        """The variants' endings under the order's seed, kept while the seed stays."""
        key = (pack.exercise.slug, order.seed, order.device)
        if key not in self._runs:
            self._runs = {key: VariantRuns(pack, order.seed, order.device)}
        return self._runs[key]

    def zygote(self, isolation: Isolation) -> Zygote:
        """A living zygote of this isolation level."""
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
        if self._reference_zygote is None or not self._reference_zygote.alive:
            self._reference_zygote = Zygote.executed(Isolation.PROCESS)
        return self._reference_zygote

    # ---------------------------------------------------------------------------- one attempt

    @contextlib.contextmanager
    def _loads(self, pack: Pack, order: GradeOrder) -> Iterator[Callable[[], Submission]]:
        """Fresh loads of the submission, each in a host of its own where there are hosts; all end with the block."""
        load = wire.Load(order.source, order.filename, order.seed)
        hosts: list[Host] = []

        def fresh() -> Submission:
            if order.isolation is Isolation.NONE:
                own = Submission(InProcess(Session(meters=METERS)), pack.reference)
                own.load(load.source, load.filename, load.seed)
                return own
            hosts.append(self.zygote(order.isolation).host(self._bounds))
            with contextlib.suppress(HostLost):
                hosts[-1].await_ready()
            channel = HostChannel(hosts[-1], self._bounds.load_seconds, self._bounds)
            submission = Submission(channel, pack.reference)
            submission.load(load.source, load.filename, load.seed)
            channel.start_clock(pack.exercise.timeout_seconds * max(1, len(pack.exercise.costs)))
            return submission

        try:
            yield fresh
        finally:
            for host in hosts:
                host.kill(wait=False)

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

    def _run(self, pack: Pack, tests: Sequence[HiddenTest], order: GradeOrder) -> Iterator[tuple[Ended, str, str]]:
        """Each test's ending, what was printed, and the load fault that ends the run."""
        load = wire.Load(order.source, order.filename, order.seed)
        if order.isolation is Isolation.NONE:
            for test in tests:
                submission = Submission(InProcess(Session(meters=METERS, post_mortem=order.pdb)), pack.reference)
                fault = _loaded(submission, None, load)
                if fault is not None:
                    yield _load_end(test, fault), "", _load_sentence(fault)
                    return
                yield run_test(pack, test, submission, order.seed, order.device), "", ""
            return
        hosts = Hosts(lambda: self.zygote(order.isolation), self._bounds, load)
        try:
            slow: Counter[int] = Counter()
            seconds = order.timeout_seconds or pack.exercise.timeout_seconds
            hurried = msgspec.structs.replace(order, timeout_seconds=seconds / HURRY)
            for test in tests:
                if slow[test.part] >= TIMEOUTS_PER_PART:
                    yield Ended(test, Outcome.TIMEOUT, NOT_RUN.format(count=TIMEOUTS_PER_PART)), "", ""
                    continue
                end, printed, sentence = self._in_host(pack, test, hurried if slow[test.part] else order, hosts)
                slow[test.part] += end.outcome is Outcome.TIMEOUT
                yield end, printed, sentence
                if sentence:
                    return
                untouched = end.outcome is Outcome.PASSED or end.not_started
                if not untouched and not hosts.drop(wait=end.outcome not in _SPEAKING):
                    hosts.close()
                    hosts = Hosts(lambda: self.zygote(order.isolation), self._bounds, load)
        finally:
            hosts.close()

    def _in_host(self, pack: Pack, test: HiddenTest, order: GradeOrder, hosts: Hosts) -> tuple[Ended, str, str]:
        """Run one test: in the last test's host while all goes well, and on a fresh one before anything is refused.

        A process that has run a test may hold what that test left behind.  So what fails there is run
        again where nothing was left behind, and only that counts.
        """
        host = hosts.again()
        if host is not None:
            found = self._once(pack, test, order, host)
            if (found[0].outcome not in (*_SPEAKING, Outcome.CRASHED) or found[0].not_started) and not found[2]:
                return found
        return self._once(pack, test, order, hosts.fresh())

    def _once(self, pack: Pack, test: HiddenTest, order: GradeOrder, host: Host) -> tuple[Ended, str, str]:
        with contextlib.suppress(HostLost):  # the reply to its load will tell how it ended
            host.await_ready()
        channel = HostChannel(host, self._bounds.load_seconds, self._bounds)
        submission = Submission(channel, pack.reference)
        submission.source = order.source
        fault = _loaded(submission, channel)
        if fault is not None:
            return _load_end(test, fault), host.text(), _load_sentence(fault)
        channel.start_clock(order.timeout_seconds or pack.exercise.timeout_seconds)
        end = run_test(pack, test, submission, order.seed, order.device)
        return end, host.text(), ""

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


def _loaded(submission: Submission, channel: HostChannel | None, load: wire.Load | None = None) -> TestFault | None:
    """Finish the load that was sent to `channel`, or make `load` here; the fault that ended it, or None."""
    try:
        if channel is not None:
            submission.take_load(channel.loaded())
        elif load is not None:
            submission.load(load.source, load.filename, load.seed)
    except TestFault as fault:
        return fault
    except wire.ProtocolError as error:
        return Tampered(f"{_SENTENCES['tampered']} ({wire.bounded(str(error), 200)})")
    return None


def _load_end(test: HiddenTest, fault: TestFault) -> Ended:
    return Ended(test, fault.outcome, _load_sentence(fault), frames=fault.frames)


def _load_sentence(fault: TestFault) -> str:
    """What ended a load, with the line of the learner's file where it did."""
    if not fault.frames:
        return fault.message
    return f"{fault.message}, in line {fault.frames[-1].line}: {wire.bounded(fault.frames[-1].text, 200)}"


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
