"""The judge's end of hosts: ask a zygote for one, talk to it under a deadline, kill it.

Only SIGKILL from here is a timeout.  While an answer is awaited, what the
learner's code prints is read and bounded, and its memory is watched.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from grader.errors import GraderFault
from grader.host import limits, sandbox, wire, zygote
from grader.model import Isolation

_POLL_SECONDS = 0.05
_ZYGOTE_START_SECONDS = 60.0
_END_SECONDS = 30.0
"""A zygote may be importing something when it is told to end a host; on a busy machine that takes a while."""
CONTENT_FOLDERS = ("exercises", "kernels", "solutions", "quiz", "tests")
STARVED_LIMIT_SECONDS = 60.0
_STACK_SECONDS = 0.2
_STACK_BYTES = 1 << 16
_STACK_LINE = re.compile(rb'^ +File "([^"\n]*)", line (\d+) in (\S+)$', re.MULTILINE)
_CREDENTIALS = struct.Struct("3i")


class HostLost(Exception):
    """A host ended, was killed, or broke the protocol.  `why` is timeout, crashed, memory, output or tampered."""

    def __init__(self, why: str, detail: str) -> None:
        super().__init__(detail)
        self.why = why
        self.detail = detail


@dataclass
class Printed:
    """What a host's code printed: the beginning is kept, all of it is counted."""

    kept: bytearray
    count: int = 0


class Zygote:
    """A process with torch imported, that forks hosts on demand.

    Use `forked` before anything secret is loaded in this process, or `executed` at any time.  Several threads may ask
    for hosts and end them.
    """

    def __init__(self, control: socket.socket, pid: int, scratch: Path, inside: str, isolation: Isolation) -> None:
        self._control = control
        self._pid = pid
        self._scratch = scratch
        self._inside = inside
        self._numbers = itertools.count(1)
        self._unanswered = 0
        self._gone = False
        self._ending = threading.Lock()
        self._started = threading.Lock()
        self._starting: subprocess.Popen[bytes] | None = None
        self._prepared: set[str] = set()
        self._locked: set[Path] = set()
        self.isolation = isolation

    @classmethod
    def forked(cls, meta: bool = True) -> Zygote:
        """Fork this process.  Call it with torch imported and nothing of an exercise loaded.

        Args:
            meta: whether its hosts will compute on the meta device, which takes a second to prepare.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        scratch = Path(tempfile.mkdtemp(prefix="kit-host-"))
        pid = os.fork()
        if pid == 0:
            try:
                _close_all_but(theirs.fileno())
                os.setpgid(0, 0)
                zygote.run(theirs, meta)
            finally:
                os._exit(1)
        theirs.close()
        return cls(ours, pid, scratch, str(scratch), Isolation.PROCESS)

    @classmethod
    def executed(cls, isolation: Isolation) -> Zygote:
        """Start a zygote by exec, under bubblewrap where `isolation` says so; it is waited for at its first host.

        Raises:
            GraderFault: bubblewrap cannot be used.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = ["-I", "-m", "grader.host.zygote", str(theirs.fileno())]
        scratch = Path(tempfile.mkdtemp(prefix="kit-host-"))
        command, inside = [sys.executable, *arguments], str(scratch)
        if isolation is Isolation.BWRAP:
            if reason := sandbox.why_not():
                raise GraderFault(
                    f"no bubblewrap isolation: {reason}", "install bubblewrap, or say --isolation process"
                )
            command, inside = sandbox.command(arguments), sandbox.SCRATCH
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        own = cls(ours, process.pid, scratch, inside, isolation)
        own._starting = process
        return own

    def _await_start(self) -> None:
        with self._started:
            process, self._starting = self._starting, None
            if process is None:
                return
            ready, _, _ = select.select([self._control], [], [], _ZYGOTE_START_SECONDS)
            if ready and self._control.recv(1):
                return
            self._gone = True
            process.kill()
            assert process.stderr is not None
            raise GraderFault(
                f"a host could not be started: {process.stderr.read().decode(errors='replace')[-400:]}",
                "run kit doctor",
            )

    def host(self, bounds: limits.Limits) -> Host:
        """A fresh host.  Returns at once; the fork happens meanwhile.

        Raises:
            GraderFault: the zygote is gone, or did not start.
        """
        self._await_start()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        if hasattr(socket, "SO_PASSCRED"):
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        read_end, write_end = os.pipe()
        folder = f"{self._inside}/{next(self._numbers)}"
        order = zygote.Fork(
            folder, bounds.memory_bytes, bounds.file_bytes, bounds.open_files, self.isolation is not Isolation.BWRAP
        )
        try:
            socket.send_fds(self._control, [msgspec.msgpack.encode(order)], [theirs.fileno(), write_end])
        except OSError as error:
            self._gone = True  # the kernel closes its socket a moment before it can be waited for
            ours.close()
            os.close(read_end)
            raise GraderFault("the process that starts hosts is gone", "grade again") from error
        finally:
            theirs.close()
            os.close(write_end)
        os.set_blocking(read_end, False)
        return Host(ours, read_end, bounds, lambda wait: self._end(folder, wait), lambda: self.alive)

    def lock(self, content_root: Path) -> None:
        """Keep later hosts from reading an exercise's secrets, and from writing outside their scratch folders.

        Under bubblewrap neither is there to begin with.
        """
        if self.isolation is Isolation.BWRAP or content_root in self._locked:
            return
        self._locked = {content_root}
        forbidden = [str(content_root / name) for name in CONTENT_FOLDERS]
        writable = [str(self._scratch), "/dev", *([os.environ["HOME"]] if "HOME" in os.environ else [])]
        with contextlib.suppress(OSError):  # a zygote that is gone is noticed when it is asked for a host
            self._control.send(msgspec.msgpack.encode(zygote.Lock(forbidden, writable)))

    def prepare(self, module: str) -> None:
        """Have every later host start with one of the kit's modules imported."""
        if module not in self._prepared:
            self._prepared.add(module)
            with contextlib.suppress(OSError):  # a zygote that is gone is noticed when it is asked for a host
                self._control.send(msgspec.msgpack.encode(zygote.Prepare(module)))

    def _end(self, folder: str, wait: bool) -> bool:
        """Have a host and all it left running killed; False when the zygote does not answer.

        Without `wait` the answer is collected later, so that a host's last milliseconds cost nobody's time.
        """
        try:
            with self._ending:
                self._control.send(msgspec.msgpack.encode(zygote.End(folder)))
                self._unanswered += 1
                while self._unanswered and (wait or select.select([self._control], [], [], 0)[0]):
                    ready, _, _ = select.select([self._control], [], [], _END_SECONDS)
                    if not ready or not self._control.recv(1):
                        self._gone = True
                        return False
                    self._unanswered -= 1
        except OSError:
            self._gone = True
            return False
        return True

    @property
    def pid(self) -> int:
        """The process id of the zygote, or of the sandbox it runs in."""
        return self._pid

    @property
    def alive(self) -> bool:
        """Whether the zygote still runs and obeys."""
        if self._gone:
            return False
        return _runs(self._pid)

    def close(self) -> None:
        """Kill the zygote and everything below it."""
        self._control.close()
        deadline = time.monotonic() + _END_SECONDS
        while _runs(self._pid) and time.monotonic() < deadline:
            time.sleep(0.005)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        with contextlib.suppress(OSError):
            for leftover in sorted(self._scratch.rglob("*"), reverse=True):
                leftover.unlink() if not leftover.is_dir() or leftover.is_symlink() else leftover.rmdir()
            self._scratch.rmdir()


class Host:
    """One host process: send a request, await its reply."""

    def __init__(
        self,
        channel: socket.socket,
        output: int,
        bounds: limits.Limits,
        end: Callable[[bool], bool],
        zygote_lives: Callable[[], bool],
    ) -> None:
        self._channel = channel
        self._zygote_lives = zygote_lives
        self._output: int | None = output
        self._bounds = bounds
        self._end = end
        self._frames = wire.FrameReader()
        self._pid = 0
        self._closed = False
        self._starved_before = 0.0
        self.printed = Printed(bytearray())
        self.ended_cleanly = True
        self.overdue_at: list[tuple[str, int, str]] = []
        """Where it was when its time was up: file, line and function, outermost first; by its own account."""

    @property
    def pid(self) -> int:
        """The host's process id as seen from here; 0 until it has reported."""
        return self._pid

    @property
    def orphaned(self) -> bool:
        """Whether the zygote it came from is gone, and this host with it."""
        return not self._zygote_lives()

    @property
    def ended(self) -> bool:
        """Whether it has been killed from here."""
        return self._closed

    def send(self, request: wire.Request) -> None:
        """Send a request without awaiting the reply."""
        payload = wire.frame(wire.encode(request))
        self._channel.settimeout(30.0)
        try:
            self._channel.sendall(payload)
        except TimeoutError:
            raise HostLost("timeout", "it stopped reading requests") from None
        except OSError:
            raise self._lost() from None

    def await_ready(self) -> None:
        """Wait until the host has been forked: none of the learner's code has run by then, so no deadline runs yet.

        Raises:
            HostLost: it ended first.
            GraderFault: it was not ready in a time that only an overloaded machine takes.
        """
        deadline = time.monotonic() + _ZYGOTE_START_SECONDS
        while not self._pid:
            if time.monotonic() > deadline:
                self.kill()
                raise GraderFault("a process for the learner's code was not ready in time", "the machine is overloaded")
            self._wait(deadline + 1.0)

    def reply(self, deadline: float) -> wire.Reply:
        """Await one reply.

        Args:
            deadline: in `time.monotonic()` seconds.

        Raises:
            HostLost: the deadline passed (the host is killed), it ended, printed too much, took too much memory,
                or sent what the protocol does not allow.
        """
        try:
            while True:
                for frame in self._frames.frames():
                    return wire.decode_reply(frame)
                self._wait(deadline)
        except wire.ProtocolError as error:
            self.kill()
            raise HostLost("tampered", f"its answer was not in the protocol ({error})") from None

    def count_starving_from_now(self) -> None:
        """A clock begins: what the host has waited for a core before is behind it."""
        self._starved_before = limits.starved_seconds(self._pid) if self._pid > 0 else 0.0

    def ask(self, request: wire.Request, deadline: float) -> wire.Reply:
        """Send a request and await its reply.  Raises HostLost."""
        self.send(request)
        return self.reply(deadline)

    def _wait(self, deadline: float) -> None:
        if self._closed:
            raise HostLost("crashed", "it has ended")
        left = deadline - time.monotonic()
        if left <= 0 and self._pid > 0:
            # A busy machine is not the learner's fault: what the host waited for a core does not count.
            left += min(limits.starved_seconds(self._pid) - self._starved_before, STARVED_LIMIT_SECONDS)
        if left <= 0:
            self.overdue_at = self._stack()
            self.kill()
            raise HostLost("timeout", "it did not answer in time")
        watched: list[socket.socket | int] = [self._channel]
        if self._output is not None:
            watched.append(self._output)
        ready, _, _ = select.select(watched, [], [], min(left, _POLL_SECONDS))
        if self._output in ready:
            self._drain()
        if self._channel in ready:
            self._receive()
        elif self._pid and limits.resident_bytes(self._pid) > self._bounds.memory_bytes * 5 // 4:
            self.kill()
            raise HostLost("memory", f"it used more than {self._bounds.memory_bytes >> 20} MiB")

    def _receive(self) -> None:
        space = socket.CMSG_SPACE(_CREDENTIALS.size)
        try:
            data, ancillary, _, _ = self._channel.recvmsg(1 << 20, space)
        except OSError:
            raise self._lost() from None
        if not data:
            raise self._lost()
        if not self._pid and data[:1] == b"\x01":
            # The host's first byte, sent before the learner's code runs, carries its credentials, which
            # the kernel translates into this process's view.
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == getattr(socket, "SCM_CREDENTIALS", 2):
                    self._pid = _CREDENTIALS.unpack(content[: _CREDENTIALS.size])[0]
            self._pid = self._pid or -1
            data = data[1:]
        self._frames.feed(data)

    def _drain(self) -> None:
        """Read what was printed so far."""
        while self._output is not None:
            try:
                data = os.read(self._output, 65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                os.close(self._output)
                self._output = None
                return
            self.printed.count += len(data)
            room = self._bounds.shown_output_bytes - len(self.printed.kept)
            self.printed.kept += data[: max(0, room)]
            if self.printed.count > self._bounds.output_bytes:
                self.kill()
                raise HostLost("output", f"it printed more than {self._bounds.output_bytes >> 20} MiB")

    def _stack(self) -> list[tuple[str, int, str]]:
        """Where the host is now, as its interpreter prints it when it is asked."""
        if self._pid <= 0 or self._output is None:
            return []
        self._drain()
        said = b""
        with contextlib.suppress(OSError):  # it has ended, or closed its output
            os.kill(self._pid, signal.SIGUSR1)
            while self._output is not None and len(said) < _STACK_BYTES:
                # One write a line: after the first has come, the others are on their way.
                if not select.select([self._output], [], [], _STACK_SECONDS / 10 if said else _STACK_SECONDS)[0]:
                    break
                data = os.read(self._output, _STACK_BYTES)
                if not data:
                    break
                said += data
        found = [
            (file.decode(errors="replace"), int(line), name.decode(errors="replace"))
            for file, line, name in _STACK_LINE.findall(said)
        ]
        return found[::-1]

    def _lost(self) -> HostLost:
        with contextlib.suppress(HostLost):
            self._drain()
        self.kill()
        return HostLost("crashed", "it ended before it answered")

    def text(self) -> str:
        """What was printed, bounded and escaped."""
        with contextlib.suppress(HostLost):
            self._drain()
        text = wire.bounded(self.printed.kept.decode("utf-8", "replace"), self._bounds.shown_output_bytes)
        hidden = self.printed.count - len(self.printed.kept)
        return text + (f"\n… and {hidden} bytes more, not shown" if hidden > 0 else "")

    def restart_output(self) -> None:
        """Forget what was printed so far: another test begins in this host."""
        self._drain()
        self.printed = Printed(bytearray())

    def kill(self, wait: bool = True) -> None:
        """End the host, everything it started, and its scratch folder.  Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        if self._pid > 0:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(self._pid, signal.SIGKILL)
        self._channel.close()
        self.ended_cleanly = self._end(wait)
        with contextlib.suppress(HostLost):
            self._drain()
        if self._output is not None:
            os.close(self._output)
            self._output = None


def _runs(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    return False


def _close_all_but(kept: int) -> None:
    for number in (
        {int(name) for name in os.listdir("/proc/self/fd")} if os.path.isdir("/proc/self/fd") else range(3, 256)
    ):
        if number > 2 and number != kept:
            with contextlib.suppress(OSError):
                os.close(number)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
