"""The batch's memory: a SQLite file that a killed process cannot leave half-written.

A grade is filed under the key of its task, so it is found again exactly when the
file, the tests, the grader and the options are the same.  The roster of the last
run says whose file it is.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from grader.errors import GraderFault, RequestError
from grader.model import Attempt

LEDGER_NAME = "ledger.sqlite"
_SCHEMA = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS grades (
    key TEXT PRIMARY KEY, exercise TEXT NOT NULL, attempt BLOB NOT NULL, speed INTEGER NOT NULL, at_unix REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS faults (key TEXT NOT NULL, message TEXT NOT NULL, at_unix REAL NOT NULL);
CREATE TABLE IF NOT EXISTS roster (place INTEGER PRIMARY KEY, entry BLOB NOT NULL);
"""


class Entry(msgspec.Struct, frozen=True):
    """One student's submission of one exercise, as the last run found it.

    ``key`` is empty where there is nothing to grade: ``refused`` says why the submission was not read, and
    without that the exercise was not in it.
    """

    student: str
    origin: str
    exercise: str
    key: str = ""
    file: str = ""
    source_sha256: str = ""
    pack: str = ""
    kit: str = ""
    seed: int = 0
    max_points: int = 0
    refused: str = ""
    notes: tuple[str, ...] = ()


class Ledger:
    """The batch's file in ``folder``; one process at a time may have it open.

    Raises:
        RequestError: another process has it open.
        GraderFault: it is of a later version, or damaged.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(folder / "ledger.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise RequestError(
                f"another kit class grade is at work in {folder}", "wait for it, or name another --out"
            ) from error
        path = folder / LEDGER_NAME
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_TABLES)
            found = int(self.fact("schema", str(_SCHEMA)))
        except (sqlite3.DatabaseError, ValueError) as error:
            raise GraderFault(f"{path} cannot be read: {error}", "move it away and grade again") from error
        if found > _SCHEMA:
            raise GraderFault(f"{path} was written by a later version of the kit", "update the kit")

    def fact(self, name: str, default: str) -> str:
        """A named value, fixed at its first use."""
        self._db.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, default))
        value: str = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()[0]
        return value

    def secret(self) -> bytes:
        """This batch's random secret, which the seeds of its tests come from."""
        return bytes.fromhex(self.fact("secret", secrets.token_hex(16)))

    def attempt(self, key: str) -> Attempt | None:
        """The grade filed under a key."""
        row = self._db.execute("SELECT attempt FROM grades WHERE key = ?", (key,)).fetchone()
        return None if row is None else msgspec.json.decode(row[0], type=Attempt)

    def has_speed(self, key: str) -> bool:
        """Whether the grade filed under a key includes speed."""
        row = self._db.execute("SELECT speed FROM grades WHERE key = ?", (key,)).fetchone()
        return row is not None and bool(row[0])

    def keep(self, key: str, attempt: Attempt, speed: bool) -> None:
        """File a grade; it is on disk when this returns."""
        row = (key, attempt.exercise, msgspec.json.encode(attempt), int(speed), time.time())
        self._db.execute("INSERT OR REPLACE INTO grades VALUES (?, ?, ?, ?, ?)", row)

    def keep_fault(self, key: str, message: str) -> None:
        """Note that the grader failed at a key."""
        self._db.execute("INSERT INTO faults VALUES (?, ?, ?)", (key, message, time.time()))

    def last_fault(self, key: str) -> str:
        """What the grader last failed with at a key, or an empty string."""
        row = self._db.execute(
            "SELECT message FROM faults WHERE key = ? ORDER BY rowid DESC LIMIT 1", (key,)
        ).fetchone()
        return "" if row is None else str(row[0])

    def forget(self, keys: Sequence[str]) -> None:
        """Drop grades, so that they are made anew."""
        self._db.executemany("DELETE FROM grades WHERE key = ?", [(key,) for key in keys])

    def set_roster(self, entries: Sequence[Entry]) -> None:
        """Replace the roster, all of it or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute("DELETE FROM roster")
            self._db.executemany(
                "INSERT INTO roster VALUES (?, ?)",
                [(place, msgspec.json.encode(entry)) for place, entry in enumerate(entries)],
            )
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def roster(self) -> list[Entry]:
        """The last run's roster, in order."""
        rows = self._db.execute("SELECT entry FROM roster ORDER BY place").fetchall()
        return [msgspec.json.decode(row[0], type=Entry) for row in rows]

    def close(self) -> None:
        """Close the file and let another process have it."""
        self._db.close()
        os.close(self._lock)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
