"""A system-call filter that shuts a host in: no new processes, nothing of other processes, nothing that stays (Linux).

Threads can still be made.  Also refused: looking into or tracing other processes
(the zygote, which the next submission's host is forked from), System V shared
memory and its kin and kernel keys (which outlive a process), and new namespaces.

`RLIMIT_NPROC` does not hold for root and counts a user's other processes too, and a
cgroup needs rights that an ordinary user lacks.  A filter needs neither.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import sys

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _JUMP_EQUAL, _JUMP_NOT_BELOW, _JUMP_IF_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_CLONE_THREAD = 0x00010000
_X32_BIT = 0x40000000

# Machine: audit name, clone, clone3, the calls that fork without flags, and those that are refused outright:
# shmget, semget, msgget, mq_open, add_key, request_key, keyctl, ptrace, process_vm_readv, process_vm_writev,
# unshare, setns, pidfd_getfd.
_CALLS = {
    "x86_64": (0xC000003E, 56, 435, (57, 58), (29, 64, 68, 240, 248, 249, 250, 101, 310, 311, 272, 308, 438)),
    "aarch64": (0xC00000B7, 220, 435, (), (194, 190, 186, 180, 217, 218, 219, 117, 270, 271, 97, 268, 438)),
}


def shut_in() -> bool:
    """From here on, in this process and its threads: fork fails with EAGAIN.  False where that cannot be had."""
    if sys.platform != "linux" or platform.machine() not in _CALLS or struct.calcsize("P") != 8:
        return False
    program = _program(*_CALLS[platform.machine()])
    buffer = ctypes.create_string_buffer(program)
    # struct sock_fprog: the number of instructions, padding, where they are.
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return int(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0)) == 0


def _program(architecture: int, clone: int, clone3: int, forks: tuple[int, ...], refused: tuple[int, ...]) -> bytes:
    """The filter in classic BPF.  A jump's two numbers say how many instructions to skip if true and if false."""
    again, unknown = _ERRNO | errno.EAGAIN, _ERRNO | errno.ENOSYS
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),  # another machine's call numbers: only native code made to get around this asks so
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_NOT_BELOW, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, unknown),
    ]
    for number in refused:
        code += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
    for number in forks:
        code += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, again)]
    code += [
        (_JUMP_EQUAL, 0, 1, clone3),
        (_RETURN, 0, 0, unknown),  # its flags lie in memory, where a filter cannot look; libc then uses clone
        (_JUMP_EQUAL, 1, 0, clone),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_JUMP_IF_SET, 0, 1, _CLONE_THREAD),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, again),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)
