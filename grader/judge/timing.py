"""One side of a timed comparison: a host, a callable in it, and what its calls last by the judge's clock."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from grader.errors import GraderFault
from grader.host import wire
from grader.host.process import Host, HostLost
from grader.host.timed import digest
from grader.host.values import Encoder
from grader.judge import compare
from grader.judge.benchmarks import Draw, Given
from grader.judge.faults import TestFault
from grader.judge.testing import Rng
from grader.judge.view import RemoteFunction, RemoteMethod, RemoteObject, Submission
from grader.meter.cuda import CudaSample, charged_ns
from grader.meter.paired import Overdue

REQUEST_LIMIT_BYTES = 32 << 20
"""Arguments of one sample together: what they cost to send is subtracted, but must stay small beside the work."""
PARALLEL = 1.3
"""CPU time over wall time from which the work of a side did not run on one thread."""
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
        self._digests: list[bytes] = []
        self._wall_ns = 0
        self._cpu_start_ns = 0

    def run(self, request: wire.Timed) -> tuple[int, int]:
        """Run one call per argument set.

        Returns:
            Nanoseconds by this process's clock, and by the host's own (which only a trusted host's is worth).

        Raises:
            Overdue: it did not answer in time.
            TestFault: a call raised, or the host ended.
            GraderFault: the same of a trusted host.
        """
        self._signal(signal.SIGCONT)
        try:
            begin_ns = time.perf_counter_ns()
            reply = self._host.ask(request, time.monotonic() + self._seconds)
            wall_ns = time.perf_counter_ns() - begin_ns
        except HostLost as lost:
            if lost.why == "timeout" and not self._trusted:
                raise Overdue(int(self._seconds * 1e9)) from None
            raise self._fault(f"the process of the timed code ended: {lost.detail}") from None
        finally:
            self._signal(signal.SIGSTOP)
        if isinstance(reply, wire.Raised):
            raise self._fault(f"a timed call raised {reply.type_name}: {reply.message}")
        if not isinstance(reply, wire.TimedRun) or len(reply.digests) != len(request.arguments):
            raise self._fault("tampering: timed calls were not answered by a digest each")
        self._digests = reply.digests
        self._wall_ns += wall_ns
        return wall_ns, max(0, reply.inside_ns)

    def answer(self, place: int) -> wire.Value:
        """The result of one call of the last run.

        Raises:
            TestFault: it is not the one that was there when the clock stopped.
        """
        self._signal(signal.SIGCONT)
        try:
            reply = self._host.ask(wire.TimedAnswer(place), time.monotonic() + self._seconds)
        except HostLost as lost:
            raise self._fault(f"the process of the timed code ended: {lost.detail}") from None
        finally:
            self._signal(signal.SIGSTOP)
        if not isinstance(reply, wire.Frozen) or digest(reply.encoded) != self._digests[place]:
            raise self._fault("tampering: a timed call's answer was changed after the clock had stopped")
        return wire.decode_value(reply.encoded)

    def start_accounts(self) -> None:
        """Begin to hold CPU time against wall time."""
        self._wall_ns, self._cpu_start_ns = 0, cpu_ns(self._host.pid)

    def threads_used(self) -> float:
        """CPU time over wall time since the accounts were begun; 0 where it cannot be known."""
        spent_ns = cpu_ns(self._host.pid) - self._cpu_start_ns
        # A tick is 10 ms: too short an account says nothing.
        return spent_ns / self._wall_ns if self._wall_ns > 500_000_000 else 0.0

    def _fault(self, message: str) -> Exception:
        return (
            GraderFault(f"the reference's speed cannot be measured: {message}") if self._trusted else TestFault(message)
        )

    def _signal(self, number: int) -> None:
        if self._host.pid > 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._host.pid, number)


class Comparison:
    """A submission's callable and the reference's, given the same fresh inputs.

    Args:
        mine: the side under test, and what to call there.
        theirs: the reference's side, and what to call there.
        draw: how a call's arguments are drawn.
        local: the reference's callable here, for the answers; called as the submission is.
        device: where tensors lie.
        backward: whether gradients are part of a call.
    """

    def __init__(
        self,
        mine: tuple[TimedSide, Callee],
        theirs: tuple[TimedSide, Callee],
        draw: Draw,
        local: Callable[..., Any],
        device: str = "cpu",
        backward: bool = False,
    ) -> None:
        (self._mine, self._my_callee), (self._theirs, self._their_callee) = mine, theirs
        self._draw, self._local = draw, local
        self._device, self._backward = device, backward
        # Not of the run's seed: an answer that was worked out beforehand must be worth nothing.
        self._secret = secrets.randbits(62)
        self._chance = secrets.SystemRandom()
        self._overheads: dict[int, deque[int]] = {}
        self._last: tuple[tuple[int, int], list[Given], list[wire.Arguments]] | None = None
        self._checked = False

    def most_repetitions(self) -> int:
        """How many calls' arguments fit into one request."""
        _, wired = self._arguments(1, -1)
        return max(1, REQUEST_LIMIT_BYTES // len(wire.encode(self._request(self._their_callee, wired))))

    def sample_theirs(self, repetitions: int, draw: int) -> int:
        """One sample of the reference, in ns."""
        _, wired = self._arguments(repetitions, draw)
        wall_ns, inside_ns = self._theirs.run(self._request(self._their_callee, wired))
        self._overheads.setdefault(repetitions, deque(maxlen=15)).append(max(0, wall_ns - inside_ns))
        return self._charged(wall_ns, inside_ns, repetitions)

    def sample_mine(self, repetitions: int, draw: int) -> int:
        """One sample of the submission, in ns; now and then one of its answers is looked at afterwards.

        Raises:
            Overdue: it did not answer in time.
            TestFault: a call raised, or its answer is wrong.
        """
        if repetitions not in self._overheads:
            # What it costs to send this many arguments and digests is known from the trusted side only.
            for place in range(3):
                self.sample_theirs(repetitions, -100 - place)
        given, wired = self._arguments(repetitions, draw)
        wall_ns, inside_ns = self._mine.run(self._request(self._my_callee, wired))
        if not self._checked or self._chance.random() < 0.5:
            self._checked = True
            self._check(given, self._chance.randrange(repetitions))
        return self._charged(wall_ns, inside_ns, repetitions)

    def _request(self, callee: Callee, wired: list[wire.Arguments]) -> wire.Timed:
        target, method, _ = callee.wire_place
        return wire.Timed(target, method, wired, self._backward, self._device)

    def _charged(self, wall_ns: int, inside_ns: int, repetitions: int) -> int:
        """The sample without the way there and back, by the judge's clock on both sides."""
        overhead_ns = median(self._overheads[repetitions])
        if self._device == "cuda":
            return charged_ns(CudaSample(inside_ns, repetitions), wall_ns, overhead_ns)
        return max(1, round(max(wall_ns - overhead_ns, 0.02 * wall_ns)))

    def _arguments(self, repetitions: int, draw: int) -> tuple[list[Given], list[wire.Arguments]]:
        if self._last is None or self._last[0] != (repetitions, draw):
            rng = Rng((self._secret + draw) % 2**62, self._device)
            given = [self._draw(rng) for _ in range(repetitions)]
            self._last = (repetitions, draw), given, [_wired(each, self._backward) for each in given]
        return self._last[1], self._last[2]

    def _check(self, given: Sequence[Given], place: int) -> None:
        value = Submission(_Nobody())._value(self._mine.answer(place))
        expected = self._expected(given[place])
        if found := compare.mismatch(value, expected, None, True):
            raise TestFault("a timed call's answer is wrong, though the tests' are right", found)

    def _expected(self, given: Given) -> Any:
        if not self._backward:
            with torch.no_grad():
                return self._local(*given.args, **given.kwargs)
        leaves: list[torch.Tensor] = []
        args = _with_grad(list(given.args), leaves)
        kwargs = {name: _with_grad(value, leaves) for name, value in given.kwargs.items()}
        result = self._local(*args, **kwargs)
        total = sum(
            (t.float().sum() for t in _tensors(result) if t.requires_grad), torch.zeros((), device=self._device)
        )
        total.backward()  # type: ignore[no-untyped-call]
        return _plain(result), tuple(leaf.grad for leaf in leaves)


class _Nobody:
    """Answers nothing: a value is only being read."""

    def ask(self, request: wire.Request) -> wire.Reply:
        raise wire.ProtocolError("a timed call's answer refers to an object")


def cpu_ns(pid: int) -> int:
    """CPU time of a process and its ended threads, 0 where it cannot be read."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // _TICKS_PER_SECOND
    except (OSError, ValueError, IndexError):
        return 0


def _wired(given: Given, backward: bool) -> wire.Arguments:
    count = iter(range(1 << 30))

    def slot_of(tensor: torch.Tensor) -> int:
        return next(count) if backward and tensor.is_floating_point() else -1

    encode = Encoder(slot_of, _ref_of, keep_strides=True)
    return wire.Arguments(
        [encode(arg) for arg in given.args], [(name, encode(value)) for name, value in given.kwargs.items()]
    )


def _ref_of(value: Any) -> wire.Ref | None:
    return value._ref if isinstance(value, RemoteObject) else None


def _with_grad(value: Any, leaves: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        if not value.is_floating_point():
            return value
        leaves.append(value.detach().clone().requires_grad_())
        return leaves[-1]
    if isinstance(value, tuple | list):
        items = [_with_grad(item, leaves) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return value


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, tuple | list):
        items = [_plain(item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return value
