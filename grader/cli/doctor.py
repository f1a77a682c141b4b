"""``kit doctor``: what this machine has, and what is missing for which feature."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import NamedTuple

import click

from grader import listing, paths
from grader.errors import KitError
from grader.workspace import STATE_FOLDER, Workspace

OLDEST_PYTHON = (3, 11)
TORCH_SECONDS = 120.0

_PACKAGES = ("torch", "numpy", "click", "rich", "msgspec", "pytest", "pytest-timeout", "jinja2", "watchfiles", "fsrs")
_OPTIONAL = {
    "distributed": "kit class grade --scheduler (extra: cluster)",
    "pyrage": "sealed releases (extra: classroom)",
    "junitparser": "merging JUnit reports (extra: classroom)",
}
_TORCH_FACTS = """
import json, torch
cuda = torch.cuda.is_available()
print(json.dumps({"cuda": torch.cuda.get_device_name(0) if cuda else "", "threads": torch.get_num_threads()}))
"""


class Check(NamedTuple):
    """One thing looked at; ``level`` is good, note (something optional is missing) or bad."""

    level: str
    name: str
    seen: str


@click.command()
def doctor() -> int:
    """Look at Python, the packages, isolation, GPU, content, workspace and journal; exit 3 when grading cannot work."""
    bad = False
    for check in _checks():
        mark, colour = {"good": ("✓", "green"), "note": ("·", "yellow"), "bad": ("✗", "red")}[check.level]
        click.echo(f"{click.style(mark, fg=colour)} {check.name}: {check.seen}")
        bad |= check.level == "bad"
    return 3 if bad else 0


def _checks() -> Iterator[Check]:
    version = platform.python_version()
    old = sys.version_info < OLDEST_PYTHON
    yield Check("bad" if old else "good", "python", f"{version} on {platform.system()} {platform.machine()}")
    yield from _packages()
    yield _bubblewrap()
    yield _torch()
    yield from _content()
    yield from _workspace()


def _packages() -> Iterator[Check]:
    for name in _PACKAGES:
        found = _version(name)
        yield Check("good" if found else "bad", name, found or "missing; install the kit again")
    found = _version("triton")
    if found or sys.platform == "linux":
        yield Check("good" if found else "bad", "triton", found or "missing; the kernel track cannot be graded")
    else:
        yield Check(
            "note", "triton", f"has no wheel for {sys.platform}: the kernel track is unavailable, all else works"
        )
    for name, what in _OPTIONAL.items():
        found = _version(name)
        yield Check("good" if found else "note", name, found or f"not installed; needed for {what}")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _bubblewrap() -> Check:
    path = shutil.which("bwrap")
    if path is None:
        return Check("note", "bubblewrap", "not found; --isolation bwrap and class grading need it")
    try:
        command = [path, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("note", "bubblewrap", f"found but does not run: {error}")
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        return Check("note", "bubblewrap", f"found, but cannot make a sandbox here: {reason[0]}")
    return Check("good", "bubblewrap", "makes sandboxes: no network, read-only files, own process table")


def _torch() -> Check:
    """Import torch in a process of its own: it takes seconds, and a broken install must not take this one down."""
    import json

    try:
        done = subprocess.run(
            [sys.executable, "-c", _TORCH_FACTS], capture_output=True, text=True, timeout=TORCH_SECONDS
        )
        facts = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return Check("bad", "torch import", f"did not end within {TORCH_SECONDS:.0f} s")
    except ValueError:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return Check("bad", "torch import", reason[0])
    if facts["cuda"]:
        return Check("good", "GPU", facts["cuda"])
    return Check("note", "GPU", "none that torch can use; --device cuda is refused, everything runs on the CPU")


def _content() -> Iterator[Check]:
    try:
        root = paths.content_root()
        items = listing.headlines(paths.exercise_folders(root))
    except KitError as error:
        yield Check("bad", "exercises", error.message)
        return
    kernels = sum(1 for item in items if item.track == "kernels")
    yield Check("good" if items else "bad", "exercises", f"{len(items)} ({kernels} of them kernels) in {root}")


def _workspace() -> Iterator[Check]:
    workspace = Workspace.find()
    if not workspace.exists:
        parent = next(folder for folder in (workspace.root, *workspace.root.parents) if folder.exists())
        writable = os.access(parent, os.W_OK)
        seen = f"{workspace.root}, made by the first kit start" if writable else f"{workspace.root} cannot be written"
        yield Check("note" if writable else "bad", "workspace", seen)
        return
    writable = os.access(workspace.root, os.W_OK) and os.access(workspace.state, os.W_OK)
    yield Check(
        "good" if writable else "bad", "workspace", f"{workspace.root}{'' if writable else ' cannot be written'}"
    )
    yield _journal(workspace)


def _journal(workspace: Workspace) -> Check:
    import sqlite3
    from urllib.parse import quote

    damaged = sorted(path.name for path in workspace.state.glob("journal.damaged-*.db"))
    kept = f"; set aside earlier: {', '.join(damaged)}" if damaged else ""
    if not workspace.journal_path.exists():
        return Check("note", "journal", f"none yet in {workspace.root / STATE_FOLDER}{kept}")
    try:
        connection = sqlite3.connect(f"file:{quote(str(workspace.journal_path))}?mode=ro", uri=True, timeout=5)
        try:
            verdict = connection.execute("PRAGMA quick_check").fetchone()[0]
            count = connection.execute("SELECT count(*) FROM attempts").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.Error as error:
        return Check("bad", "journal", f"{workspace.journal_path} cannot be read: {error}{kept}")
    if verdict != "ok":
        return Check("bad", "journal", f"{workspace.journal_path} is damaged: {verdict}{kept}")
    return Check("good", "journal", f"{count} attempts in {workspace.journal_path}{kept}")
