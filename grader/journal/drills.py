"""The journal's drills and reviews.

A running drill keeps its clock in the journal: every beat adds the time since
the last one.  When its terminal or the machine dies, the clock stands at the
last beat, and the drill goes on from there.
"""

from __future__ import annotations

import sqlite3
import uuid
from dataclasses import dataclass

from grader.journal.store import Journal

OPEN_STATES = ("running", "paused")


@dataclass(frozen=True)
class DrillRow:
    """One drill.  `elapsed_seconds` is its clock; `part` 0 means all parts."""

    id: int
    exercise: str
    part: int
    symbol: str
    mode: str
    file: str
    seed: int
    target_seconds: float
    started_ns: int
    state: str
    elapsed_seconds: float
    running_since_ns: int | None
    finished_ns: int | None
    attempts: int
    differing_tokens: int | None


@dataclass(frozen=True)
class ReviewRow:
    """One review of a card: when, how it went (1 to 4), when it is due next, and what FSRS remembers."""

    id: int
    at_ns: int
    card: str
    rating: int
    due_ns: int
    memory: str
    drill_id: int | None


_DRILL_COLUMNS = ", ".join(DrillRow.__dataclass_fields__)
_REVIEW_COLUMNS = ", ".join(ReviewRow.__dataclass_fields__)


def begin(
    journal: Journal,
    exercise: str,
    part: int,
    symbol: str,
    mode: str,
    file: str,
    seed: int,
    target_seconds: float,
    now_ns: int,
) -> DrillRow:
    """Start a drill's clock."""
    with journal.transaction() as connection:
        cursor = connection.execute(
            "INSERT INTO drills (uid, exercise, part, symbol, mode, file, seed, target_seconds, started_ns, state,"
            " running_since_ns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', ?)",
            (uuid.uuid4().hex, exercise, part, symbol, mode, file, seed, target_seconds, now_ns, now_ns),
        )
        drill_id = int(cursor.lastrowid or 0)
    return drill(journal, drill_id)


def drill(journal: Journal, drill_id: int) -> DrillRow:
    """One drill by its id."""
    return _drill(journal.rows(f"SELECT {_DRILL_COLUMNS} FROM drills WHERE id = ?", drill_id)[0])


def unfinished(journal: Journal) -> list[DrillRow]:
    """Drills that are running or paused, newest first."""
    rows = journal.rows(
        f"SELECT {_DRILL_COLUMNS} FROM drills WHERE state IN ('running', 'paused') ORDER BY started_ns DESC, id DESC"
    )
    return [_drill(row) for row in rows]


def history(journal: Journal, exercise: str | None = None) -> list[DrillRow]:
    """Finished drills, oldest first, of one exercise or of all."""
    where, values = ("AND exercise = ?", (exercise,)) if exercise is not None else ("", ())
    rows = journal.rows(
        f"SELECT {_DRILL_COLUMNS} FROM drills WHERE state IN ('passed', 'given_up') {where} ORDER BY finished_ns, id",
        *values,
    )
    return [_drill(row) for row in rows]


def beat(journal: Journal, drill_id: int, seconds: float, now_ns: int, attempts: int = 0) -> None:
    """Add time that was worked (from a monotonic clock) and attempts that were graded to a running drill."""
    with journal.transaction() as connection:
        connection.execute(
            "UPDATE drills SET elapsed_seconds = elapsed_seconds + ?, running_since_ns = ?, attempts = attempts + ?"
            " WHERE id = ? AND state = 'running'",
            (max(0.0, seconds), now_ns, attempts, drill_id),
        )


def pause(journal: Journal, drill_id: int) -> None:
    """Stop the clock of a running drill."""
    with journal.transaction() as connection:
        connection.execute(
            "UPDATE drills SET state = 'paused', running_since_ns = NULL WHERE id = ? AND state = 'running'",
            (drill_id,),
        )


def resume(journal: Journal, drill_id: int, now_ns: int) -> None:
    """Let the clock of an unfinished drill run on; time since its last beat does not count."""
    with journal.transaction() as connection:
        connection.execute(
            "UPDATE drills SET state = 'running', running_since_ns = ? WHERE id = ? AND state IN ('running', 'paused')",
            (now_ns, drill_id),
        )


def finish(journal: Journal, drill_id: int, passed: bool, now_ns: int, differing_tokens: int | None = None) -> bool:
    """End a drill; False when it had ended already (in another terminal)."""
    with journal.transaction() as connection:
        cursor = connection.execute(
            "UPDATE drills SET state = ?, finished_ns = ?, running_since_ns = NULL, differing_tokens = ?"
            " WHERE id = ? AND state IN ('running', 'paused')",
            ("passed" if passed else "given_up", now_ns, differing_tokens, drill_id),
        )
        return cursor.rowcount == 1


def hints_since(journal: Journal, exercise: str, part: int, since_ns: int) -> int:
    """How many hints of a part were shown since a time."""
    row = journal.rows(
        "SELECT count(*) AS count FROM hints WHERE exercise = ? AND part = ? AND at_ns >= ?", exercise, part, since_ns
    )[0]
    return int(row["count"])


def revealed_since(journal: Journal, exercise: str, since_ns: int) -> bool:
    """Whether the solution was shown since a time."""
    return bool(journal.rows("SELECT 1 FROM reveals WHERE exercise = ? AND at_ns >= ?", exercise, since_ns))


def record_review(
    journal: Journal, card: str, rating: int, due_ns: int, memory: str, now_ns: int, drill_id: int | None = None
) -> None:
    """Record how a card went and when it is due next."""
    with journal.transaction() as connection:
        connection.execute(
            "INSERT INTO reviews (uid, at_ns, card, rating, due_ns, memory, drill_id) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (uuid.uuid4().hex, now_ns, card, rating, due_ns, memory, drill_id),
        )


def reviews(journal: Journal, card: str | None = None) -> list[ReviewRow]:
    """The reviews in the order they were recorded, of one card or of all."""
    where, values = ("WHERE card = ?", (card,)) if card is not None else ("", ())
    return [
        ReviewRow(**dict(row))
        for row in journal.rows(f"SELECT {_REVIEW_COLUMNS} FROM reviews {where} ORDER BY id", *values)
    ]


def latest_reviews(journal: Journal) -> list[ReviewRow]:
    """The newest review of every card, the longest due first."""
    newest: dict[str, ReviewRow] = {}
    for review in reviews(journal):
        newest[review.card] = review
    return sorted(newest.values(), key=lambda review: (review.due_ns, review.card))


def _drill(row: sqlite3.Row) -> DrillRow:
    return DrillRow(**dict(row))
