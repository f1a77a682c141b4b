"""Drawing a mock interview and scoring it: one piece of code to write, one to mend, and questions."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from grader.catalogue import read_mistakes
from grader.errors import RequestError
from grader.journal.sessions import InterviewRow, Item
from grader.model import Exercise
from grader.review.quiz import Bank, Numeric, Question, choose

CODING_SHARE, DEBUGGING_SHARE = 0.5, 0.25
"""Shares of the time that the two coding tasks are drawn for; the questions fill the rest."""
SMALLEST_MINUTES = 15
WEIGHTS = {"coding": 4.0, "debugging": 3.0, "number": 1.0, "spoken": 1.5}
"""What each kind counts in the score."""
BANDS = ((0.8, "strong"), (0.6, "would pass"), (0.4, "borderline"), (0.0, "not yet"))
MAX_SEED = 2**31


def draw(
    exercises: Sequence[Exercise],
    bank: Bank,
    minutes: int,
    seed: int,
    last_seen_ns: Mapping[str, int],
    due_ns: Mapping[str, int],
    now_ns: int,
) -> tuple[Item, ...]:
    """The tasks of an interview, in the order they are asked: debugging, coding, then questions.

    Exercises are drawn among those whose target fits, the ones not drilled for longest being likelier;
    questions as in a quiz.

    Args:
        exercises: those to draw from.
        minutes: the interview's length.
        last_seen_ns: exercise slug to when it was last drilled.
        due_ns: quiz card to when it is due.

    Raises:
        RequestError: it is too short for any task, or there are no exercises.
    """
    if minutes < SMALLEST_MINUTES:
        raise RequestError(f"an interview takes at least {SMALLEST_MINUTES} minutes")
    rng = random.Random(seed)
    coding = _fitting(exercises, minutes * CODING_SHARE)
    if not coding:
        raise RequestError("no exercise is short enough for this interview", "give it more --minutes")
    chosen = _draw_stale(coding, last_seen_ns, rng)
    items = [Item("coding", chosen.slug, 1, rng.randrange(MAX_SEED), 60.0 * chosen.minutes)]
    debugging = [e for e in _fitting(exercises, 2 * minutes * DEBUGGING_SHARE) if e.slug != chosen.slug]
    while debugging:
        hunted = _draw_stale(debugging, last_seen_ns, rng)
        if any(mistake.kind == "wrong" for mistake in read_mistakes(hunted)):
            items.insert(0, Item("debugging", hunted.slug, 0, rng.randrange(MAX_SEED), 30.0 * hunted.minutes))
            break
        debugging.remove(hunted)
    left = minutes - sum(item.seconds for item in items) / 60
    items += _questions(bank, max(left, 3.0), due_ns, now_ns, rng)
    return tuple(items)


def score(row: InterviewRow) -> float:
    """The share of the weighted points, 0 to 1; tasks not reached count as zero."""
    whole = sum(WEIGHTS[item.kind] for item in row.items)
    return sum(WEIGHTS[item.kind] * item.points / item.max_points for item in row.items) / whole if whole else 0.0


def band(share: float) -> str:
    """What a score would mean, in words."""
    return next(word for least, word in BANDS if share >= least)


def _questions(bank: Bank, minutes: float, due_ns: Mapping[str, int], now_ns: int, rng: random.Random) -> list[Item]:
    """Numbers and one question to answer aloud, as many as fit."""
    numbers = choose(bank.numeric, due_ns, now_ns, 6, rng)
    aloud = choose(bank.spoken, due_ns, now_ns, 1, rng)
    order: list[Question] = [*numbers[:1], *aloud, *numbers[1:]]
    items: list[Item] = []
    for question in order:
        if items and question.minutes > minutes:
            continue
        minutes -= question.minutes
        kind, most = ("number", 1.0) if isinstance(question, Numeric) else ("spoken", float(question.max_points))
        items.append(Item(kind, question.card, 0, rng.randrange(MAX_SEED), 60.0 * question.minutes, max_points=most))
    return sorted(items, key=lambda item: item.kind == "spoken")


def question_of(bank: Bank, card: str) -> Question:
    """The question of a card.

    Raises:
        RequestError: the bank no longer has it.
    """
    found = next((question for question in bank.questions if question.card == card), None)
    if found is None:
        raise RequestError(f"the question bank has no {card}", "it was of another version of the kit")
    return found


def _fitting(exercises: Sequence[Exercise], minutes: float) -> list[Exercise]:
    return [exercise for exercise in exercises if exercise.minutes <= minutes and exercise.track != "kernels"]


def _draw_stale(exercises: Sequence[Exercise], last_seen_ns: Mapping[str, int], rng: random.Random) -> Exercise:
    """One of the half that was not drilled for longest, those never drilled first."""
    shuffled = rng.sample(list(exercises), len(exercises))
    ranked = sorted(shuffled, key=lambda exercise: last_seen_ns.get(exercise.slug, 0))
    return rng.choice(ranked[: max(1, (len(ranked) + 1) // 2)])
