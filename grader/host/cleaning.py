"""Emptying the places that hosts of one sandbox share, so that nothing passes from one submission to the next."""

from __future__ import annotations

import os
import re
from pathlib import Path

SHARED = (Path("/tmp"), Path("/dev/shm"), Path("/var/tmp"))
"""The writable places of a sandbox."""

_ROUNDS = 3
_ENTRIES = 500_000


def empty(kept: set[Path], kept_folders: set[Path], places: tuple[Path, ...] = SHARED) -> bool:
    """Remove everything in the shared places; False when something would not go.

    Args:
        kept: folders that stay whole: those of hosts still at work.
        kept_folders: folders that stay but are emptied.
        places: where to clean.
    """
    budget = [_ENTRIES]
    kept = kept | {mount for mount in _mounts() if any(place in mount.parents for place in places)}
    for _ in range(_ROUNDS):
        left = False
        for place in places:
            if place.is_dir():
                left |= not _clear(place, kept, kept_folders, budget)
        if not left:
            return True
    return False


def _mounts() -> set[Path]:
    """Where something is mounted: an environment below /tmp, say, bound read-only, is not ours to clear."""
    try:
        rows = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return set()
    return {Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), row.split(" ")[4])) for row in rows}


def _clear(place: Path, kept: set[Path], kept_folders: set[Path], budget: list[int]) -> bool:
    """Empty a folder from the inside out, without recursion; too deep for a path is too much, and False."""
    done = True
    stack: list[tuple[str, bool]] = [(str(place), False)]
    while stack:
        path, visited = stack.pop()
        if visited:
            if Path(path) not in kept_folders and path != str(place):
                try:
                    os.rmdir(path)
                except OSError:
                    done = False
            continue
        stack.append((path, True))
        try:
            os.chmod(path, 0o700)
            entries = list(os.scandir(path))
        except OSError:
            done = done and path == str(place)  # a place that cannot be written has nothing of a learner's in it
            continue
        for entry in entries:
            budget[0] -= 1
            if budget[0] < 0:
                return False
            if Path(entry.path) in kept:
                continue
            if entry.is_dir(follow_symlinks=False):
                if any(folder.is_relative_to(entry.path) for folder in kept):
                    kept_folders = kept_folders | {Path(entry.path)}
                stack.append((entry.path, False))
            else:
                try:
                    os.unlink(entry.path)
                except OSError:
                    done = False
    return done
