"""A released kit, installed as a student installs it: it grades public tests, and a code opens one exercise."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import NamedTuple

import pytest

from grader.classroom.release import read_codes

pytest.importorskip("pyrage")


class Student(NamedTuple):
    """A student's machine: an environment with the kit installed, an empty folder, and the instructor's codes."""

    python: Path
    home: Path
    codes: dict[str, str]
    solutions: Path

    def kit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the installed ``kit``."""
        environment = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
        return subprocess.run(
            [self.python.parent / "kit", *arguments],
            cwd=self.home,
            env=environment | {"HOME": str(self.home), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    """Release the miniature course and install the kit into a fresh environment that has the dependencies."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "classroom"))
    try:
        from tests_course import make_course
    finally:
        sys.path.pop(0)
    root = make_course(tmp_path_factory.mktemp("content"))
    out = tmp_path_factory.mktemp("release") / "kit"
    environment = {**os.environ, "KIT_CONTENT": str(root)}
    made = subprocess.run(
        [sys.executable, "-c", "from grader.cli.main import main; main()", "class", "release", str(out), "--all"],
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    # What the kit depends on comes from this environment instead of the network; this kit itself does not.
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for old in packages.glob("setuptools*"):  # the one that came with Python, which would hide the one we have
        shutil.rmtree(old)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", str(out)]
    done = subprocess.run(install, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return Student(
        python, tmp_path_factory.mktemp("home"), read_codes(out.with_name("kit.codes.json")).codes, root / "solutions"
    )


def test_the_installed_kit_is_the_released_one(student):
    shown = subprocess.run(
        [student.python, "-I", "-c", "import grader; print(grader.__file__)"], capture_output=True, text=True
    ).stdout
    assert str(student.python.parent.parent) in shown
    listed = student.kit("list")
    assert listed.returncode == 0, listed.stderr
    assert "scale_it" in listed.stdout and "shift" in listed.stdout
    assert not list(Path(shown.strip()).parent.rglob("hidden_tests.py"))


def test_it_grades_public_tests(student):
    started = student.kit("start", "scale_it")
    assert started.returncode == 0, started.stderr
    untouched = student.kit("grade", "scale_it", "--json")
    assert untouched.returncode == 1, untouched.stderr
    solution = (student.solutions / "scale_it.py").read_text()
    for text, code, points in (
        (solution, 0, 10),
        (solution.replace("x * factor + 0", "2 * x * factor + 0"), 1, 0),
        (solution.replace("x * factor + 0", "x * 2.0 + 0"), 1, 4),
    ):
        (student.home / "answer.py").write_text(text)
        graded = student.kit("grade", "scale_it", "--file", "answer.py", "--json")
        assert graded.returncode == code, graded.stderr + graded.stdout
        assert json.loads(graded.stdout)["points"] == points
        assert "these are the public tests alone" in graded.stderr
    read = student.kit("grade", "scale_it", "--file", "answer.py")
    assert "expected" in read.stdout and "reference." not in read.stdout


def test_a_code_opens_one_exercise_and_no_other(student):
    wrong = student.kit("reveal", "scale_it", "--code", student.codes["shift"])
    assert wrong.returncode == 2 and "not the code of scale_it" in wrong.stderr
    slip = student.codes["shift"][:-1] + ("0" if student.codes["shift"][-1] != "0" else "1")
    assert "slip" in student.kit("reveal", "shift", "--code", slip).stderr
    opened = student.kit("reveal", "shift", "--code", student.codes["shift"].lower())
    assert opened.returncode == 0, opened.stderr
    assert (student.solutions / "shift.py").read_text() in opened.stdout
    kept = list(student.home.rglob("hidden_tests.py"))
    assert [path.parent.name for path in kept] == ["shift"]


def test_a_student_kit_cannot_grade_a_class_or_release(student):
    (student.home / "class" / "ada").mkdir(parents=True)
    (student.home / "class" / "ada" / "shift.py").write_text("x = 1\n")
    assert "cannot be graded here" in student.kit("class", "grade", "class").stderr
    assert "nothing to seal" in student.kit("class", "release", "again", "--all").stderr
