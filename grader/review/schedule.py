"""When to practise something again: py-fsrs on the journal's reviews.

A card is an exercise, a part and a mode ("gqa:1:blank"), or a quiz question.
FSRS models memory by stability (days until recall falls to 90%) and
difficulty; see Ye et al., "A Stochastic Shortest Path Algorithm for
Optimizing Spaced Repetition Scheduling", KDD 2022, and the py-fsrs package.
Times are Unix nanoseconds in UTC and always come from the caller.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum

from fsrs import Card, Scheduler, State
from fsrs import Rating as FsrsRating

DAY_NS = 86_400 * 10**9
RETENTION = 0.9
EASY_UNDER = 0.6
"""A first try under this share of the target minutes is Easy."""


class Rating(IntEnum):
    """How well something went."""

    AGAIN = 1
    HARD = 2
    GOOD = 3
    EASY = 4


@dataclass(frozen=True)
class Scheduled:
    """The next time a card is due, and what FSRS remembers of it (JSON)."""

    due_ns: int
    memory: str


@dataclass(frozen=True)
class Due:
    """A card with its latest review."""

    card: str
    due_ns: int
    reviewed_ns: int
    rating: Rating
    memory: str
    reviews: int


def rate(
    passed: bool, elapsed_seconds: float, target_seconds: float, hints: int, first_try: bool, revealed: bool = False
) -> Rating:
    """The rating of a finished drill.

    A failure or a reveal is Again; over the target or with a hint is Hard; in the target Good; a first try under
    60% of it Easy.
    """
    if not passed or revealed:
        return Rating.AGAIN
    if hints or elapsed_seconds > target_seconds:
        return Rating.HARD
    return Rating.EASY if first_try and elapsed_seconds < EASY_UNDER * target_seconds else Rating.GOOD


def next_review(memory: str | None, rating: Rating, now_ns: int, interview_ns: int | None = None) -> Scheduled:
    """Schedule a card after a review.

    Args:
        memory: what the last review left, or None for a new card.
        rating: how it went.
        now_ns: when; a clock that went backwards counts as no time passed.
        interview_ns: reviews are drawn in so that each card comes up before this date, if it lies ahead.
    """
    now = _time(now_ns)
    card = _card(memory, now)
    if card.last_review is not None and card.last_review > now:
        now = card.last_review
    card, _ = _scheduler().review_card(card, FsrsRating(int(rating)), now)
    due_ns = max(_ns(card.due), now_ns + DAY_NS)  # no minute-scale steps: a day at least
    if interview_ns is not None and now_ns < interview_ns <= due_ns:
        # Halfway to the date, and a day before it at the latest, so that nothing is first seen again on the day.
        due_ns = max(
            min(interview_ns - DAY_NS, now_ns + (interview_ns - now_ns) // 2), min(now_ns + DAY_NS, interview_ns)
        )
    return Scheduled(due_ns, json.dumps(card.to_dict(), sort_keys=True))


def recall(memory: str, at_ns: int) -> float:
    """The predicted probability of still being able to do it at a time, between 0 and 1."""
    at = _time(at_ns)
    return float(_scheduler().get_card_retrievability(_card(memory, at), at))


def readiness(cards: Iterable[Due], interview_ns: int) -> dict[str, float]:
    """Per exercise (or quiz topic), the mean predicted recall of its cards on the interview's day."""
    found: dict[str, list[float]] = {}
    for card in cards:
        found.setdefault(card.card.split(":")[0], []).append(recall(card.memory, interview_ns))
    return {name: sum(values) / len(values) for name, values in found.items()}


def card_name(exercise: str, part: int, mode: str) -> str:
    """The name of a drill's card."""
    return f"{exercise}:{part}:{mode}"


def _scheduler() -> Scheduler:
    return Scheduler(desired_retention=RETENTION, learning_steps=(), relearning_steps=(), enable_fuzzing=False)


def _card(memory: str | None, now: datetime) -> Card:
    if memory is None:
        return Card(card_id=1, state=State.Learning, step=0, due=now)
    return Card.from_dict(json.loads(memory))


def _time(ns: int) -> datetime:
    return datetime.fromtimestamp(ns / 1e9, UTC)


def _ns(time: datetime) -> int:
    return int(time.timestamp() * 1e9)
