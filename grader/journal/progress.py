"""How far a learner is, read straight from the journal: quick enough for ``kit list``."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote


class Progress(NamedTuple):
    """The best of all attempts at one exercise, and how many there were."""

    passed: bool
    points: int
    max_points: int
    attempts: int


def progress(journal_path: Path) -> dict[str, Progress]:
    """Slug to progress, for every exercise that was tried; empty when the journal is absent or unreadable.

    Points count the parts that some attempt passed, so that a broken part 1 today does not undo last week's.
    """
    if not journal_path.exists():
        return {}
    try:
        connection = sqlite3.connect(f"file:{quote(str(journal_path))}?mode=ro", uri=True, timeout=1.0)
        try:
            attempts = connection.execute(
                "SELECT exercise, max(passed AND part IS NULL), max(max_points), count(*) FROM attempts"
                " WHERE started GROUP BY exercise"
            ).fetchall()
            points = dict(
                connection.execute(
                    "SELECT exercise, sum(points) FROM (SELECT exercise, attempt_parts.part, max(attempt_parts.points)"
                    " AS points FROM attempt_parts JOIN attempts ON attempts.id = attempt_id"
                    " WHERE attempt_parts.passed GROUP BY exercise, attempt_parts.part) GROUP BY exercise"
                ).fetchall()
            )
        finally:
            connection.close()
    except sqlite3.Error:
        return {}  # The list must appear even then; kit doctor says what is wrong with the journal.
    return {
        exercise: Progress(bool(passed), int(points.get(exercise, 0)), int(max_points), int(count))
        for exercise, passed, max_points, count in attempts
    }
