"""When to practise something again: py-fsrs on the journal's reviews.

A card is an exercise, a part and a mode ("gqa:1:blank"; "gqa:3:blank:mean_pool_kv_heads" for one symbol), or
a quiz question ("quiz:attention:kv-batch-gib").
FSRS models memory by stability (days until recall falls to 90%) and
difficulty; see Ye et al., "A Stochastic Shortest Path Algorithm for
Optimizing Spaced Repetition Scheduling", KDD 2022, and the py-fsrs package.
Times are Unix nanoseconds in UTC and always come from the caller.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum

from fsrs import Card, Scheduler, State
from fsrs import Rating as FsrsRating

DAY_NS = 86_400 * 10**9
RETENTION = 0.9
INTERVIEW_SHARE = 0.7
FRESH_NS = 3 * DAY_NS
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
        interview_ns: reviews are drawn in so that each card comes up before this time, if it lies ahead (see `due_at`).
    """
    now = _time(now_ns)
    card = _card(memory, now)
    if card.last_review is not None and card.last_review > now:
        card.last_review = now
    card, _ = _scheduler().review_card(card, FsrsRating(int(rating)), now)
    left = json.dumps(card.to_dict(), sort_keys=True)
    return Scheduled(due_at(left, now_ns, interview_ns), left)


def due_at(memory: str, reviewed_ns: int, interview_ns: int | None = None) -> int:
    """When a card is due that was reviewed at a time.

    One that would be due on an interview's day or later comes up before it, after 70% of the time that was left:
    late enough to be fresh, and not all cards on one day.  One reviewed in the last three days is fresh.
    """
    due_ns = max(_ns(_card(memory, _time(reviewed_ns)).due), reviewed_ns + DAY_NS)  # no minute-scale steps
    if interview_ns is None or due_ns < interview_ns or interview_ns - reviewed_ns <= FRESH_NS:
        return due_ns
    return max(reviewed_ns + DAY_NS, reviewed_ns + round(INTERVIEW_SHARE * (interview_ns - reviewed_ns)))


def recall(memory: str, at_ns: int) -> float:
    """The predicted probability of still being able to do it at a time, between 0 and 1."""
    at = _time(at_ns)
    return float(_scheduler().get_card_retrievability(_card(memory, at), at))


def at_the_date(memory: str, due_ns: int, interview_ns: int, now_ns: int) -> tuple[float, float, int]:
    """The predicted recall of a card on the interview's day: left alone, and with every review kept; and how many.

    A kept review counts as Good, on the day it is due, an overdue one today.
    """
    alone = recall(memory, interview_ns)
    due_ns, reviews = max(due_ns, now_ns), 0
    while due_ns < interview_ns:
        reviews += 1
        scheduled = next_review(memory, Rating.GOOD, due_ns, interview_ns)
        memory, due_ns = scheduled.memory, scheduled.due_ns
    return alone, recall(memory, interview_ns), reviews


def card_name(exercise: str, part: int, mode: str, symbol: str = "") -> str:
    """The name of a drill's card; writing one symbol is another card than writing the part."""
    return f"{exercise}:{part}:{mode}" + (f":{symbol}" if symbol else "")


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
