"""The journal's quiz answers and mock interviews."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import msgspec

from grader.journal.store import Journal


class Item(msgspec.Struct, frozen=True):
    """One task of an interview, and how it went.

    Attributes:
        kind: coding, debugging, number or spoken.
        subject: an exercise's slug or a question's card.
        part: the part to write.
        seed: draws the inputs, the hidden mistake, or the question's numbers.
        seconds: what was planned for it.
        file: where the learner writes, once it was written.
        state: open, passed, failed, skipped or late (begun or finished after the time was up).
    """

    kind: str
    subject: str
    part: int
    seed: int
    seconds: float
    file: str = ""
    state: str = "open"
    points: float = 0.0
    max_points: float = 1.0
    elapsed_seconds: float = 0.0
    attempts: int = 0


@dataclass(frozen=True)
class InterviewRow:
    """One mock interview; `elapsed_seconds` is its clock."""

    id: int
    started_ns: int
    seed: int
    limit_seconds: float
    elapsed_seconds: float
    state: str
    finished_ns: int | None
    items: tuple[Item, ...]


@dataclass(frozen=True)
class AnswerRow:
    """One answer to a quiz question: what was said, the points it got, how long it took."""

    id: int
    at_ns: int
    card: str
    seed: int
    said: str
    points: float
    max_points: float
    seconds: float


def record_answer(
    journal: Journal, card: str, seed: int, said: str, points: float, max_points: float, seconds: float, now_ns: int
) -> None:
    """Record an answer."""
    with journal.transaction() as connection:
        connection.execute(
            "INSERT INTO answers (uid, at_ns, card, seed, said, points, max_points, seconds)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (uuid.uuid4().hex, now_ns, card, seed, said, points, max_points, seconds),
        )


def answers(journal: Journal) -> list[AnswerRow]:
    """The answers, oldest first."""
    columns = ", ".join(AnswerRow.__dataclass_fields__)
    return [AnswerRow(**dict(row)) for row in journal.rows(f"SELECT {columns} FROM answers ORDER BY id")]


def begin_interview(journal: Journal, items: tuple[Item, ...], seed: int, limit_seconds: float, now_ns: int) -> int:
    """Begin an interview and return its id."""
    with journal.transaction() as connection:
        cursor = connection.execute(
            "INSERT INTO interviews (uid, started_ns, seed, limit_seconds, state, items)"
            " VALUES (?, ?, ?, ?, 'running', ?)",
            (uuid.uuid4().hex, now_ns, seed, limit_seconds, msgspec.json.encode(items).decode()),
        )
        return int(cursor.lastrowid or 0)


def interviews(journal: Journal, state: str | None = None) -> list[InterviewRow]:
    """The interviews, oldest first, all or those in a state."""
    where, values = ("WHERE state = ?", (state,)) if state is not None else ("", ())
    columns = ", ".join(InterviewRow.__dataclass_fields__)
    found = []
    for row in journal.rows(f"SELECT {columns} FROM interviews {where} ORDER BY id", *values):
        items = msgspec.json.decode(row["items"], type=tuple[Item, ...])
        found.append(InterviewRow(**{**dict(row), "items": items}))
    return found


def beat(journal: Journal, interview_id: int, seconds: float, items: tuple[Item, ...] | None = None) -> None:
    """Add time to a running interview's clock, and keep how its tasks stand."""
    with journal.transaction() as connection:
        connection.execute(
            "UPDATE interviews SET elapsed_seconds = elapsed_seconds + ? WHERE id = ? AND state = 'running'",
            (max(0.0, seconds), interview_id),
        )
        if items is not None:
            connection.execute(
                "UPDATE interviews SET items = ? WHERE id = ? AND state = 'running'",
                (msgspec.json.encode(items).decode(), interview_id),
            )


def finish_interview(journal: Journal, interview_id: int, given_up: bool, now_ns: int) -> bool:
    """End an interview; False when it had ended already."""
    with journal.transaction() as connection:
        cursor = connection.execute(
            "UPDATE interviews SET state = ?, finished_ns = ? WHERE id = ? AND state = 'running'",
            ("given_up" if given_up else "finished", now_ns, interview_id),
        )
        return cursor.rowcount == 1
