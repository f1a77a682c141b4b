"""Moving a journal between machines: a file of JSON lines, merged record by record.

Each record is known by its `uid`, so that importing a file twice changes nothing.  Records never vanish: of a
drill or an interview that both sides hold, the one further on is kept.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from grader.errors import RequestError
from grader.journal.migrations import STEPS
from grader.journal.store import Journal

FORMAT = "kit-journal"
TABLES = ("drills", "attempts", "starts", "resets", "hints", "reveals", "reviews", "answers", "interviews")
"""The tables with uids; drills come first since others point to them."""

_CHILDREN = {"attempts": ("attempt_parts", "attempt_mistakes")}
_ENDED = {"drills": ("passed", "given_up"), "interviews": ("finished", "given_up")}


def export_journal(journal: Journal, path: Path) -> dict[str, int]:
    """Write the whole journal to a file, at once or not at all; how many records of each table.

    Raises:
        RequestError: the file cannot be written.
    """
    counts: dict[str, int] = {}
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream, journal.transaction():  # one state of the journal throughout
                stream.write(msgspec.json.encode({"format": FORMAT, "version": len(STEPS)}) + b"\n")
                for table, record in _records(journal):
                    stream.write(msgspec.json.encode({"table": table, "record": record}) + b"\n")
                    counts[table] = counts.get(table, 0) + 1
            os.chmod(temporary, 0o600)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}") from error
    return counts


def import_journal(journal: Journal, path: Path) -> dict[str, int]:
    """Merge a file that `export_journal` wrote, all of it or nothing; how many records of each table were new.

    Raises:
        RequestError: the file cannot be read, is no such file, or is of a newer kit.
    """
    lines = _lines(path)
    new: dict[str, int] = {}
    try:
        with journal.transaction() as connection:
            columns = {
                table: {row["name"] for row in connection.execute(f"PRAGMA table_info({table})")}
                for table in (*TABLES, *_CHILDREN["attempts"])
            }
            order: list[str] = []
            before = [row["uid"] for row in connection.execute("SELECT uid FROM reviews ORDER BY id")]
            for number, (table, record) in enumerate(lines, start=2):
                if table == "settings":
                    connection.execute("INSERT OR IGNORE INTO settings VALUES (?, ?)", (record["key"], record["value"]))
                    continue
                if table not in TABLES:
                    raise RequestError(f"{path}, line {number}: no table is called {table!r}")
                if table == "reviews":
                    order.append(record["uid"])
                if _merge(connection, table, record, columns):
                    new[table] = new.get(table, 0) + 1
            if new.get("reviews"):
                _interleave(connection, before, order)
    except (KeyError, TypeError, AttributeError, ValueError, sqlite3.Error) as error:
        raise RequestError(f"{path} is no whole journal export: {error}", "nothing was imported") from error
    return new


def _records(journal: Journal) -> Iterator[tuple[str, dict[str, Any]]]:
    drill_uids = {row["id"]: row["uid"] for row in journal.rows("SELECT id, uid FROM drills")}
    for table in TABLES:
        children = {name: _by_parent(journal, name) for name in _CHILDREN.get(table, ())}
        for row in journal.rows(f"SELECT * FROM {table} ORDER BY id"):
            record = dict(row)
            number = record.pop("id")
            if "drill_id" in record:
                record["drill_id"] = drill_uids.get(record["drill_id"])
            if isinstance(record.get("result"), bytes):
                record["result"] = record["result"].decode("utf-8", "replace")
            yield table, record | {name: rows.get(number, []) for name, rows in children.items()}
    for row in journal.rows("SELECT key, value FROM settings"):
        yield "settings", dict(row)


def _by_parent(journal: Journal, table: str) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for row in journal.rows(f"SELECT * FROM {table}"):
        record = dict(row)
        found.setdefault(record.pop("attempt_id"), []).append(record)
    return found


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records of a file, decoded before any is merged: a cut-off file is refused as a whole."""
    try:
        texts = path.read_bytes().splitlines()
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error
    try:
        head = msgspec.json.decode(texts[0], type=dict[str, Any]) if texts else {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        head = {}
    if head.get("format") != FORMAT:
        raise RequestError(f"{path} is no journal export", "kit report --export FILE writes one")
    if int(head.get("version", 0)) > len(STEPS):
        raise RequestError(f"{path} was written by a newer kit", "install the newer kit")
    decoded = []
    for number, text in enumerate(texts[1:], start=2):
        try:
            line = msgspec.json.decode(text, type=dict[str, Any])
            decoded.append((str(line["table"]), dict(line["record"])))
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
            raise RequestError(f"{path}, line {number} cannot be read: {error}", "nothing was imported") from error
    return iter(decoded)


def _merge(connection: sqlite3.Connection, table: str, record: dict[str, Any], columns: Mapping[str, set[str]]) -> bool:
    """Add a record, or bring the one with its uid further; whether anything changed."""
    children = {name: record.pop(name, []) for name in _CHILDREN.get(table, ())}
    values = {key: value for key, value in record.items() if key in columns[table] and key != "id"}
    if "drill_id" in values:
        found = connection.execute("SELECT id FROM drills WHERE uid = ?", (values["drill_id"],)).fetchone()
        values["drill_id"] = found["id"] if found else None
    if isinstance(values.get("result"), str):
        values["result"] = values["result"].encode()
    mine = connection.execute(f"SELECT * FROM {table} WHERE uid = ?", (values["uid"],)).fetchone()
    if mine is not None:
        ended = _ENDED.get(table)
        if ended is None or mine["state"] in ended:
            return False
        if values["state"] not in ended and values["elapsed_seconds"] <= mine["elapsed_seconds"]:
            return False
        changes = ", ".join(f"{key} = :{key}" for key in values)
        connection.execute(f"UPDATE {table} SET {changes} WHERE uid = :uid", values)
        return True
    names = ", ".join(values)
    cursor = connection.execute(
        f"INSERT INTO {table} ({names}) VALUES ({', '.join(':' + key for key in values)})", values
    )
    for name, rows in children.items():
        for row in rows:
            child = {key: value for key, value in row.items() if key in columns[name]} | {
                "attempt_id": cursor.lastrowid
            }
            connection.execute(
                f"INSERT INTO {name} ({', '.join(child)}) VALUES ({', '.join(':' + key for key in child)})", child
            )
    return True


def _interleave(connection: sqlite3.Connection, mine: list[str], theirs: list[str]) -> None:
    """Number the reviews anew so that both sides' orders are kept and the newer of two comes later.

    The order of reviews says which is a card's latest: times alone would not do, since a clock may have been wrong.
    """
    times = {row["uid"]: row["at_ns"] for row in connection.execute("SELECT uid, at_ns FROM reviews")}
    known = set(mine)
    others = [uid for uid in theirs if uid not in known]
    merged: list[str] = []
    left, right = 0, 0
    while left < len(mine) or right < len(others):
        take_mine = right == len(others) or (left < len(mine) and times[mine[left]] <= times[others[right]])
        if take_mine:
            merged.append(mine[left])
            left += 1
        else:
            merged.append(others[right])
            right += 1
    connection.execute("UPDATE reviews SET id = -id")
    connection.executemany("UPDATE reviews SET id = ? WHERE uid = ?", list(enumerate(merged, start=1)))
