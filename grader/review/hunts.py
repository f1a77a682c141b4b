"""Bug hunts: a solution without its comments, holding one known mistake or two, drawn by a seed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from grader.catalogue import read_mistakes
from grader.errors import RequestError
from grader.model import Exercise, Mistake
from grader.retype import retype_text
from grader.review.drills import solution_of

MODES = ("debug", "debug-hard")
TARGET_SHARE = 0.5
"""Mending should take half the time of writing."""


@dataclass(frozen=True)
class Hunt:
    """One hunt.  The seed alone tells which mistakes it holds, so that no file has to say."""

    exercise: Exercise
    seed: int
    mistakes: tuple[Mistake, ...]
    page: str
    target_seconds: float


def mode(hard: bool) -> str:
    """The drill mode of a hunt."""
    return MODES[1] if hard else MODES[0]


def draw(exercise: Exercise, seed: int, hard: bool = False, past_seeds: Sequence[int] = ()) -> Hunt:
    """A hunt; mistakes that past hunts held are avoided as long as there are others.

    Raises:
        RequestError: the exercise has no mistakes to hide.
    """
    seen = {mistake.id for past in past_seeds for mistake in mistakes_of(exercise, past, hard)}
    for attempt in range(50):
        candidate = (seed + attempt) % 2**31
        mistakes = mistakes_of(exercise, candidate, hard)
        if attempt == 49 or not seen.intersection(mistake.id for mistake in mistakes):
            break
    solution = solution_of(exercise)
    page = retype_text(_with(solution, mistakes))
    target = 60.0 * exercise.minutes * TARGET_SHARE * len(mistakes)
    return Hunt(exercise, candidate, mistakes, page, target)


def mistakes_of(exercise: Exercise, seed: int, hard: bool = False) -> tuple[Mistake, ...]:
    """The mistakes that a seed stands for.

    Raises:
        RequestError: the exercise has too few mistakes.
    """
    solution = solution_of(exercise)
    single = [(m,) for m in read_mistakes(exercise) if m.kind == "wrong" and _applies(solution, (m,))]
    if hard:
        pairs = itertools.combinations([m for (m,) in single], 2)
        found: list[tuple[Mistake, ...]] = [pair for pair in pairs if _applies(solution, pair)]
    else:
        found = [*single]
    if not found:
        raise RequestError(f"{exercise.slug} has no mistakes to hide", "kit list shows the others")
    return random.Random(seed).choice(found)


def _applies(solution: str, mistakes: Sequence[Mistake]) -> bool:
    text = solution
    for mistake in mistakes:
        for edit in mistake.edits:
            if text.count(edit.find) != edit.count:
                return False
            text = text.replace(edit.find, edit.replace)
    return True


def _with(solution: str, mistakes: Sequence[Mistake]) -> str:
    for mistake in mistakes:
        for edit in mistake.edits:
            solution = solution.replace(edit.find, edit.replace)
    return solution
