"""The command line's end of a judge.  Imports neither torch nor pytest."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from types import TracebackType

from grader.errors import ContentError, GraderFault, KitError, RequestError
from grader.host import wire
from grader.judge.orders import (
    Fault,
    Finished,
    GradeOrder,
    Order,
    Progress,
    ProofResult,
    Proved,
    ProveOrder,
    encoder,
    event_decoder,
)
from grader.model import INTERPRET_VARIABLE, Attempt, Isolation

_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TERM", "TZ", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "SYSTEMROOT")


class JudgeClient:
    """A judge process, started at once and kept warm until `close`.

    Args:
        interactive: leave the terminal to the judge, for a debugger in the learner's file.
        device: of the orders to come.  Triton asks when it is imported whether to interpret or to compile its kernels,
            so a judge does one of the two; with "auto" it looks whether there is a CUDA device.
        isolation: of the orders to come; what hosts are started from is made ready for it while the judge starts.
            An order with another one is graded too, after a wait.
    """

    def __init__(
        self, interactive: bool = False, device: str = "cpu", isolation: Isolation = Isolation.PROCESS
    ) -> None:
        ours, theirs = socket.socketpair()
        self._channel = ours
        self._home = tempfile.TemporaryDirectory(prefix="kit-home-")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close()
        environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        environment |= {"HOME": self._home.name, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"TORCHDYNAMO_DISABLE": "1"}  # torch.compile is right, and compiles for longer than a test runs
        environment |= {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}  # looking for a device must not keep hosts from using it
        if device != "auto":
            environment |= {INTERPRET_VARIABLE: "0" if device == "cuda" else "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-X", "utf8", "-m", "grader.judge.server", str(theirs.fileno()), isolation],
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=None if interactive else self._log,
            stderr=None if interactive else self._log,
            pass_fds=[theirs.fileno()],
            env=environment,
            cwd=self._home.name,
            start_new_session=not interactive,
        )
        theirs.close()

    def grade(self, order: GradeOrder, progress: Callable[[Progress], None]) -> Attempt:
        """Send one order and follow it to its end.

        Raises:
            KitError: the request was wrong, or the grader failed.
        """
        event = self._follow(order, progress)
        if isinstance(event, Finished):
            return event.attempt
        raise GraderFault("the judge answered another order than the one it was sent", "grade again")

    def prove(self, order: ProveOrder, progress: Callable[[Progress], None]) -> tuple[ProofResult, ...]:
        """Have a learner's own tests scored.

        Raises:
            KitError: the request was wrong, or the grader failed.
        """
        event = self._follow(order, progress)
        if isinstance(event, Proved):
            return event.results
        raise GraderFault("the judge answered another order than the one it was sent", "try again")

    def _follow(self, order: Order, progress: Callable[[Progress], None]) -> Finished | Proved:
        try:
            self._channel.sendall(wire.frame(encoder.encode(order)))
            while True:
                event = event_decoder.decode(wire.receive(self._channel))
                match event:
                    case Finished() | Proved():
                        return event
                    case Fault():
                        raise _error(event)
                    case _:
                        progress(event)
        except (wire.Closed, BrokenPipeError, ConnectionResetError):
            pass
        raise GraderFault("the judge ended before it had graded the file", self._last_words() or "grade again")

    def abort(self) -> None:
        """End the judge from another thread; a grade that is under way fails with a GraderFault."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the judge and everything below it."""
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait()
        self._log.close()
        with contextlib.suppress(OSError):
            self._home.cleanup()

    def _last_words(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            self._log.seek(0)
            lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
            return f"its last words: {lines[-1][:300]}" if lines else ""
        return ""

    def __enter__(self) -> JudgeClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _error(fault: Fault) -> KitError:
    kind = {2: RequestError, 3: GraderFault}.get(fault.code, ContentError)
    return kind(fault.message, fault.hint)
