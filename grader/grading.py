"""One attempt from start to record: a file in, an `Attempt` out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grader.host import limits
from grader.judge.client import JudgeClient
from grader.judge.orders import Diagnosing, GradeOrder, Measuring, Progress, Started, Tested
from grader.model import Attempt, Exercise, Isolation

__all__ = ["Diagnosing", "GradeRequest", "Measuring", "Progress", "Started", "Tested", "grade"]

MAX_LANES = 4
"""Tests side by side in one attempt: the judge's own half of a test runs under one interpreter lock."""


@dataclass(frozen=True)
class GradeRequest:
    """What to grade, and how.

    Attributes:
        exercise: the exercise.
        source: the learner's file.
        file: where it lies, for messages.
        part: one part only, or all.
        seed: of the hidden tests' inputs.
        device: cpu or cuda.
        isolation: what stands between the learner's code and the judge.
        speed: whether to measure speed targets too.
        pdb: leave the terminal to the learner's breakpoints; needs isolation none.
        first: tests to run before the others.
        diagnose: whether to name known mistakes.
    """

    exercise: Exercise
    source: bytes
    file: Path
    part: int | None = None
    seed: int = 0
    device: str = "cpu"
    isolation: Isolation = Isolation.PROCESS
    speed: bool = True
    pdb: bool = False
    first: tuple[str, ...] = ()
    diagnose: bool = True


def grade(
    request: GradeRequest,
    progress: Callable[[Progress], None] = lambda event: None,
    client: JudgeClient | None = None,
) -> Attempt:
    """Grade a file.

    Args:
        request: what to grade.
        progress: told of every step.
        client: a warm judge; without one a judge is started and ended here.

    Raises:
        RequestError: the request was wrong.
        GraderFault: the grader or the machine failed.
    """
    root = request.exercise.folder.parents[1]
    order = GradeOrder(
        request.exercise.slug,
        str(root),
        request.source,
        f"{request.exercise.slug}.py",
        str(request.file),
        request.part,
        request.seed,
        request.device,
        request.isolation,
        request.speed,
        request.pdb,
        request.first,
        diagnose=request.diagnose,
        lanes=min(MAX_LANES, limits.usable_cores()),
    )
    if client is not None:
        return client.grade(order, progress)
    with JudgeClient(request.isolation is Isolation.NONE, request.device, request.isolation) as own:
        return own.grade(order, progress)
