"""The files of a student kit: what students see of an exercise, the grader's package, and how to install it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from grader.catalogue import read_hints
from grader.classroom.identity import kit_version
from grader.errors import ContentError, GraderFault
from grader.model import Exercise
from grader.seal import Manifest

PACKAGE = Path(__file__).resolve().parents[1]
_PACKAGE_SUFFIXES = frozenset({".py", ".j2", ".jinja", ".html", ".css", ".js", ".svg", ".typed"})
_DEPENDENCIES = (
    "torch>=2.10,<2.15",
    "numpy>=1.26",
    "click>=8.1",
    "jinja2>=3.1",
    "pytest>=8",
    "pytest-timeout>=2.3",
    "rich>=13",
    "msgspec>=0.18",
    "watchfiles>=0.21",
    "fsrs>=6",
    "pyrage>=1.2",
    "triton>=3.6; sys_platform == 'linux'",
)
_SEALED_HINT = "The line itself is sealed in this kit; ask your instructor for the code that opens the exercise."


def copy_package(target: Path) -> None:
    """The grader's own code, without caches and without content.

    Raises:
        GraderFault: the package holds no code where it should.
    """
    copied = 0
    for path in sorted(PACKAGE.rglob("*")):
        relative = path.relative_to(PACKAGE)
        if relative.parts[0] == "content" or "__pycache__" in relative.parts or path.suffix not in _PACKAGE_SUFFIXES:
            continue
        destination = target / relative
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, destination)
        copied += 1
    if not copied:
        raise GraderFault(f"{PACKAGE} holds none of the grader's files")


def exercise_toml(exercise: Exercise) -> str:
    """exercise.toml without its cost and speed targets, which need the reference to be measured."""
    text = (exercise.folder / "exercise.toml").read_text(encoding="utf-8")
    blocks = re.split(r"(?m)^(?=\[)", text)
    kept = [block for block in blocks if not re.match(r"\[\[(?:cost|speed)\b", block)]
    head = re.sub(r"(?ms)^public_tests\s*=\s*\[.*?\]\s*?\n", "", kept[0])
    return "".join([head, *kept[1:]])


def hints(exercise: Exercise) -> str:
    """hints.md without the level that gives the line of code."""
    found = read_hints(exercise)
    lines = [f"# Hints for {exercise.title}"]
    for number in sorted(found):
        nudge, idea, _ = found[number]
        lines += [f"## Part {number}", "### Nudge", nudge, "### Idea", idea, "### Line", _SEALED_HINT]
    return "\n\n".join(lines) + "\n"


def write_project(folder: Path, manifest: Manifest, exercises: Sequence[Exercise]) -> None:
    """pyproject.toml, README and licence of the kit.

    Raises:
        ContentError: a dependency list that cannot be written down.
    """
    if any('"' in item for item in _DEPENDENCIES):
        raise ContentError("a dependency has a quotation mark in it")
    listed = "\n".join(f'    "{item}",' for item in _DEPENDENCIES)
    (folder / "pyproject.toml").write_text(
        f"""[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "kit-grader"
version = "{_local_version(manifest.release)}"
description = "Interview-prep exercises on modern model architecture, with public tests"
readme = "README.md"
requires-python = ">=3.11"
license = "Apache-2.0"
license-files = ["LICENSE"]
dependencies = [
{listed}
]

[project.scripts]
kit = "grader.cli.main:main"

[tool.setuptools.packages.find]
include = ["grader*"]
namespaces = false

[tool.setuptools.package-data]
grader = ["content/**/*"]
"*" = ["*.html", "*.css", "*.js", "*.jinja", "*.j2"]
""",
        encoding="utf-8",
    )
    rows = "\n".join(f"| `{item.slug}` | {item.title} | {len(item.parts)} | {item.max_points} |" for item in exercises)
    (folder / "README.md").write_text(
        f"""# Student kit {manifest.release}

```
python -m venv .venv && . .venv/bin/activate
pip install .
kit list
kit start {exercises[0].slug}
kit grade {exercises[0].slug}
```

| exercise | title | parts | points |
|---|---|---|---|
{rows}

`kit grade` runs the public tests, on inputs that are the same every time. Your instructor grades with more tests, on
inputs that are drawn anew, so a file that only knows the public answers does not pass.

Solutions, the other tests and the known mistakes are in `sealed.age` beside each exercise. When your instructor
gives out an exercise's code, `kit reveal NAME --code CODE` opens that exercise and no other. `release.json` holds
the hashes of the sealed files and of the codes, fixed on {manifest.made}: what is opened is what was sealed then.
""",
        encoding="utf-8",
    )
    for licence in (PACKAGE.parent / "LICENSE", PACKAGE / "content" / "LICENSE"):
        if licence.exists():
            shutil.copyfile(licence, folder / "LICENSE")
            return
    (folder / "LICENSE").write_text("SPDX-License-Identifier: Apache-2.0\n", encoding="utf-8")


def _local_version(release: str) -> str:
    """The kit's version with the release's name as its local part (PEP 440)."""
    version = kit_version()
    return f"{version.partition('+')[0] if version != 'unknown' else '0'}+student.{release}"
