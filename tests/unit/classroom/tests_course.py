"""The miniature course of the root conftest, for fixtures that outlive one test."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from grader.authoring import write_stub
from grader.catalogue import Catalogue

_ROOT_CONFTEST = Path(__file__).resolve().parents[2] / "conftest.py"


def make_course(folder: Path) -> Path:
    """Write the course below ``folder`` and return its content root."""
    texts = _texts()
    root = folder / "course"
    for slug, solution, toml, first, find in (
        ("scale_it", texts.SCALE_SOLUTION, texts.SCALE_TOML, "scale", "x * factor + 0"),
        ("shift", texts.SHIFT_SOLUTION, texts.SHIFT_TOML, "shift", "x + 1\\n"),
    ):
        target = root / "exercises" / slug
        target.mkdir(parents=True)
        (root / "solutions").mkdir(exist_ok=True)
        (root / "solutions" / f"{slug}.py").write_text(solution)
        (target / "exercise.toml").write_text(toml)
        (target / "prompt.md").write_text(texts.PROMPT)
        (target / "hints.md").write_text(texts.HINTS)
        (target / "hidden_tests.py").write_text(texts.TESTS.format(first=first))
        mistake = texts.MISTAKES.format(
            id=f"{slug.replace('_', '-')}-wrong", find=find, replace=find.replace("x", "2 * x")
        )
        (target / "mistakes.toml").write_text(mistake)
    for exercise in Catalogue(root).exercises():
        write_stub(exercise)
    return root


def _texts() -> Any:
    spec = importlib.util.spec_from_file_location("course_texts", _ROOT_CONFTEST)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
