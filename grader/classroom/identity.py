"""What a grade depends on besides the submission, as short hashes: the grader's code, an exercise's tests."""

from __future__ import annotations

import hashlib
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

from grader.model import Exercise

_PACKAGE = Path(__file__).resolve().parents[1]
_JUDGING = ("host", "judge", "meter", "grading.py", "model.py", "catalogue.py")
_PACK_FILES = ("exercise.toml", "hidden_tests.py", "mistakes.toml", "benchmarks.py")
_ALSO_SEALED = ("hints.md",)


def kit_version() -> str:
    """The version of the installed kit, or of the checkout it runs from."""
    try:
        return metadata.version("kit-grader")
    except metadata.PackageNotFoundError:
        project = _PACKAGE.parent / "pyproject.toml"
        if project.exists():
            return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])
        return "unknown"


@cache
def kit_fingerprint() -> str:
    """The version and a hash of the code that forms verdicts, so that a grader changed in place is another grader."""
    digest = hashlib.sha256()
    for name in _JUDGING:
        path = _PACKAGE / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            _add(digest, file.relative_to(_PACKAGE).as_posix(), file.read_bytes())
    return f"{kit_version()}+{digest.hexdigest()[:12]}"


def pack_sha256(exercise: Exercise) -> str:
    """The hash of everything that a grade of this exercise rests on: tests, solution, mistakes, benchmarks, points."""
    digest = hashlib.sha256()
    for name, data in pack_files(exercise).items():
        _add(digest, name, data)
    return digest.hexdigest()


def pack_files(exercise: Exercise) -> dict[str, bytes]:
    """The files that a grade rests on: name to contents, those that exist."""
    paths = {name: exercise.folder / name for name in _PACK_FILES} | {"solution.py": exercise.solution_path}
    return {name: path.read_bytes() for name, path in paths.items() if path.exists()}


def sealed_files(exercise: Exercise) -> dict[str, bytes]:
    """What a release seals: the pack, and the hints down to the line of code."""
    paths = {name: exercise.folder / name for name in _ALSO_SEALED}
    return pack_files(exercise) | {name: path.read_bytes() for name, path in paths.items() if path.exists()}


def _add(digest: hashlib._Hash, name: str, data: bytes) -> None:
    digest.update(f"{name}\0{len(data)}\0".encode() + data)
