"""The shipped exercises keep the content format; that they prove themselves by running is `kit author check`."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from grader.authoring import read_through, stray_content
from grader.catalogue import Catalogue
from grader.retype import retype_text, symbol_drill_text

ROOT = Path(__file__).resolve().parent.parent
CATALOGUE = Catalogue(ROOT)
SLUGS = sorted(CATALOGUE.folders)


@pytest.mark.parametrize("slug", SLUGS)
def test_an_exercise_keeps_the_format(slug: str) -> None:
    assert [f"{item.kind}: {item.seen}" for item in read_through(CATALOGUE, slug) if not item.holds] == []


def test_nothing_lies_about() -> None:
    assert stray_content(CATALOGUE) == []


@pytest.mark.parametrize("slug", SLUGS)
def test_drill_texts_of_an_exercise_are_python(slug: str) -> None:
    exercise = CATALOGUE.exercise(slug)
    solution = exercise.solution_path.read_text(encoding="utf-8")
    compile(retype_text(solution), slug, "exec")
    for symbol in exercise.symbols:
        drill = symbol_drill_text(exercise, solution, symbol)
        compile(drill, slug, "exec")
        assert f"write {symbol}" in drill


@pytest.mark.parametrize("slug", SLUGS)
def test_a_stub_shows_no_line_of_an_answer(slug: str) -> None:
    """A line of code that only the answer's bodies have must not be in the stub."""
    exercise = CATALOGUE.exercise(slug)
    stub = (exercise.folder / f"{slug}.py").read_text(encoding="utf-8")
    given = retype_text(exercise.solution_path.read_text(encoding="utf-8"), exercise.given) if exercise.given else ""
    answer = retype_text(exercise.solution_path.read_text(encoding="utf-8"), exercise.symbols)
    statements = (line.strip() for line in answer.splitlines() if line.startswith("    ") and "=" in line)
    bodies = {line for line in statements if not line.startswith(("def ", "class ", "@")) and "(" in line}
    shown = {line.strip() for line in stub.splitlines()} - {line.strip() for line in given.splitlines()}
    assert not bodies & shown


def test_a_wheel_carries_the_content_and_runs_without_the_checkout(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(tmp_path), str(_clean_copy(tmp_path))], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
        names = archive.namelist()
    for slug in SLUGS:
        exercise = CATALOGUE.exercise(slug)
        for path in (*exercise.folder.glob("*.*"), exercise.solution_path):
            assert f"grader/content/{path.relative_to(ROOT)}" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests/")]
    environment = {**os.environ, "PYTHONPATH": str(unpacked), "KIT_WORKSPACE": str(tmp_path / "w")}
    environment.pop("KIT_CONTENT", None)
    code = "from grader.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, "list"], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert all(slug in done.stdout for slug in SLUGS)
    subprocess.run([sys.executable, "-P", "-c", code, "start", "gqa"], env=environment, cwd=tmp_path, check=True)
    assert (tmp_path / "w" / "gqa.py").read_bytes() == (ROOT / "exercises" / "gqa" / "gqa.py").read_bytes()


def _clean_copy(folder: Path) -> Path:
    """The files a build needs, apart, so that building leaves nothing in the checkout."""
    import shutil

    copy = folder / "source"
    copy.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, copy / name)
    for name in ("grader", "exercises", "kernels", "solutions", "quiz"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name)
    return copy
