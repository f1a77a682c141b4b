"""The zygote: torch imported and nothing else, so that a fresh host costs a fork.

It obeys four orders on its control socket: fork a host (the two descriptors
come along), end one, import a module of the kit's, lock hosts out of files.
It adopts every orphan of its hosts and kills them, so a double fork with
`setsid` does not survive its test.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec

from grader.host import cleaning, landlock, limits
from grader.host.child import become_host
from grader.host.session import Meter

HOME = "/tmp/home"
"""The home folder in a sandbox."""

ORDER_LIMIT_BYTES = 4096
_SWEEP_SECONDS = 2.0
_IDLE_SECONDS = 0.2
"""Without an order for so long, there is time to import what some host will ask for."""


class Fork(msgspec.Struct, frozen=True, tag="fork"):
    """Start a host on the descriptors that come along: its channel and its output pipe."""

    folder: str
    memory_bytes: int
    file_bytes: int
    open_files: int
    may_fork: bool = True


class End(msgspec.Struct, frozen=True, tag="end"):
    """Kill the host that serves `folder`, what it left running, and its scratch folder; answered by one byte."""

    folder: str


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """Import a module of the kit's own, so that every later host has it for nothing."""

    module: str


class Lock(msgspec.Struct, frozen=True, tag="lock"):
    """Hosts from here on may not read `forbidden`, and write only below `writable` (where the kernel has Landlock)."""

    forbidden: list[str]
    writable: list[str]


Order = Fork | End | Prepare | Lock


def run(control: socket.socket, meta: bool = True) -> None:
    """Obey orders until the other end closes, then kill every host and end the process; never returns."""
    limits.adopt_orphans()
    limits.hide_memory()  # hosts run as the same user, and the next submission's host is a copy of this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the judge's to handle; it closes this socket
    meters = available_meters()
    if meta:
        prepare_meta()
    hosts: dict[str, int] = {}
    rules = -1
    sandboxed, prepared = False, not meta
    while True:
        if hosts and not prepared and not select.select([control], [], [], _IDLE_SECONDS)[0]:
            with contextlib.suppress(Exception):  # only to save time; whoever asks for it in vain will say so
                prepare_more_meta()
            prepared = True
        try:
            data, descriptors, _, _ = socket.recv_fds(control, ORDER_LIMIT_BYTES, 2)
        except OSError:
            data, descriptors = b"", []
        if not data:
            break
        order = msgspec.msgpack.decode(data, type=Order)
        match order:
            case Fork():
                sandboxed = sandboxed or not order.may_fork
                hosts[order.folder] = _fork(control, order, descriptors, meters, rules)
            case Lock():
                if rules >= 0:
                    os.close(rules)
                rules = landlock.ruleset(map(Path, order.forbidden), map(Path, order.writable))
            case Prepare():
                with contextlib.suppress(Exception):  # a host that needs it will say what is missing
                    importlib.import_module(order.module)
                    keep_loaded()
            case End():
                _end(hosts.pop(order.folder, 0), Path(order.folder), set(hosts.values()))
                if sandboxed and not cleaning.empty({Path(folder) for folder in hosts}, {Path(HOME)}):
                    os._exit(1)  # what cannot be cleaned goes with the whole sandbox; the judge starts another
                with contextlib.suppress(OSError):
                    control.sendall(b"\x01")
    # The judge is gone, whichever way.  Were this process to die with it, what its hosts left behind would live on.
    for folder, pid in list(hosts.items()):
        hosts.pop(folder)
        _end(pid, Path(folder), set(hosts.values()))
    _sweep(set())
    os._exit(0)


def available_meters() -> dict[str, Meter]:
    """The child-side meters by name; each imports what it needs when it first runs."""
    from grader.meter.child import METERS

    return METERS


def _fork(control: socket.socket, order: Fork, descriptors: list[int], meters: dict[str, Meter], rules: int) -> int:
    channel, output = descriptors
    pid = os.fork()
    if pid == 0:
        control.close()
        limits.die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        bounds = limits.Limits(
            order.memory_bytes,
            file_bytes=order.file_bytes,
            open_files=order.open_files,
            may_fork=order.may_fork,
            rules=rules,
        )
        become_host(socket.socket(fileno=channel), output, Path(order.folder), bounds, meters)
    os.close(channel)
    os.close(output)
    return pid


def _end(pid: int, folder: Path, others: set[int]) -> None:
    if pid:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        _sweep(others)
    shutil.rmtree(folder, ignore_errors=True)


def _sweep(others: set[int]) -> None:
    """Kill every adopted orphan; each death may bring its own children here, so repeat."""
    deadline = time.monotonic() + _SWEEP_SECONDS
    while time.monotonic() < deadline:
        orphans = [pid for pid in _children() if pid not in others]
        if not orphans:
            return
        for orphan in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(orphan, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(orphan, 0)


def _children() -> list[int]:
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        return [int(word) for word in text.split()]
    except OSError:
        return []


def main() -> None:
    """`python -I -m grader.host.zygote FD`: a zygote started by exec, under bubblewrap or after a loss."""
    prepare_torch()
    control = socket.socket(fileno=int(sys.argv[1]))
    control.sendall(b"\x01")
    run(control)


def prepare_torch() -> None:
    """Import what a host needs and pin threads, without running a parallel operation.

    Every host inherits these pages.
    """
    gc.disable()  # it would look through a growing torch several times
    import numpy.random  # noqa: F401
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(RuntimeError):
        torch.set_num_interop_threads(1)
    (torch.ones(2, 2, requires_grad=True) @ torch.ones(2, 2)).softmax(-1).sum().backward()  # type: ignore[no-untyped-call]
    keep_loaded()


def prepare_meta() -> None:
    """Have torch import its decompositions (900 modules), which the first product on the meta device asks for.

    The judge is busy importing pytest and collecting meanwhile, so this costs a cold start almost nothing.
    """
    import torch

    weight = torch.empty(2, 2, device="meta")
    torch.nn.functional.linear(weight, weight)
    keep_loaded()


def prepare_more_meta() -> None:
    """Have torch import what some operations on the meta device ask for: 400 modules more, a second in every host."""
    import torch._dynamo  # noqa: F401

    keep_loaded()


def keep_loaded() -> None:
    """Have the collector leave alone what is there by now.

    Its marks would have each host copy all pages; to look through torch and Triton takes a sixth of a kernel's time.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    main()
