"""The journal: what a learner did, in SQLite, so that a killed process loses no finished fact.

Every method that writes is one transaction, on disk when it returns.  Two terminals may write at once.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from grader.errors import RequestError
from grader.journal.migrations import migrate
from grader.model import Attempt

BUSY_SECONDS = 10.0
CHECKED_BYTES = 4 << 20
"""A journal up to this size is looked through whenever it is opened; damage in a larger one shows when it is read."""


@dataclass(frozen=True)
class AttemptRow:
    """One recorded attempt without its tests; ``part`` is None when every part was graded.

    ``started`` is False when nothing but the stub was there: such an attempt is no try.
    """

    id: int
    at_ns: int
    exercise: str
    part: int | None
    source: str
    file: str
    sha256: str
    seed: int
    device: str
    isolation: str
    seconds: float
    passed: bool
    points: int
    max_points: int
    started: bool


class Journal:
    """An open journal.  Use it as a context manager, or call `close`."""

    def __init__(self, connection: sqlite3.Connection, notes: Sequence[str] = ()) -> None:
        self._connection = connection
        self.notes = tuple(notes)
        """Sentences for the learner about what happened while opening: a damaged file set aside."""

    @classmethod
    def open(cls, path: Path) -> Journal:
        """The journal at ``path``, made when absent; a damaged one is set aside, as `notes` says, and a new one begun.

        Raises:
            RequestError: the folder cannot be written to, or a newer kit wrote the journal.
        """
        try:
            try:
                return cls(_connect(path))
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError as error:
                aside = _set_aside(path)
                note = f"the journal was damaged ({error}); it is kept as {aside}, and a new one begins"
                return cls(_connect(path), [note])
        except (sqlite3.Error, OSError) as error:
            raise RequestError(f"the journal {path} cannot be opened: {error}") from error

    @classmethod
    def set_aside(cls, path: Path) -> Path | None:
        """Move a journal that turned out to be damaged out of the way; its new path, None when it is whole.

        For the damage that only reading a large journal shows.
        """
        try:
            connection = sqlite3.connect(path, timeout=BUSY_SECONDS)
            try:
                if connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok":
                    return None
            finally:
                connection.close()
        except sqlite3.OperationalError:
            return None
        except sqlite3.DatabaseError:
            pass
        return _set_aside(path)

    def close(self) -> None:
        """Close the file; the journal is not usable afterwards."""
        self._connection.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Several statements as one fact: all of them on disk, or none.  Inside another one, it is part of that."""
        if self._connection.in_transaction:
            yield self._connection
            return
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        """The rows a query gives; columns by name."""
        return list(self._connection.execute(query, values))

    def record_attempt(
        self,
        attempt: Attempt,
        sha256: str,
        part: int | None = None,
        source: str = "grade",
        at_ns: int | None = None,
    ) -> int:
        """Record a graded file and return the attempt's id.

        ``sha256`` is of the file's bytes; ``source`` says what graded it: grade, watch, drill, debug.
        """
        started = not attempt.tests or not all(test.not_started for test in attempt.tests)
        row = {
            "uid": uuid.uuid4().hex,
            "at_ns": _now(at_ns),
            "exercise": attempt.exercise,
            "part": part,
            "source": source,
            "file": attempt.file,
            "sha256": sha256,
            "seed": attempt.seed,
            "device": attempt.device,
            "isolation": str(attempt.isolation),
            "seconds": attempt.seconds,
            "passed": attempt.passed,
            "points": attempt.points,
            "max_points": attempt.max_points,
            "started": started,
            "result": msgspec.json.encode(attempt),
        }
        with self.transaction() as connection:
            cursor = connection.execute(
                f"INSERT INTO attempts ({', '.join(row)}) VALUES ({', '.join(':' + key for key in row)})", row
            )
            attempt_id = int(cursor.lastrowid or 0)
            connection.executemany(
                "INSERT INTO attempt_parts VALUES (?, ?, ?, ?)",
                [(attempt_id, item.number, item.passed, item.points) for item in attempt.parts],
            )
            connection.executemany(
                "INSERT OR IGNORE INTO attempt_mistakes VALUES (?, ?)",
                [(attempt_id, item.mistake) for item in attempt.diagnosis],
            )
        return attempt_id

    def attempts(self, exercise: str | None = None) -> list[AttemptRow]:
        """The attempts, oldest first, of one exercise or of all."""
        where, values = ("WHERE exercise = ?", (exercise,)) if exercise is not None else ("", ())
        columns = ", ".join(AttemptRow.__dataclass_fields__)
        return [
            AttemptRow(**{**dict(row), "passed": bool(row["passed"]), "started": bool(row["started"])})
            for row in self.rows(f"SELECT {columns} FROM attempts {where} ORDER BY at_ns, id", *values)
        ]

    def result(self, attempt_id: int) -> Attempt:
        """The whole record of one attempt.

        Raises:
            RequestError: there is no such attempt.
        """
        found = self.rows("SELECT result FROM attempts WHERE id = ?", attempt_id)
        if not found:
            raise RequestError(f"the journal has no attempt {attempt_id}")
        return msgspec.json.decode(found[0]["result"], type=Attempt)

    def parts_passed(self, exercise: str) -> set[int]:
        """The parts that some attempt passed."""
        rows = self.rows(
            "SELECT DISTINCT attempt_parts.part FROM attempt_parts JOIN attempts ON attempts.id = attempt_id"
            " WHERE exercise = ? AND attempt_parts.passed",
            exercise,
        )
        return {int(row["part"]) for row in rows}

    def record_start(self, exercise: str, at_ns: int | None = None) -> None:
        """Record that the exercise's file was begun."""
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO starts (uid, at_ns, exercise) VALUES (?, ?, ?)", (uuid.uuid4().hex, _now(at_ns), exercise)
            )

    def first_start_ns(self, exercise: str) -> int | None:
        """When the exercise was first begun, in Unix nanoseconds."""
        value = self.rows("SELECT min(at_ns) AS at_ns FROM starts WHERE exercise = ?", exercise)[0]["at_ns"]
        return None if value is None else int(value)

    def record_reset(self, exercise: str, backup: str, at_ns: int | None = None) -> None:
        """Record that the learner's file was replaced, and where its backup lies (empty: there was no file)."""
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO resets (uid, at_ns, exercise, backup) VALUES (?, ?, ?, ?)",
                (uuid.uuid4().hex, _now(at_ns), exercise, backup),
            )

    def record_hint(
        self, exercise: str, part: int, level: int, drill_id: int | None = None, at_ns: int | None = None
    ) -> None:
        """Record that a hint was shown; level 1 is the mildest."""
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO hints (uid, at_ns, exercise, part, level, drill_id) VALUES (?, ?, ?, ?, ?, ?)",
                (uuid.uuid4().hex, _now(at_ns), exercise, part, level, drill_id),
            )

    def hint_level(self, exercise: str, part: int) -> int:
        """The strongest hint shown so far for a part; 0 when none was."""
        row = self.rows("SELECT max(level) AS level FROM hints WHERE exercise = ? AND part = ?", exercise, part)[0]
        return int(row["level"] or 0)

    def record_reveal(self, exercise: str, reason: str, at_ns: int | None = None) -> None:
        """Record that the solution was shown; ``reason`` is passed, tried or code."""
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO reveals (uid, at_ns, exercise, reason) VALUES (?, ?, ?, ?)",
                (uuid.uuid4().hex, _now(at_ns), exercise, reason),
            )

    def setting(self, key: str) -> str | None:
        """A value the learner set, such as the interview's date."""
        rows = self.rows("SELECT value FROM settings WHERE key = ?", key)
        return str(rows[0]["value"]) if rows else None

    def set_setting(self, key: str, value: str) -> None:
        """Keep a value under ``key``, in place of an earlier one."""
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (key, value))


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # A reboot must not lose what was said to be recorded.
        connection.execute("PRAGMA foreign_keys = ON")
        migrate(connection)
        connection.execute("SELECT count(*) FROM settings").fetchone()
        if path.stat().st_size <= CHECKED_BYTES and connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("database disk image is malformed")
    except BaseException:
        connection.close()
        raise
    return connection


def _set_aside(path: Path) -> Path:
    """Move a damaged journal and its side files out of the way; the new name."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    target = path.with_name(f"{path.stem}.damaged-{stamp}-{uuid.uuid4().hex[:6]}{path.suffix}")
    path.rename(target)
    for ending in ("-wal", "-shm"):
        side = path.with_name(path.name + ending)
        if side.exists():
            side.rename(target.with_name(target.name + ending))
    return target


def _now(at_ns: int | None) -> int:
    return time.time_ns() if at_ns is None else at_ns
