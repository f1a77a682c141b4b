"""Where the content lies: inside the package in an installed wheel, beside it in a checkout."""

from __future__ import annotations

import os
from pathlib import Path

from grader.errors import GraderFault

CONTENT_VARIABLE = "KIT_CONTENT"
"""Environment variable that names another content folder (one with ``exercises/`` in it)."""

_PACKAGE = Path(__file__).resolve().parent


def content_root() -> Path:
    """The folder that holds ``exercises/``, ``kernels/`` and ``solutions/``.

    ``KIT_CONTENT`` comes first, then the copy a wheel carries, then the checkout around the package.

    Raises:
        GraderFault: when none of them has an ``exercises`` folder.
    """
    override = os.environ.get(CONTENT_VARIABLE)
    if override:
        root = Path(override).expanduser().resolve()
        if not (root / "exercises").is_dir():
            raise GraderFault(f"{CONTENT_VARIABLE} names {root}, which has no exercises/ folder")
        return root
    for root in (_PACKAGE / "content", _PACKAGE.parent):
        if (root / "exercises").is_dir():
            return root
    raise GraderFault("this installation carries no exercises", "install the kit again, or set KIT_CONTENT")


def is_checkout(root: Path) -> bool:
    """True when the content is a source tree (its exercises can be edited), not a wheel's copy."""
    return root != _PACKAGE / "content"


def exercise_folders(root: Path) -> dict[str, Path]:
    """Slug to folder, for every folder under ``exercises/`` and ``kernels/`` that has an ``exercise.toml``."""
    found: dict[str, Path] = {}
    for kind in ("exercises", "kernels"):
        base = root / kind
        if not base.is_dir():
            continue
        for entry in sorted(os.scandir(base), key=lambda item: item.name):
            if os.path.exists(os.path.join(entry.path, "exercise.toml")):
                found[entry.name] = Path(entry.path)
    return found


def solution_path(root: Path, folder: Path) -> Path:
    """Where the solution of the exercise in ``folder`` lies (a student kit does not have it)."""
    if folder.parent.name == "kernels":
        return root / "solutions" / "kernels" / f"{folder.name}.py"
    return root / "solutions" / f"{folder.name}.py"
