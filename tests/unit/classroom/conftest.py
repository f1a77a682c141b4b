"""A class of the miniature course."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.catalogue import Catalogue


@pytest.fixture
def catalogue(course: Path) -> Catalogue:
    return Catalogue(course)


@pytest.fixture
def class_folder(tmp_path: Path) -> Path:
    """Four students: right, half, wrong, and one with nothing of scale_it."""
    folder = tmp_path / "class"
    for student, text in (("ada", "# right\n"), ("bob", "# half\n"), ("cyd", "# wrong\n")):
        (folder / student).mkdir(parents=True)
        (folder / student / "scale_it.py").write_text(text)
    (folder / "dan").mkdir()
    (folder / "dan" / "shift.py").write_text("# right, dan\n")
    return folder
