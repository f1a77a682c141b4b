"""What keeps submissions of a class apart in one sandbox: the system-call filter, and emptied shared places."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grader.host import seccomp
from grader.host.cleaning import empty

FILTERED = """
import ctypes, os, subprocess, sys, threading
from grader.host.seccomp import shut_in
assert shut_in()
libc = ctypes.CDLL(None, use_errno=True)
refused = {}
for name, attempt in (
    ("fork", os.fork),
    ("spawn", lambda: os.posix_spawn("/bin/true", ["true"], {})),
    ("subprocess", lambda: subprocess.run(["/bin/true"])),
):
    try:
        attempt()
        refused[name] = "went through"
    except OSError as error:
        refused[name] = error.errno
refused["ptrace"] = libc.ptrace(16, os.getppid(), 0, 0)
refused["shmget"] = libc.shmget(0, 4096, 0o1666)
refused["unshare"] = libc.unshare(0x10000000)
done = []
thread = threading.Thread(target=lambda: done.append(1))
thread.start(); thread.join()
print(refused, done)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="system-call filters are Linux's")
def test_a_process_that_is_shut_in_makes_threads_and_no_processes():
    done = subprocess.run([sys.executable, "-c", FILTERED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = {"fork": 11, "spawn": 11, "subprocess": 11, "ptrace": -1, "shmget": -1, "unshare": -1}
    assert done.stdout == f"{expected} [1]\n"


@pytest.mark.parametrize("machine", sorted(seccomp._CALLS))
def test_the_filter_is_whole_for_every_machine(machine):
    """Every jump lands inside the program, which ends in a verdict."""
    program = seccomp._program(*seccomp._CALLS[machine])
    count = len(program) // 8
    assert len(program) % 8 == 0 and count < 4096
    for at in range(count):
        code, true, false = (
            int.from_bytes(program[8 * at : 8 * at + 2], "little"),
            program[8 * at + 2],
            program[8 * at + 3],
        )
        assert at + 1 + max(true, false) < count or code == 0x06
    assert int.from_bytes(program[-8:-6], "little") == 0x06


def test_an_unknown_machine_is_said_to_be_one(monkeypatch):
    monkeypatch.setattr(seccomp.platform, "machine", lambda: "pdp11")
    assert not seccomp.shut_in()


@pytest.fixture
def shared(tmp_path):
    """Two hosts' folders, a home, and what a learner may leave: files, links, a FIFO, a folder nobody may enter."""
    (tmp_path / "kit" / "1").mkdir(parents=True)
    (tmp_path / "kit" / "1" / "left").write_text("x")
    (tmp_path / "kit" / "2").mkdir()
    (tmp_path / "kit" / "2" / "working").write_text("x")
    (tmp_path / "home" / ".cache").mkdir(parents=True)
    (tmp_path / "home" / ".cache" / "mark").write_text("x")
    (tmp_path / "out").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "shut" / "in").mkdir(parents=True)
    (tmp_path / "shut").chmod(0)
    return tmp_path


def clean(shared):
    return empty({shared / "kit" / "2"}, {shared / "home"}, (shared,))


def test_everything_goes_but_the_working_host_and_the_home(shared):
    assert clean(shared)
    left = sorted(path.relative_to(shared).as_posix() for path in shared.rglob("*"))
    assert left == ["home", "kit", "kit/2", "kit/2/working"]
    assert Path("/etc/passwd").exists()


def test_what_is_too_deep_to_remove_is_admitted(shared):
    before = os.getcwd()
    os.chdir(shared)
    try:
        for _ in range(1500):
            os.mkdir("deeper")
            os.chdir("deeper")
    finally:
        os.chdir(before)
    assert not clean(shared)
    subprocess.run(["rm", "-rf", str(shared / "deeper")], check=True)
    assert clean(shared)
