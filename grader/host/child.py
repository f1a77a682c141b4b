"""The host: the process that runs the learner's code and holds nothing else.

It answers one request at a time over a socket and forms no verdict.  When the
judge hangs up, it ends.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path

from grader.host import limits, wire
from grader.host.session import Meter, Session


def serve(channel: socket.socket, folder: Path, meters: dict[str, Meter]) -> None:
    """Answer requests until the other end closes.

    Args:
        channel: the socket to the judge.
        folder: a scratch folder of this host's own.
        meters: child-side meters by name.
    """
    session = Session(folder, meters)
    while True:
        try:
            request = wire.decode_request(wire.receive(channel))
        except (wire.Closed, OSError):
            return
        reply = session.handle(request)
        _flush()
        try:
            payload = wire.frame(wire.encode(reply))
        except (wire.ProtocolError, MemoryError) as error:
            payload = wire.frame(wire.encode(wire.Raised("MemoryError", ["MemoryError"], str(error), [], memory=True)))
        channel.sendall(payload)


def become_host(
    channel: socket.socket, output: int, folder: Path, bounds: limits.Limits, meters: dict[str, Meter]
) -> None:
    """Turn a fresh fork into a host and serve; never returns.

    Args:
        channel: the socket to the judge; the first frame sent on it is one byte, for its credentials.
        output: a pipe for what the learner's code prints.
        folder: a scratch folder, made here.
        bounds: what the host may use.
        meters: child-side meters by name.
    """
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(nothing)
        os.close(output)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(0, "r", closefd=False),
            os.fdopen(1, "w", buffering=8192, errors="replace", closefd=False),
            os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False),
        )
        for name in ("stdin", "stdout", "stderr"):
            setattr(sys, f"__{name}__", getattr(sys, name))
        sys.argv = ["submission"]
        # The judge asks so where a call is that does not end; the answer goes where prints go.
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=False, chain=False)
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)  # what it writes goes when it goes
        limits.apply(bounds)
        channel.sendall(b"\x01")
        serve(channel, folder, meters)
        code = 0
    except BaseException:
        # Nothing of the host's own state may reach the learner's terminal; a host that ends without
        # an answer is reported by the judge.
        code = 1
    finally:
        with contextlib.suppress(BaseException):
            _flush()
        os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
