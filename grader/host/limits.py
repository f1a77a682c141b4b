"""What a host may use, and how it gives up the rest; applied in the child before the learner's code runs."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from grader.host import landlock, seccomp

MEBIBYTE = 1 << 20
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 36, 38
_LAST_CAPABILITY = 63


@dataclass(frozen=True)
class Limits:
    """What one host may use, on top of what the zygote already holds."""

    memory_bytes: int = 2048 * MEBIBYTE
    output_bytes: int = 1 * MEBIBYTE
    """Printed in one test, before the host is killed."""
    shown_output_bytes: int = 8 * 1024
    """Printed text that is kept and shown."""
    file_bytes: int = 64 * MEBIBYTE
    """The size of any one file the learner's code writes."""
    open_files: int = 256
    may_fork: bool = True
    """Whether the learner's code may make processes; under bwrap it may not, which is what stops a fork bomb."""
    rules: int = -1
    """The descriptor of Landlock rules to take on, if any."""
    load_seconds: float = 10.0
    """How long the learner's file may take to import."""


def usable_cores() -> int:
    """How many processors this process may use; at least one."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends (Linux)."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Make this process the parent of every orphaned descendant, so that none escapes (Linux)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> None:
    """Keep other processes of the same user from reading or tracing this one (Linux; root keeps its power)."""
    _prctl(_PR_SET_DUMPABLE, 0)


def apply(limits: Limits) -> None:
    """Take on the limits, for good: resource limits, no core dumps, no capabilities, own session."""
    os.setsid()
    data_bytes = _private_bytes() + limits.memory_bytes
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    _lower(resource.RLIMIT_NOFILE, limits.open_files)
    if sys.platform == "linux":
        # RLIMIT_DATA counts private writable memory, mmap included, and unlike RLIMIT_AS not the
        # gigabytes of address space that torch reserves and never touches.
        _lower(resource.RLIMIT_DATA, data_bytes)
        drop_privileges()
        if limits.rules >= 0:
            landlock.restrict(limits.rules)
            os.close(limits.rules)
        if not limits.may_fork:
            seccomp.shut_in()


def drop_privileges() -> None:
    """Give up every capability and the way back to them; a root learner is then an ordinary reader."""
    for capability in range(_LAST_CAPABILITY + 1):
        _prctl(_PR_CAPBSET_DROP, capability)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this thread
    nothing = (ctypes.c_uint32 * 6)()
    _libc().capset(header, nothing)


def resident_bytes(pid: int) -> int:
    """Memory a process holds that it does not share, 0 where it cannot be read."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError, IndexError):
        return 0


def starved_seconds(pid: int) -> float:
    """How long a process was ready to run and not let, since it began; 0 where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _private_bytes() -> int:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        _libc().prctl(option, value, 0, 0, 0)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
