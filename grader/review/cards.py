"""The learner's cards: when each is due, and how ready they make for an interview."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, time

from grader.errors import RequestError
from grader.journal import drills
from grader.journal.store import Journal
from grader.review.quiz import CARD_PREFIX
from grader.review.schedule import Rating, at_the_date, due_at

INTERVIEW_SETTING = "interview"
"""The journal's setting that holds the interview's date, as YYYY-MM-DD."""


@dataclass(frozen=True)
class Card:
    """A card with its latest review; `due_ns` is drawn in before an interview that lies ahead."""

    name: str
    due_ns: int
    reviewed_ns: int
    rating: Rating
    memory: str
    reviews: int

    @property
    def topic(self) -> str:
        """The exercise it is about, or "quiz:" and the quiz topic."""
        first, second = [*self.name.split(":"), ""][:2]
        return f"{first}:{second}" if first == CARD_PREFIX else first


@dataclass(frozen=True)
class Readiness:
    """The mean predicted recall of a topic's cards on the interview's day, between 0 and 1.

    `reviews` is how many come up until then.
    """

    cards: int
    left_alone: float
    reviews_kept: float
    reviews: int


def cards(journal: Journal, now_ns: int) -> list[Card]:
    """Every card, the longest due first.

    A review from a clock that was ahead of `now_ns` counts as just made: a wrong clock must not bury a card.
    """
    interview_ns = interview(journal)
    ahead = interview_ns if interview_ns is not None and interview_ns > now_ns else None
    counts: dict[str, int] = {}
    for review in drills.reviews(journal):
        counts[review.card] = counts.get(review.card, 0) + 1
    found = []
    for row in drills.latest_reviews(journal):
        due_ns = due_at(row.memory, row.at_ns, ahead) - max(0, row.at_ns - now_ns)
        reviewed_ns = min(row.at_ns, now_ns)
        found.append(Card(row.card, due_ns, reviewed_ns, Rating(row.rating), row.memory, counts[row.card]))
    return sorted(found, key=lambda card: (card.due_ns, card.name))


def readiness(found: Iterable[Card], interview_ns: int, now_ns: int) -> dict[str, Readiness]:
    """Per topic (see `Card.topic`) the forecast for the interview's day."""
    forecasts: dict[str, list[tuple[float, float, int]]] = {}
    for card in found:
        forecast = at_the_date(card.memory, card.due_ns, interview_ns, now_ns)
        forecasts.setdefault(card.topic, []).append(forecast)
    return {
        topic: Readiness(
            len(rows),
            sum(alone for alone, _, _ in rows) / len(rows),
            sum(kept for _, kept, _ in rows) / len(rows),
            sum(reviews for _, _, reviews in rows),
        )
        for topic, rows in forecasts.items()
    }


def interview(journal: Journal) -> int | None:
    """The start of the interview's day in the learner's time zone, in Unix nanoseconds; None when none is set."""
    value = journal.setting(INTERVIEW_SETTING)
    if not value:
        return None
    try:
        return day_start_ns(date.fromisoformat(value))
    except ValueError:
        return None


def set_interview(journal: Journal, text: str, today: date) -> date | None:
    """Set the interview's date, or forget it ("none").

    Raises:
        RequestError: it is no date, or not ahead.
    """
    if text.strip().lower() == "none":
        journal.set_setting(INTERVIEW_SETTING, "")
        return None
    try:
        day = date.fromisoformat(text.strip())
    except ValueError:
        raise RequestError(f"{text!r} is no date", "write it as YYYY-MM-DD, or none to forget it") from None
    if day <= today:
        raise RequestError(f"{day} is not ahead: today is {today}", "none forgets the date")
    journal.set_setting(INTERVIEW_SETTING, day.isoformat())
    return day


def day_start_ns(day: date) -> int:
    """Midnight at the start of a day, in the learner's time zone."""
    return int(datetime.combine(day, time()).astimezone().timestamp()) * 10**9
