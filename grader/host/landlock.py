"""Keeping a host's hands off files, by Linux's Landlock, where bubblewrap is not used.

A host may read everything except the kit's content (hidden tests, solutions,
mistakes), may write only to its scratch folder, the empty home and devices,
may not open TCP connections, and may not signal a process outside.  Landlock
knows no "except", so the forbidden paths are left out by allowing all their
siblings, and their parents' siblings, up to the root.  See
https://docs.kernel.org/userspace-api/landlock.html.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_WRITE_FILE, _READ_FILE = 1 << 1, 1 << 2
_CHANGES = sum(1 << bit for bit in range(4, 13))  # remove and make, of every kind
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


def version() -> int:
    """The kernel's Landlock version; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, _syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG))


def ruleset(forbidden: Iterable[Path], writable: Iterable[Path]) -> int:
    """A descriptor of the rules, to be used by `restrict` in any number of forks; -1 where Landlock cannot be had.

    Args:
        forbidden: files and folders that may not be read.
        writable: folders below which everything may be written.
    """
    abi = version()
    if abi < 1:
        return -1
    changes = _WRITE_FILE | _CHANGES | (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0)
    handled = _READ_FILE | changes
    attributes = struct.pack("QQQ", handled, _TCP if abi >= 4 else 0, _ABSTRACT_SOCKETS_AND_SIGNALS if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    rules = _syscall(_CREATE_RULESET, ctypes.create_string_buffer(attributes, 24), size, 0)
    if rules < 0:
        return -1
    for path in _allowed(Path("/"), [path.resolve() for path in forbidden]):
        _allow(rules, path, _READ_FILE)
    for path in writable:
        _allow(rules, path, handled)
    return rules


def restrict(rules: int) -> bool:
    """Take the rules on, for this process and all it will start; False where that failed.

    Needs no_new_privs (see `limits.drop_privileges`).
    """
    return rules >= 0 and _syscall(_RESTRICT_SELF, rules, 0) == 0


def _allowed(folder: Path, forbidden: list[Path]) -> Iterator[Path]:
    """The fewest paths below `folder` that together hold everything except the forbidden ones."""
    inside = [path for path in forbidden if path == folder or folder in path.parents]
    if not inside:
        yield folder
    elif folder not in inside:
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(folder)):
                yield from _allowed(folder / name, inside)


def _allow(rules: int, path: Path, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not path.is_dir():  # the rights over folders do not apply to a file
            access &= _READ_FILE | _WRITE_FILE | _TRUNCATE
        beneath = struct.pack("=Qi", access, descriptor)
        _syscall(_ADD_RULE, rules, _PATH_BENEATH, ctypes.create_string_buffer(beneath, len(beneath)), 0)
    finally:
        os.close(descriptor)


def _syscall(number: int, *arguments: object) -> int:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return int(call(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)))
