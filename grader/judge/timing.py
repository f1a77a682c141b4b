"""One side of a timed comparison: a host, a callable in it, and what its calls last by the judge's clock."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from grader.errors import GraderFault
from grader.host import wire
from grader.host.process import Host, HostLost
from grader.host.timed import fingerprint, roll, sum_of_floats, without_graph
from grader.host.values import Encoder
from grader.judge import compare
from grader.judge.benchmarks import Draw, Given
from grader.judge.faults import TestFault
from grader.judge.testing import Rng
from grader.judge.view import RemoteFunction, RemoteMethod, RemoteObject, Submission
from grader.meter.cuda import CudaSample, charged_ns, l2_bytes, rotation
from grader.meter.paired import Overdue

REQUEST_LIMIT_BYTES = 8 << 20
"""Arguments of one sample together: what they cost to send is subtracted, but must stay small beside the work."""
RESULTS_LIMIT_BYTES = 192 << 20
"""Results of one sample together: the host keeps them until one has been looked at."""
OWN_ARGUMENTS_BYTES = 4096
"""Arguments smaller than this are sent for every call; larger ones are sent once and rolled between calls."""
CHECKED = 0.5
"""The share of samples of which one answer is looked at."""
PARALLEL = 1.3
"""CPU time over charged time from which the work of a side did not run on one thread."""
QUICK_NS = 25_000_000
"""A call shorter than this shows when it is the first after a pause."""
WARM_UP_DRAW = 1 << 40
"""Further from a sample's draw than samples are many."""
STOP_SECONDS = 0.1
"""A process that is asked to stop is waited for so long."""
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100

Callee = RemoteFunction | RemoteMethod | RemoteObject


class TimedSide:
    """A callable in a host of its own.

    The host is stopped except while it is asked something: what a learner's thread
    would do between two samples, or to the other side, it cannot do.

    Args:
        host: the process.
        seconds: how long one sample may take.
        trusted: whether it runs code of our own, whose faults are the grader's.
    """

    def __init__(self, host: Host, seconds: float, trusted: bool) -> None:
        self._host, self._seconds, self._trusted = host, seconds, trusted
        self._fingerprints: list[bytes] = []
        self._wall_ns, self._call_ns = 0, 0
        self._cpu_start_ns = 0
        self._root, self._expected = 0, set[int]()

    def run(self, request: wire.Timed) -> tuple[int, int]:
        """Run the calls of a request.

        Returns:
            Nanoseconds by this process's clock, less what the host waited for a processor; and nanoseconds of work by
            the host's own account (which only a trusted host's is worth).

        Raises:
            Overdue: it did not answer in time.
            TestFault: a call raised, or the host ended.
            GraderFault: the same of a trusted host.
        """
        # Before the host may run: what it waits from then on is taken off, so it must be on the clock.
        before = account_of(self._host.pid)
        begin_ns = time.perf_counter_ns()
        self.resume()
        try:
            reply = self._host.ask(request, time.monotonic() + self._seconds)
            wall_ns = time.perf_counter_ns() - begin_ns
            # A busy machine keeps long samples waiting and lets short ones through: that is no ratio of work.
            after = account_of(self._host.pid)
            wall_ns = max(1, wall_ns - max(0, after.waited_ns - before.waited_ns), after.ran_ns - before.ran_ns)
        except HostLost as lost:
            if lost.why == "timeout" and not self._trusted:
                raise Overdue(int(self._seconds * 1e9)) from None
            raise self._fault(f"the process of the timed code ended: {lost.detail}") from None
        finally:
            self.stop()
        if isinstance(reply, wire.Raised):
            raise self._fault(f"a timed call raised {reply.type_name}: {reply.message}")
        if not isinstance(reply, wire.TimedRun) or len(reply.fingerprints) != len(request.turns):
            raise self._fault("tampering: timed calls were not answered by a fingerprint each")
        self._fingerprints = reply.fingerprints
        self._wall_ns += wall_ns
        self._call_ns = wall_ns // len(request.turns)
        return wall_ns, max(0, reply.inside_ns)

    def is_quick(self) -> bool:
        """Whether a call is so short, as far as is known, that being the first after a pause shows in it."""
        return self._call_ns < QUICK_NS

    def answer(self, place: int) -> Any:
        """The result of one call of the last run.

        Raises:
            TestFault: it is not the one that was there when the clock stopped.
        """
        self.resume()
        try:
            reply = self._host.ask(wire.TimedAnswer(place), time.monotonic() + self._seconds)
        except HostLost as lost:
            raise self._fault(f"the process of the timed code ended: {lost.detail}") from None
        finally:
            self.stop()
        if isinstance(reply, wire.Returned):
            value = Submission(_Nobody())._value(reply.value)
            if fingerprint(value) == self._fingerprints[place]:
                return value
        raise self._fault("tampering: a timed call's answer is not the one that was there when the clock stopped")

    def watch(self, root: int) -> None:
        """Remember what runs below the process `root`, before the code to be timed is loaded."""
        self._root, self._expected = root, descendants(root)

    def refuse_company(self) -> None:
        """Raise TestFault when the timed code keeps processes of its own: they could slow the other side."""
        strays = descendants(self._root) - self._expected - {self._host.pid} if self._root else set()
        if strays:
            raise self._fault("the timed code keeps processes of its own running")

    def start_accounts(self) -> None:
        """Begin to hold CPU time against wall time."""
        self._wall_ns, self._cpu_start_ns = 0, cpu_ns(self._host.pid)

    def threads_used(self) -> float:
        """CPU time over the time charged since the accounts were begun; 0 where it cannot be known."""
        spent_ns = cpu_ns(self._host.pid) - self._cpu_start_ns
        # A tick is 10 ms: too short an account says nothing.
        return spent_ns / self._wall_ns if self._wall_ns > 500_000_000 else 0.0

    def _fault(self, message: str) -> Exception:
        return (
            GraderFault(f"the reference's speed cannot be measured: {message}") if self._trusted else TestFault(message)
        )

    def resume(self) -> None:
        """Let the host run."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stop the host, and see that it has stopped.

        On a busy machine it first waits for a processor, to notice; the kernel would book that wait within the next
        call, which would be credited with it.
        """
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_SECONDS
        while state_of(self._host.pid) == "R" and time.monotonic() < deadline:
            time.sleep(50e-6)

    def _signal(self, number: int) -> None:
        if self._host.pid > 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._host.pid, number)


class Comparison:
    """A submission's callable and the reference's, given the same fresh inputs.

    Args:
        mine: the side under test, what to call there and how to draw its arguments.
        theirs: the same of the reference's side; it draws from the same random numbers.
        local: the reference's callable here, for the answers; called as the submission is.
        device: where tensors lie.
        backward: whether gradients are part of a call.
    """

    def __init__(
        self,
        mine: tuple[TimedSide, Callee, Draw],
        theirs: tuple[TimedSide, Callee, Draw],
        local: Callable[..., Any],
        device: str = "cpu",
        backward: bool = False,
    ) -> None:
        (self._mine, self._my_callee, self._my_draw) = mine
        (self._theirs, self._their_callee, self._their_draw) = theirs
        self._local, self._device, self._backward = local, device, backward
        # Not of the run's seed: an answer that was worked out beforehand must be worth nothing.
        self._secret = secrets.randbits(62)
        self._chance = secrets.SystemRandom()
        self._repetitions, self._samples = 0, 0
        self._work_ns, self._overhead_ns = 0, 0
        self._checked = False
        rng = self._rng(-1)
        sizes = [_tensor_bytes((given.args, given.kwargs)) for given in (self._my_draw(rng), self._their_draw(rng))]
        self._own_arguments = min(sizes) < OWN_ARGUMENTS_BYTES
        self._argument_bytes = max(sizes)
        self._cache_bytes = l2_bytes(torch.device(device)) if device == "cuda" else 0

    def most_repetitions(self) -> int:
        """How many calls one sample may hold: arguments and results must fit."""
        given = self._my_draw(self._rng(-1))
        with torch.no_grad():
            result_bytes = _tensor_bytes(self._local(*given.args, **given.kwargs))
        most = RESULTS_LIMIT_BYTES // max(1024, result_bytes)
        if self._own_arguments:
            most = min(most, REQUEST_LIMIT_BYTES // max(1024, self._argument_bytes))
        return max(1, most)

    def sample_theirs(self, repetitions: int, draw: int) -> int:
        """One sample of the reference, in ns."""
        request = self._request(self._their_callee, self._their_draw, repetitions, draw)[0]
        self._warm_up(self._theirs, self._their_callee, self._their_draw, draw)
        wall_ns, inside_ns = self._theirs.run(request)
        if draw < 0 or self._chance.random() < 0.2:
            self._mine.refuse_company()
        if self._chance.random() < CHECKED:
            # Nobody doubts this side; but answering leaves its mark on a process's memory, so both sides do it.
            self._theirs.answer(self._chance.randrange(repetitions))
        if repetitions != self._repetitions:
            # Shorter samples say nothing of longer ones.
            self._repetitions, self._samples = repetitions, 0
            self._work_ns, self._overhead_ns = 0, 0
        self._samples += 1
        self._work_ns += inside_ns
        self._overhead_ns += max(0, wall_ns - inside_ns)
        return max(1, inside_ns) if self._device == "cuda" else wall_ns

    def sample_mine(self, repetitions: int, draw: int) -> int:
        """One sample of the submission, in ns; now and then one of its answers is looked at afterwards.

        Raises:
            Overdue: it did not answer in time.
            TestFault: a call raised, or its answer is wrong.
        """
        request, sets = self._request(self._my_callee, self._my_draw, repetitions, draw)
        self._warm_up(self._mine, self._my_callee, self._my_draw, draw)
        wall_ns, inside_ns = self._mine.run(request)
        if not self._checked or self._chance.random() < CHECKED:
            self._checked = True
            self._check(sets, request, self._chance.randrange(repetitions))
        if self._device != "cuda":
            return wall_ns
        # Events of the process under test: held against the wall clock and what the reference's show beside it.
        gap_ns = self._overhead_ns / max(1, self._samples) * repetitions / max(1, self._repetitions)
        return charged_ns(CudaSample(inside_ns, repetitions), wall_ns, gap_ns)

    def overhead_share(self) -> float:
        """What a sample of this length costs beside the work, as a share of the reference's work; 0 on events."""
        if self._device == "cuda" or not self._work_ns:
            return 0.0
        return self._overhead_ns / self._work_ns

    def _rng(self, draw: int) -> Rng:
        return Rng((self._secret + draw) % 2**62, self._device)

    def _warm_up(self, side: TimedSide, callee: Callee, draw_arguments: Draw, draw: int) -> None:
        """One call on other arguments, which is not counted: the first after a pause takes up to twice as long.

        Of the quicker side that is a larger part, and would bring the ratio nearer to 1.  What is timed is sent
        afterwards, so nothing of it can be worked out here.
        """
        if side.is_quick():
            side.run(self._request(callee, draw_arguments, 1, draw + WARM_UP_DRAW)[0])

    def _request(
        self, callee: Callee, draw_arguments: Draw, repetitions: int, draw: int
    ) -> tuple[wire.Timed, list[Given]]:
        rng = self._rng(draw)
        sets = [draw_arguments(rng) for _ in range(repetitions if self._own_arguments else 1)]
        turns = [0] * repetitions
        if not self._own_arguments:
            turner = self._rng(draw)
            turns[1:] = [turner.integers(1, 1 << 30) for _ in range(repetitions - 1)]
        wired = [_wired(given, self._backward) for given in sets]
        target, method, _ = callee.wire_place
        copies = 1
        if self._cache_bytes and not self._own_arguments:
            # Beside the flush: what a call leaves in the cache is not the memory of the next one.
            copies = min(repetitions, rotation(self._argument_bytes, self._cache_bytes))
        return wire.Timed(target, method, wired, turns, self._backward, self._device, copies), sets

    def _check(self, sets: Sequence[Given], request: wire.Timed, place: int) -> None:
        given = sets[place % len(sets)]
        args, kwargs = _copied(given.args), _copied(given.kwargs)
        for turn in request.turns[place % request.copies : place + 1 : request.copies]:
            if turn:
                roll((args, kwargs), turn)
        value = self._mine.answer(place)
        if found := compare.mismatch(value, self._expected(args, kwargs), None, dtype=False):
            raise TestFault("a timed call's answer is wrong, though the tests' are right", found)

    def _expected(self, args: Any, kwargs: Any) -> Any:
        if not self._backward:
            with torch.no_grad():
                return self._local(*args, **kwargs)
        leaves = [tensor.requires_grad_() for tensor in _tensors((args, list(kwargs.values()))) if _is_float(tensor)]
        result = self._local(*args, **kwargs)
        total = sum_of_floats(result)
        if total.requires_grad:
            total.backward()  # type: ignore[no-untyped-call]
        return without_graph(result), tuple(leaf.grad for leaf in leaves)


class _Nobody:
    """Answers nothing: a value is only being read."""

    def ask(self, request: wire.Request) -> wire.Reply:
        raise wire.ProtocolError("a timed call's answer refers to an object")


def descendants(pid: int) -> set[int]:
    """Living processes below a process, as far as they can be seen."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = _stat(path)
        except OSError:
            continue
        if fields[0] not in ("Z", "X"):
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return found


def state_of(pid: int) -> str:
    """A process's state as a letter (proc(5)), or nothing where it cannot be read."""
    try:
        return _stat(Path(f"/proc/{pid}/stat"))[0]
    except (OSError, IndexError):
        return ""


def _stat(path: Path) -> list[str]:
    """The fields of a `/proc/PID/stat` from the state on."""
    return path.read_text().rpartition(")")[2].split()


class Account(NamedTuple):
    """What the kernel books of a process's first thread: how long it ran, and was ready to run and did not.

    Sleeping, and waiting for another thread, is not waiting for a processor and does not count.
    """

    ran_ns: int
    waited_ns: int


def account_of(pid: int) -> Account:
    """The account of a process's first thread; zeros where the kernel keeps none.

    A wait is booked when it ends.  So what is booked within a call may have begun before it, where the process had not
    yet noticed that it should stop; what it ran is the least that a call lasted, whatever was booked.
    """
    try:
        ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except (OSError, ValueError):
        return Account(0, 0)
    return Account(int(ran), int(waited))


def cpu_ns(pid: int) -> int:
    """CPU time of a process, its threads and the children it has awaited, 0 where it cannot be read."""
    try:
        fields = _stat(Path(f"/proc/{pid}/stat"))
        return sum(int(ticks) for ticks in fields[11:15]) * 1_000_000_000 // _TICKS_PER_SECOND
    except (OSError, ValueError, IndexError):
        return 0


def _wired(given: Given, backward: bool) -> wire.Arguments:
    count = iter(range(1 << 30))

    def slot_of(tensor: torch.Tensor) -> int:
        return next(count) if backward and _is_float(tensor) else -1

    encode = Encoder(slot_of, _ref_of, keep_strides=True)
    return wire.Arguments(
        [encode(arg) for arg in given.args], [(name, encode(value)) for name, value in given.kwargs.items()]
    )


def _ref_of(value: Any) -> wire.Ref | None:
    return value._ref if isinstance(value, RemoteObject) else None


def _is_float(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point()


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for item in value for tensor in _tensors(item)]
    if isinstance(value, dict):
        return _tensors(list(value.values()))
    return []


def _tensor_bytes(value: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(value))


def _copied(value: Any) -> Any:
    """The value with tensors of its own."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, tuple | list):
        items = [_copied(item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {name: _copied(item) for name, item in value.items()}
    return value
