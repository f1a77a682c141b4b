"""Running an attempt's hidden tests in hosts, several lanes of them side by side.

A lane is a thread that runs one test after another in hosts of its own.  Half of a test's time passes in the host and
half here, in torch, so two lanes use two processors.  What a test is told and what it finds does not depend on the
lanes: a batch of tests shares hosts with no other, endings come in the tests' order, and hidden tests draw from their
own generators only.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from grader.errors import GraderFault
from grader.host import limits, wire
from grader.host.process import Host, HostLost, Zygote
from grader.judge.faults import HostCrashed, HostMemory, HostOutput, HostTimeout, Tampered, TestFault
from grader.judge.orders import GradeOrder
from grader.judge.pack import HiddenTest, Pack
from grader.judge.trial import SPEAKING, Ended, run_test
from grader.judge.view import Submission
from grader.model import Outcome

_FAULTS: dict[str, type[TestFault]] = {
    "timeout": HostTimeout,
    "crashed": HostCrashed,
    "memory": HostMemory,
    "output": HostOutput,
    "tampered": Tampered,
}
TESTS_PER_HOST = 8
TIMEOUTS_PER_PART = 2
"""After so many tests of a part ran out of time its others are not run: the part is lost already, and each would
take its whole deadline again."""
HURRY = 10
"""Once a part is lost to a test that ran out of time, its others get the deadline divided by this: no point depends
on them, and endless loops are rarely alone."""
WARY = 2.5
"""Once one part is lost so, tests of the others get the deadline divided by this: thirty times what a solution takes
for the slowest test."""
ORPHANED_SECONDS = 0.05
MOST_FRAMES = 4
NOT_RUN = "not run: {count} tests of this part ran out of time already"
_SENTENCES = {
    "timeout": "no answer within {seconds:g} s, so the process was killed; look for a loop that does not end",
    "crashed": "your code ended its process before it answered (os._exit, a crash in native code, or a killed process)",
    "memory": "your code used more memory than the {mebibytes} MiB it may have",
    "output": "your code printed more than {output} MiB, so the process was killed",
    "tampered": "tampering: the process of your code sent something that is not an answer",
}


class HostChannel:
    """A host as something to ask, with one deadline for a whole test; `load` is what it was given to load."""

    def __init__(self, host: Host, seconds: float, bounds: limits.Limits, load: wire.Load | None = None) -> None:
        self._host, self._seconds, self._bounds, self._load = host, seconds, bounds, load
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
        return _FAULTS[lost.why](sentence, frames=self._frames() if lost.why == "timeout" else ())

    def _frames(self) -> tuple[wire.Frame, ...]:
        """Where in the learner's file its time ran out."""
        if self._load is None:
            return ()
        lines = self._load.source.decode("utf-8-sig", "replace").splitlines()
        return tuple(
            wire.Frame(line, wire.bounded(function, 100), lines[line - 1].strip())
            for file, line, function in self._host.overdue_at
            if os.path.basename(file).strip("<>") == self._load.filename and 0 < line <= len(lines)
        )[-MOST_FRAMES:]


class Hosts:
    """Hosts for one file's tests.  The next one is forked, and loads the file, while one is in use."""

    def __init__(self, zygote: Callable[[], Zygote], bounds: limits.Limits, load: wire.Load) -> None:
        self._zygote, self._bounds, self._load = zygote, bounds, load
        self._next: Host | None = None
        self._used: Host | None = None
        self._tests_in_host = 0
        self._loads = False

    def fresh(self) -> Host:
        """A host that has run nothing but the load, which has been sent."""
        self.drop()
        if self._next is not None and self._next.orphaned:  # the last test took the zygote with it
            self._next.kill(wait=False)
            self._next = None
        host, self._next = self._next or self._start(), None
        if self._loads:
            self._next = self._start()
        self._used, self._tests_in_host = host, 1
        return host

    def loads(self) -> None:
        """The file has been seen to load: from now on the next host may load it ahead.

        One that loops would take two processors for as long as it may, and the first load as much longer.
        """
        if not self._loads:
            self._loads, self._next = True, self._start()

    def again(self) -> Host | None:
        """The last host with the file loaded anew, or None where another fresh one is due."""
        if self._used is None or self._used.ended or self._tests_in_host >= TESTS_PER_HOST:
            return None
        self._tests_in_host += 1
        try:
            self._used.restart_output()
            self._used.send(self._load)
        except HostLost:
            self.drop()
            return None
        return self._used

    def orphaned(self) -> bool:
        """Whether the last host's zygote is gone too; it may take a moment to go."""
        time.sleep(ORPHANED_SECONDS)
        return self._used is not None and self._used.orphaned

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


@dataclass(frozen=True)
class Ran:
    """How a test ended, what was printed meanwhile, and the sentence for a load that failed (nothing else ran then)."""

    end: Ended
    printed: str = ""
    load_fault: str = ""


_Batches = queue.SimpleQueue[list[tuple[int, HiddenTest]]]


class HostedTests:
    """The hidden tests of one attempt, run in hosts."""

    def __init__(self, pack: Pack, order: GradeOrder, bounds: limits.Limits, zygote: Callable[[], Zygote]) -> None:
        self._pack, self._order, self._bounds, self._zygote = pack, order, bounds, zygote
        self._load = wire.Load(order.source, order.filename, order.seed)
        seconds = order.timeout_seconds or pack.exercise.timeout_seconds
        self._wary = msgspec.structs.replace(order, timeout_seconds=seconds / WARY)
        self._hurried = msgspec.structs.replace(order, timeout_seconds=seconds / HURRY)
        self._slow: Counter[int] = Counter()
        self._lost: set[int] = set()
        self._stop = threading.Event()

    def run(self, tests: Sequence[HiddenTest], lanes: int) -> Iterator[Ran]:
        """Each test's ending, in the order of `tests`; a load fault is the last."""
        batches: _Batches = queue.SimpleQueue()
        numbered = list(enumerate(tests))
        for begin in range(0, len(numbered), TESTS_PER_HOST):
            batches.put(numbered[begin : begin + TESTS_PER_HOST])
        endings = self._side_by_side(batches, lanes) if lanes > 1 else self._lane(batches)
        early: dict[int, Ran] = {}
        turn = 0
        with contextlib.closing(endings):
            for place, ran in endings:
                if ran.load_fault:
                    yield ran  # no other test will have more to say
                    return
                early[place] = ran
                while turn in early:
                    yield early.pop(turn)
                    turn += 1

    def _side_by_side(self, batches: _Batches, lanes: int) -> Generator[tuple[int, Ran]]:
        """What the lanes bring, as it comes."""
        done: queue.SimpleQueue[tuple[int, Ran] | BaseException | None] = queue.SimpleQueue()

        def work() -> None:
            try:
                for ending in self._lane(batches):
                    done.put(ending)
                done.put(None)
            except BaseException as error:  # raised again below, in the thread that wants to know
                done.put(error)

        threads = [threading.Thread(target=work, name=f"lane {number}", daemon=True) for number in range(lanes)]
        for thread in threads:
            thread.start()
        try:
            working = lanes
            while working:
                match done.get():
                    case None:
                        working -= 1
                    case BaseException() as error:
                        raise error
                    case ending:
                        yield ending
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _lane(self, batches: _Batches) -> Generator[tuple[int, Ran]]:
        """Take one batch after another until none is left."""
        hosts = self._hosts()
        try:
            while True:
                try:
                    batch = batches.get_nowait()
                except queue.Empty:
                    return
                hosts.drop()
                for place, test in batch:
                    if self._stop.is_set():
                        return
                    slow = self._slow[test.part]
                    if slow >= TIMEOUTS_PER_PART:
                        yield place, Ran(Ended(test, Outcome.TIMEOUT, NOT_RUN.format(count=TIMEOUTS_PER_PART)))
                        continue
                    ran = self._run(test, self._order_for(test.part), hosts)
                    if ran.end.outcome is Outcome.TIMEOUT:
                        self._slow[test.part] += 1
                    yield place, ran
                    if ran.load_fault:
                        return
                    answered = ran.end.outcome in (Outcome.PASSED, *SPEAKING)
                    if not answered and not hosts.drop(wait=True):
                        hosts.close()
                        hosts = self._hosts()
        finally:
            hosts.close()

    def _order_for(self, part: int) -> GradeOrder:
        """The order, with the deadline that is left to a test of `part` after what ran out of time already."""
        if self._slow[part]:
            return self._hurried
        return self._wary if self._slow.total() else self._order

    def _hosts(self) -> Hosts:
        return Hosts(self._zygote, self._bounds, self._load)

    def _run(self, test: HiddenTest, order: GradeOrder, hosts: Hosts) -> Ran:
        """Run one test: in the last test's host while all goes well, and on a fresh one before a part is refused.

        A process that has run a test may hold what that test left behind.  So what fails there is run
        again where nothing was left behind, and only that counts.  Once a part has failed so, it is lost
        whatever its other tests say.
        """
        host = hosts.again()
        if host is not None:
            found = self._once(test, order, host)
            doubtful = found.end.outcome in (*SPEAKING, Outcome.CRASHED) and not found.end.not_started
            if not found.load_fault and (not doubtful or test.part in self._lost):
                return found
        found = self._once(test, order, hosts.fresh())
        if found.load_fault:
            return found
        hosts.loads()
        if found.end.outcome is Outcome.CRASHED and test.part not in self._lost and hosts.orphaned():
            # Where the host's host died, whoever did it has one more try to show who ended whom.
            found = self._once(test, order, hosts.fresh())
        if found.end.outcome is not Outcome.PASSED:
            self._lost.add(test.part)
        return found

    def _once(self, test: HiddenTest, order: GradeOrder, host: Host) -> Ran:
        with contextlib.suppress(HostLost):  # the reply to its load will tell how it ended
            host.await_ready()
        channel = HostChannel(host, self._bounds.load_seconds, self._bounds, self._load)
        submission = Submission(channel, self._pack.reference)
        submission.source = order.source
        fault = loaded(submission, channel)
        if fault is not None:
            return Ran(load_end(test, fault), host.text(), load_sentence(fault))
        channel.start_clock(order.timeout_seconds or self._pack.exercise.timeout_seconds)
        end = run_test(self._pack, test, submission, order.seed, order.device)
        return Ran(end, host.text())


def loaded(submission: Submission, channel: HostChannel | None, load: wire.Load | None = None) -> TestFault | None:
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


def load_end(test: HiddenTest, fault: TestFault) -> Ended:
    """How a test ended whose load failed."""
    return Ended(test, fault.outcome, load_sentence(fault), frames=fault.frames)


def load_sentence(fault: TestFault) -> str:
    """What ended a load, with the line of the learner's file where it did."""
    if not fault.frames:
        return fault.message
    return f"{fault.message}, in line {fault.frames[-1].line}: {wire.bounded(fault.frames[-1].text, 200)}"
