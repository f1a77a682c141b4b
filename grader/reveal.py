"""Opening one exercise of a student kit with the code an instructor gave out."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from grader import paths, seal
from grader.errors import GraderFault, RequestError

OPENED_FOLDER = "opened"
"""Where a workspace's ``.kit/`` keeps what was opened."""


@dataclass(frozen=True)
class Opened:
    """A sealed exercise, opened: its annotated solution, and all sealed files by name."""

    slug: str
    solution: str
    files: dict[str, bytes]


def open_sealed(content_root: Path, slug: str, code: str) -> Opened:
    """Open one exercise of the student kit at ``content_root`` and no other.

    The code and the sealed file are first checked against the hashes published at release.

    Raises:
        RequestError: the content is no student kit, does not have the exercise, or the code does not open it.
        GraderFault: the kit is damaged, or pyrage is not installed.
    """
    manifest = seal.read_manifest(content_root)
    if manifest is None:
        raise RequestError("these exercises are not sealed, so no code is needed", f"kit reveal {slug}")
    published = manifest.seals.get(slug)
    folder = paths.exercise_folders(content_root).get(slug)
    if published is None or folder is None:
        raise RequestError(f"this kit has no sealed exercise {slug!r}", f"it has {', '.join(manifest.seals)}")
    seal.check_code(code, published)
    try:
        sealed = (folder / seal.SEALED_NAME).read_bytes()
    except OSError as error:
        raise GraderFault(f"the sealed file of {slug} cannot be read: {error}", "install the kit again") from error
    files = seal.unseal(sealed, code, published)
    return Opened(slug, files["solution.py"].decode("utf-8"), files)


def keep_opened(opened: Opened, kit_folder: Path) -> Path:
    """Write what was opened below a workspace's ``.kit/`` folder and return where; written whole or not at all."""
    target = kit_folder / OPENED_FOLDER / opened.slug
    target.mkdir(parents=True, exist_ok=True)
    for name, data in opened.files.items():
        descriptor, temporary = tempfile.mkstemp(dir=target)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, target / Path(name).name)
    return target
