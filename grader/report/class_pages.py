"""The HTML pages of a class: one feedback page per student and one page of the whole class, each self-contained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2

_FOLDER = Path(__file__).resolve().parent / "classroom"


@dataclass(frozen=True)
class PartView:
    """One part of an exercise as its student sees it; ``seen`` says how its tests went, in words."""

    number: int
    title: str
    passed: bool
    points: int
    max_points: int
    seen: str


@dataclass(frozen=True)
class CauseView:
    """A known mistake that was found, or something the learner's code did (a crash, an exception)."""

    title: str
    says: str
    hint: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class TestView:
    """One test, shown only where the instructor chose full feedback."""

    title: str
    outcome: str
    message: str
    call: str
    actual: str
    expected: str


@dataclass(frozen=True)
class TargetView:
    """A cost or speed target: what was measured, against what, and how that is judged."""

    name: str
    measured: str
    limit: str
    verdict: str


@dataclass(frozen=True)
class ExerciseView:
    """One exercise of one student; ``points`` is None where the grader failed."""

    slug: str
    title: str
    status: str
    points: int | None
    max_points: int
    file: str = ""
    remark: str = ""
    notes: tuple[str, ...] = ()
    parts: tuple[PartView, ...] = ()
    mistakes: tuple[CauseView, ...] = ()
    faults: tuple[CauseView, ...] = ()
    targets: tuple[TargetView, ...] = ()
    tests: tuple[TestView, ...] = ()
    isolation: str = ""


@dataclass(frozen=True)
class StudentView:
    """One student's page; ``points`` is None where any exercise could not be graded."""

    student: str
    points: int | None
    max_points: int
    exercises: tuple[ExerciseView, ...]
    footer: str


@dataclass(frozen=True)
class BarView:
    """One bar of a chart: its label, the number it stands for, its share of the largest, and a remark."""

    label: str
    count: int
    share: float
    remark: str = ""
    detail: str = ""


@dataclass(frozen=True)
class TestRow:
    """One test in the class: who passed it and how well it tells strong answers from weak ones (-1 to 1)."""

    title: str
    part: int
    passed: int
    answers: int
    discrimination: float | None
    remark: str = ""


@dataclass(frozen=True)
class PartRow:
    """One part in the class: how many passed it, how long its tests take, and its median speed ratio if measured."""

    number: int
    title: str
    passed: int
    answers: int
    median_seconds: float
    slowest_seconds: float
    speed: str = ""


@dataclass(frozen=True)
class ClassExerciseView:
    """One exercise of the class."""

    slug: str
    title: str
    max_points: int
    graded: int
    counts: str
    mean: float | None
    median: float | None
    distribution: tuple[BarView, ...]
    mistakes: tuple[BarView, ...]
    outcomes: tuple[BarView, ...]
    tests: tuple[TestRow, ...]
    parts: tuple[PartRow, ...]
    identical: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class StudentRow:
    """One student in the class's table; each cell is the points or a word, with the page it leads to."""

    student: str
    page: str
    cells: tuple[str, ...]
    total: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClassView:
    """The class page."""

    title: str
    slugs: tuple[str, ...]
    exercises: tuple[ClassExerciseView, ...]
    students: tuple[StudentRow, ...]
    remarks: tuple[str, ...]
    footer: str


def student_page(view: StudentView) -> str:
    """One student's feedback, as a whole HTML document that loads nothing."""
    return _environment().get_template("student.jinja").render(view=view)


def class_page(view: ClassView) -> str:
    """The class's page, as a whole HTML document that loads nothing."""
    return _environment().get_template("class.jinja").render(view=view)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda share: f"{100 * share:.0f}%"
    environment.filters["listed"] = _listed
    return environment


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
