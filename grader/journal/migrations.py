"""The journal's tables, as the steps that made them; ``PRAGMA user_version`` counts the steps taken.

A step is never edited once released: a change is a further step.  Times are Unix nanoseconds in UTC,
durations seconds.  Each record has a random ``uid`` so that two machines' journals can be merged.
"""

from __future__ import annotations

import sqlite3

from grader.errors import RequestError

_FIRST = (
    """CREATE TABLE attempts (
        id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, at_ns INTEGER NOT NULL,
        exercise TEXT NOT NULL, part INTEGER, source TEXT NOT NULL,
        file TEXT NOT NULL, sha256 TEXT NOT NULL, seed INTEGER NOT NULL, device TEXT NOT NULL, isolation TEXT NOT NULL,
        seconds REAL NOT NULL, passed INTEGER NOT NULL, points INTEGER NOT NULL, max_points INTEGER NOT NULL,
        started INTEGER NOT NULL, result BLOB NOT NULL)""",
    "CREATE INDEX attempts_by_exercise ON attempts (exercise, at_ns)",
    """CREATE TABLE attempt_parts (
        attempt_id INTEGER NOT NULL REFERENCES attempts (id) ON DELETE CASCADE,
        part INTEGER NOT NULL, passed INTEGER NOT NULL, points INTEGER NOT NULL, PRIMARY KEY (attempt_id, part))""",
    """CREATE TABLE attempt_mistakes (
        attempt_id INTEGER NOT NULL REFERENCES attempts (id) ON DELETE CASCADE,
        mistake TEXT NOT NULL, PRIMARY KEY (attempt_id, mistake))""",
    """CREATE TABLE starts (
        id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, at_ns INTEGER NOT NULL, exercise TEXT NOT NULL)""",
    """CREATE TABLE resets (
        id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, at_ns INTEGER NOT NULL, exercise TEXT NOT NULL,
        backup TEXT NOT NULL)""",
    """CREATE TABLE drills (
        id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, exercise TEXT NOT NULL, part INTEGER NOT NULL,
        symbol TEXT NOT NULL DEFAULT '', mode TEXT NOT NULL, file TEXT NOT NULL, seed INTEGER NOT NULL,
        target_seconds REAL NOT NULL, started_ns INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('running', 'paused', 'passed', 'given_up')),
        elapsed_seconds REAL NOT NULL DEFAULT 0, running_since_ns INTEGER, finished_ns INTEGER,
        attempts INTEGER NOT NULL DEFAULT 0, differing_tokens INTEGER)""",
    "CREATE INDEX drills_by_exercise ON drills (exercise, started_ns)",
    """CREATE TABLE hints (
        id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, at_ns INTEGER NOT NULL, exercise TEXT NOT NULL,
        part INTEGER NOT NULL, level INTEGER NOT NULL, drill_id INTEGER REFERENCES drills (id))""",
    "CREATE INDEX hints_by_exercise ON hints (exercise, part, level)",
    """CREATE TABLE reveals (
        id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, at_ns INTEGER NOT NULL, exercise TEXT NOT NULL,
        reason TEXT NOT NULL)""",
    """CREATE TABLE reviews (
        id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, at_ns INTEGER NOT NULL, card TEXT NOT NULL,
        rating INTEGER NOT NULL, due_ns INTEGER NOT NULL, memory TEXT NOT NULL,
        drill_id INTEGER REFERENCES drills (id))""",
    "CREATE INDEX reviews_by_card ON reviews (card, at_ns)",
    "CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
)

_SECOND = (
    """CREATE TABLE answers (
        id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, at_ns INTEGER NOT NULL, card TEXT NOT NULL,
        seed INTEGER NOT NULL, said TEXT NOT NULL, points REAL NOT NULL, max_points REAL NOT NULL,
        seconds REAL NOT NULL)""",
    "CREATE INDEX answers_by_card ON answers (card, at_ns)",
    """CREATE TABLE interviews (
        id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, started_ns INTEGER NOT NULL, seed INTEGER NOT NULL,
        limit_seconds REAL NOT NULL, elapsed_seconds REAL NOT NULL DEFAULT 0,
        state TEXT NOT NULL CHECK (state IN ('running', 'finished', 'given_up')), finished_ns INTEGER,
        items TEXT NOT NULL)""",
)

STEPS: tuple[tuple[str, ...], ...] = (_FIRST, _SECOND)
"""Each step's statements; a journal at version n has had the first n."""


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a journal to the newest version, all steps or none.

    Raises:
        RequestError: a newer kit wrote the journal.
    """
    if _version(connection) == len(STEPS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)  # Another process may have migrated while this one waited.
        if version > len(STEPS):
            raise RequestError(
                f"the journal is of version {version}; this kit knows {len(STEPS)}", "install the newer kit"
            )
        for step in STEPS[version:]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(STEPS)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
