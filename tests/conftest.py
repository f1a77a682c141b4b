"""A miniature course in a temporary folder, so that tests of the shell do not move when an exercise does."""

from __future__ import annotations

from pathlib import Path

import pytest

SCALE_SOLUTION = '''"""Scaling, the reference.

x: what is scaled.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

DEFAULT_FACTOR = 2.0
_SECRET = math.pi


def unit(n: int) -> Tensor:
    """A vector of n ones."""
    return _ones(n)  # given code keeps its comments


def _ones(n: int) -> Tensor:
    return torch.ones(n)


@functools.lru_cache
def scale(
    x: Tensor,  # what to scale
    factor: float = DEFAULT_FACTOR,
) -> Tensor:
    """Return x times factor.

    x (B, T) -> (B, T).  Mind the "quotes" and the # sign.
    """
    # the trick
    return x * factor + 0 * _SECRET


class Scaler(nn.Module):
    """Scales by a weight."""

    weight: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """x (B, size) -> (B, size)."""
        return self._apply_weight(x)

    @property
    def sizes(self) -> Sequence[int]:
        """The weight's shape."""
        return tuple(self.weight.shape)

    def _apply_weight(self, x: Tensor) -> Tensor:
        return x * self.weight
'''

SCALE_TOML = """slug = "scale_it"
title = "Scaling"
track = "attention"
stars = 1
minutes = 5
source = "Made up 2020, section 1"
given = ["unit"]

[[part]]
number = 1
title = "The function"
points = 4
symbols = ["scale"]

[[part]]
number = 2
title = "The module"
points = 6
symbols = ["Scaler"]

[symbol_minutes]
Scaler = 2
"""

SHIFT_SOLUTION = '''"""Shifting, the reference."""

from __future__ import annotations

from torch import Tensor


def shift(x: Tensor) -> Tensor:
    """x + 1, same shape."""
    return x + 1


def scale(x: Tensor, factor: float = 2.0) -> Tensor:
    """x times factor, same shape."""
    return x * factor
'''

SHIFT_TOML = """slug = "shift"
title = "Shifting"
track = "objectives"
stars = 2
minutes = 10
source = "Made up 2021"

[[part]]
number = 1
title = "Shift"
points = 5
symbols = ["shift"]

[[part]]
number = 2
title = "Scale again"
points = 5
symbols = ["shift", "scale"]
"""

PROMPT = """## Formula

y = a x, from section 1.

## Signatures

`scale`, `Scaler`, `shift`

## Conventions

None.

## Parts

1 and 2.

## Worked example

2 times 3 is 6.

## What the interviewer asks next

- Why? Because.
"""

HINTS = "\n".join(
    f"## Part {part}\n\n### Nudge\n\nNudge {part}.\n\n### Idea\n\nIdea {part}.\n\n### Line\n\n```\n# line {part}\n```\n"
    for part in (1, 2)
)

TESTS = '''"""Hidden tests."""

import torch


@part(1)
def test_first(submission, reference, rng):
    x = rng.normal(3, 5)
    close(submission.{first}(x), reference.{first}(x), says="the values agree")


@part(2)
def test_second(submission, reference, rng):
    x = rng.normal(3, 5)
    close(submission.scale(x, 3.0), reference.scale(x, 3.0), says="the factor is used")
'''

MISTAKES = """[[mistake]]
id = "{id}"
title = "Wrong number"
part = 1
find = "{find}"
replace = "{replace}"
says = "It does one thing; it should do another."
hint = "Try 2."
seen_in = "made/up#1"
"""


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A content folder with the exercises ``scale_it`` and ``shift``, made the content of ``kit``; stubs included."""
    from grader.authoring import write_stub
    from grader.catalogue import Catalogue

    root = tmp_path / "course"
    for slug, solution, toml, first, find in (
        ("scale_it", SCALE_SOLUTION, SCALE_TOML, "scale", "x * factor + 0"),
        ("shift", SHIFT_SOLUTION, SHIFT_TOML, "shift", "x + 1\\n"),
    ):
        folder = root / "exercises" / slug
        folder.mkdir(parents=True)
        (root / "solutions").mkdir(exist_ok=True)
        (root / "solutions" / f"{slug}.py").write_text(solution)
        (folder / "exercise.toml").write_text(toml)
        (folder / "prompt.md").write_text(PROMPT)
        (folder / "hints.md").write_text(HINTS)
        (folder / "hidden_tests.py").write_text(TESTS.format(first=first))
        mistake = MISTAKES.format(id=f"{slug.replace('_', '-')}-wrong", find=find, replace=find.replace("x", "2 * x"))
        (folder / "mistakes.toml").write_text(mistake)
    for exercise in Catalogue(root).exercises():
        write_stub(exercise)
    monkeypatch.setenv("KIT_CONTENT", str(root))
    return root


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder named by KIT_WORKSPACE."""
    root = tmp_path / "workspace"
    monkeypatch.setenv("KIT_WORKSPACE", str(root))
    return root
