"""The learner's page: progress, drills against targets, mistakes, reviews, attempts; self-contained HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2

_FOLDER = Path(__file__).resolve().parent / "practice"
_WIDTH, _HEIGHT = 320, 130
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 8, 12, 22


@dataclass(frozen=True)
class TrackView:
    """A track: exercises passed of all, and points."""

    title: str
    done: int
    total: int
    percent: int
    points: int
    max_points: int


@dataclass(frozen=True)
class RunView:
    """One drill run: its day, its minutes, and whether it was passed in the target, passed late or given up."""

    day: str
    seconds: float
    outcome: str  # in time, over, given up


@dataclass(frozen=True)
class DrillView:
    """A drill's runs against its target."""

    title: str
    target_seconds: float
    runs: tuple[RunView, ...]
    best_seconds: float | None


@dataclass(frozen=True)
class MistakeView:
    """A known mistake the learner made; `mended` is the day it was, or ""."""

    exercise: str
    title: str
    says: str
    count: int
    first: str
    last: str
    mended: str


@dataclass(frozen=True)
class DayView:
    """A day of the calendar: its date, what is due, and whether it is past, today or the interview's."""

    date: str
    number: int
    month: str
    due: tuple[str, ...]
    kind: str = ""


@dataclass(frozen=True)
class CardView:
    """A card: what to run, when it is due, how likely it is still known."""

    title: str
    command: str
    due: str
    overdue: bool
    recall: str


@dataclass(frozen=True)
class ReadinessView:
    """A topic's forecast for the interview's day; `extent` says how much of it has been drilled."""

    topic: str
    extent: str
    kept_percent: int | None
    alone_percent: int | None
    reviews: int


@dataclass(frozen=True)
class AttemptView:
    """One graded file."""

    when: str
    part: str
    source: str
    verdict: str
    good: bool
    points: str
    mistakes: tuple[str, ...]


@dataclass(frozen=True)
class ExerciseAttempts:
    """All attempts at one exercise, the newest first."""

    slug: str
    title: str
    passed: bool
    best: str
    attempts: tuple[AttemptView, ...]


@dataclass(frozen=True)
class WeekView:
    """The attempts of one week: all, and those that passed."""

    start: str
    attempts: int
    passed: int


@dataclass(frozen=True)
class QuizView:
    """A quiz topic: answers given, and the share of the points they got."""

    topic: str
    answers: int
    percent: int


@dataclass(frozen=True)
class InterviewView:
    """One mock interview."""

    day: str
    minutes: str
    score: str
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class PracticeView:
    """The page."""

    made: str
    tracks: tuple[TrackView, ...]
    weeks: tuple[WeekView, ...]
    drills: tuple[DrillView, ...]
    mistakes: tuple[MistakeView, ...]
    calendar: tuple[tuple[DayView, ...], ...]
    cards: tuple[CardView, ...]
    interview: str
    readiness: tuple[ReadinessView, ...]
    quizzes: tuple[QuizView, ...]
    interviews: tuple[InterviewView, ...]
    exercises: tuple[ExerciseAttempts, ...]

    @property
    def done(self) -> int:
        """Exercises passed."""
        return sum(track.done for track in self.tracks)

    @property
    def total(self) -> int:
        """Exercises in all."""
        return sum(track.total for track in self.tracks)

    @property
    def attempts(self) -> int:
        """Attempts in all."""
        return sum(len(exercise.attempts) for exercise in self.exercises)


@dataclass(frozen=True)
class Mark:
    """A run in a chart, in the chart's coordinates."""

    x: float
    y: float
    run: RunView


@dataclass(frozen=True)
class Tick:
    """A label at a height of a chart."""

    y: float
    label: str


@dataclass(frozen=True)
class LineChart:
    """A drill's times in the order of its runs; the dashed line is the target."""

    width: int
    height: int
    left: int
    right: int
    marks: tuple[Mark, ...]
    target_y: float
    ticks: tuple[Tick, ...]
    path: str


@dataclass(frozen=True)
class Column:
    """A week in the column chart: the whole height, and that of what passed."""

    x: float
    width: float
    top: float
    passed_top: float
    base: float
    week: WeekView


def page(view: PracticeView) -> str:
    """The whole HTML document; it loads nothing and runs nothing."""
    return _environment().get_template("report.jinja").render(view=view)


def line_chart(drill: DrillView) -> LineChart:
    """Lay a drill's runs out: time upwards from zero, runs from left to right."""
    highest = max([drill.target_seconds, *(run.seconds for run in drill.runs)])
    step = _step(highest / 60)
    top = max(step, -(-highest / 60 // step) * step) * 60

    def y(seconds: float) -> float:
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * seconds / top, 1)

    inner = _WIDTH - _LEFT - _RIGHT
    gap = inner / max(1, len(drill.runs))
    marks = tuple(
        Mark(round(_LEFT + gap * (place + 0.5), 1), y(run.seconds), run) for place, run in enumerate(drill.runs)
    )
    ticks = tuple(Tick(y(60 * step * place), f"{step * place:g}") for place in range(round(top / 60 / step) + 1))
    path = " ".join(f"{'M' if place == 0 else 'L'}{mark.x} {mark.y}" for place, mark in enumerate(marks))
    return LineChart(_WIDTH, _HEIGHT, _LEFT, _WIDTH - _RIGHT, marks, y(drill.target_seconds), ticks, path)


def columns(weeks: Sequence[WeekView]) -> tuple[Column, ...]:
    """Lay the weeks out as columns over a width of 640 and a height of 130."""
    highest = max((week.attempts for week in weeks), default=0) or 1
    gap, base, tall = 640 / max(1, len(weeks)), 110.0, 95.0
    return tuple(
        Column(
            round(gap * place + 0.15 * gap, 1),
            round(0.7 * gap, 1),
            round(base - tall * week.attempts / highest, 1),
            round(base - tall * week.passed / highest, 1),
            base,
            week,
        )
        for place, week in enumerate(weeks)
    )


def _step(highest: float) -> float:
    """A round distance of ticks that makes two to five of them."""
    for step in (0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 240, 480):
        if highest / step <= 4:
            return step
    return highest / 4


def clock(seconds: float | None) -> str:
    """Minutes and seconds, or a dash."""
    return "–" if seconds is None else f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["clock"] = clock
    environment.globals["line_chart"] = line_chart
    environment.globals["columns"] = columns
    return environment
