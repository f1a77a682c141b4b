"""A journal on its way to another machine: merged, never lost, never doubled; and its other misfortunes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grader.errors import RequestError
from grader.journal import drills, sessions
from grader.journal.hold import held
from grader.journal.store import Journal
from grader.journal.transfer import TABLES, export_journal, import_journal
from grader.model import Attempt, Diagnosis, Isolation, PartResult

ROOT = Path(__file__).resolve().parents[2]
NOW = 1_800_000_000 * 10**9


def fill(journal: Journal, name: str = "gqa", at_ns: int = NOW) -> int:
    """One record of each kind; the drill's id."""
    parts = (PartResult(1, "Forward", True, 5), PartResult(2, "Cache", False, 0))
    attempt = Attempt(
        name, "f.py", 1, "cpu", Isolation.PROCESS, 1.0, False, 5, 10, parts, (), (Diagnosis("m", "", "", ()),)
    )
    journal.record_attempt(attempt, "ab", at_ns=at_ns)
    journal.record_start(name, at_ns)
    journal.record_reset(name, "backup.py", at_ns)
    drill = drills.begin(journal, name, 1, "", "blank", "f.py", 1, 600.0, at_ns)
    journal.record_hint(name, 1, 1, drill.id, at_ns)
    journal.record_reveal(name, "tried", at_ns)
    drills.beat(journal, drill.id, 100.0, at_ns, 1)
    drills.record_review(journal, f"{name}:1:blank", 3, at_ns + 1, "{}", at_ns, drill.id)
    sessions.record_answer(journal, "quiz:a:b", 1, "5", 1, 1, 30, at_ns)
    sessions.begin_interview(journal, (sessions.Item("coding", name, 1, 1, 600.0),), 1, 3600.0, at_ns)
    return drill.id


def everything(journal: Journal) -> dict[str, list[tuple[object, ...]]]:
    """All records but their numbers."""
    found = {}
    for table in TABLES:
        rows = [dict(row) for row in journal.rows(f"SELECT * FROM {table} ORDER BY uid")]
        found[table] = [tuple(value for key, value in row.items() if key not in ("id", "drill_id")) for row in rows]
    for table in ("attempt_parts", "attempt_mistakes"):
        found[table] = sorted(tuple(row)[1:] for row in journal.rows(f"SELECT * FROM {table}"))
    return found


def test_a_journal_arrives_whole_and_twice_changes_nothing(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "a.db") as mine, Journal.open(tmp_path / "b.db") as other:
        fill(mine)
        mine.set_setting("interview", "2027-02-01")
        assert export_journal(mine, tmp_path / "j") == {**dict.fromkeys(TABLES, 1), "settings": 1}
        assert import_journal(other, tmp_path / "j") == dict.fromkeys(TABLES, 1)
        assert everything(other) == everything(mine) and other.setting("interview") == "2027-02-01"
        (hint,) = other.rows("SELECT drill_id FROM hints")
        assert drills.drill(other, hint["drill_id"]).exercise == "gqa"
        assert import_journal(other, tmp_path / "j") == {}
        assert everything(other) == everything(mine)
        assert import_journal(mine, tmp_path / "j") == {}


def test_two_machines_end_up_with_the_same(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "a.db") as mine, Journal.open(tmp_path / "b.db") as other:
        fill(mine, "gqa", NOW)
        fill(other, "moe", NOW + 5)
        fill(mine, "moe", NOW + 9)
        export_journal(mine, tmp_path / "a")
        export_journal(other, tmp_path / "b")
        import_journal(mine, tmp_path / "b")
        import_journal(other, tmp_path / "a")
        assert everything(mine) == everything(other)
        assert len(mine.attempts()) == 3
        for journal in (mine, other):
            assert [review.at_ns for review in drills.reviews(journal)] == [NOW, NOW + 5, NOW + 9]


def test_of_a_drill_on_both_sides_the_one_further_on_is_kept(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "a.db") as mine, Journal.open(tmp_path / "b.db") as other:
        number = fill(mine)
        export_journal(mine, tmp_path / "early")
        import_journal(other, tmp_path / "early")
        drills.beat(mine, number, 50.0, NOW)
        export_journal(mine, tmp_path / "later")
        assert import_journal(other, tmp_path / "later") == {"drills": 1}
        assert drills.unfinished(other)[0].elapsed_seconds == 150
        drills.finish(mine, number, True, NOW)
        export_journal(mine, tmp_path / "done")
        assert import_journal(other, tmp_path / "done") == {"drills": 1}
        assert drills.history(other)[0].state == "passed"
        assert import_journal(other, tmp_path / "early") == {}
        assert drills.history(other)[0].state == "passed"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "nonsense",
        lambda text: "",
        lambda text: text.replace("kit-journal", "other"),
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"table":"reveals"', '"table":"sqlite_master"'),
        lambda text: text.replace('"state":"running"', '"state":"mad"'),
        lambda text: text.replace('"version":', '"version":9'),
        lambda text: text + "[]\n",
        lambda text: text.replace('"uid"', '"id"'),
    ],
)
def test_a_file_that_is_no_whole_export_changes_nothing(tmp_path: Path, change: object) -> None:
    with Journal.open(tmp_path / "a.db") as mine, Journal.open(tmp_path / "b.db") as other:
        fill(mine)
        export_journal(mine, tmp_path / "j")
        (tmp_path / "j").write_text(change((tmp_path / "j").read_text()))  # type: ignore[operator]
        with pytest.raises(RequestError):
            import_journal(other, tmp_path / "j")
        assert not any(everything(other).values())


def test_an_export_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "a.db") as mine:
        fill(mine)
        with pytest.raises(RequestError):
            export_journal(mine, tmp_path / "no" / "such" / "folder")
        export_journal(mine, tmp_path / "j")
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("a.db")) == ["j"]


def test_one_transaction_inside_another_is_one_fact(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "a.db") as journal:
        with pytest.raises(ZeroDivisionError), journal.transaction():
            fill(journal)
            raise ZeroDivisionError
        assert not any(everything(journal).values())


def test_a_drill_is_held_by_one_terminal_and_let_go(tmp_path: Path) -> None:
    with held(tmp_path / "lock", "a drill"):
        code = (
            "from pathlib import Path\nfrom grader.journal.hold import held\n"
            f"with held(Path({str(tmp_path / 'lock')!r}), 'a drill'): pass"
        )
        second = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
        assert second.returncode and "going on in another terminal" in second.stderr
    with held(tmp_path / "lock", "a drill"):
        pass


def test_an_older_journal_gets_the_new_tables_and_keeps_what_it_has(tmp_path: Path) -> None:
    from grader.journal import migrations

    connection = sqlite3.connect(tmp_path / "a.db")
    for statement in migrations.STEPS[0]:
        connection.execute(statement)
    connection.execute("PRAGMA user_version = 1")
    connection.execute("INSERT INTO starts (uid, at_ns, exercise) VALUES ('u', 5, 'gqa')")
    connection.commit()
    connection.close()
    with Journal.open(tmp_path / "a.db") as journal:
        assert journal.first_start_ns("gqa") == 5 and sessions.answers(journal) == []


WRITER = """
import sys, random
sys.path.insert(0, {root!r}); sys.path.insert(0, {here!r})
from pathlib import Path
from grader.journal import drills, sessions
from grader.journal.store import Journal
said = open({said!r}, "a", buffering=1)
with Journal.open(Path({path!r})) as journal:
    while True:
        row = drills.begin(journal, "gqa", 1, "", "blank", "f", 1, 600.0, 1)
        said.write(f"drills {{row.id}}\\n")
        drills.beat(journal, row.id, 1.0, 1, 1)
        with journal.transaction():
            drills.finish(journal, row.id, True, 2)
            drills.record_review(journal, "gqa:1:blank", 3, 5, "{{}}", 2, row.id)
        said.write(f"finished {{row.id}}\\n")
        sessions.record_answer(journal, "quiz:a:b", row.id, "5", 1, 1, 3, 2)
        said.write(f"answers {{row.id}}\\n")
"""


def test_killing_a_writer_at_any_point_loses_no_finished_fact(tmp_path: Path) -> None:
    path, said = tmp_path / "journal.db", tmp_path / "said"
    code = WRITER.format(root=str(ROOT), here=str(ROOT / "tests"), said=str(said), path=str(path))
    rng = random.Random(5)
    for _ in range(8):
        size = said.stat().st_size if said.exists() else 0
        writer = subprocess.Popen([sys.executable, "-c", code])
        while not said.exists() or said.stat().st_size == size:
            assert writer.poll() is None
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.15))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        facts = [line.split() for line in said.read_text().splitlines() if len(line.split()) == 2]
        with Journal.open(path) as journal:
            assert journal.notes == ()
            states = {row["id"]: row["state"] for row in journal.rows("SELECT id, state FROM drills")}
            reviewed = {row["drill_id"] for row in journal.rows("SELECT drill_id FROM reviews")}
            answered = {row["seed"] for row in journal.rows("SELECT seed FROM answers")}
        finished = {number for number, state in states.items() if state == "passed"}
        assert finished == reviewed, "a drill's end and its review are one fact"
        for kind, number in facts:
            have = {"drills": set(states), "finished": finished, "answers": answered}[kind]
            assert int(number) in have, (kind, number)


def test_damage_in_the_middle_of_a_journal_is_said_and_the_file_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Journal.open(path) as journal, journal.transaction():
        for number in range(300):
            fill(journal, f"e{number}")
    whole = path.read_bytes()
    assert not Path(f"{path}-wal").exists()
    rng = random.Random(3)
    damaged = bytearray(whole)
    for page in range(4, len(whole) // 4096, 2):
        damaged[page * 4096 : page * 4096 + 2048] = rng.randbytes(2048)
    path.write_bytes(damaged)
    with Journal.open(path) as journal:
        (note,) = journal.notes
        assert "damaged" in note and journal.attempts() == []
    (kept,) = tmp_path.glob("journal.damaged-*.db")
    assert kept.name in note and kept.read_bytes() == bytes(damaged)


def test_a_journal_copied_without_its_log_opens(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "a.db") as journal:
        fill(journal)
        shutil.copy(tmp_path / "a.db", tmp_path / "b.db")  # what a careless copy of an open journal gives
    with contextlib.suppress(RequestError), Journal.open(tmp_path / "b.db") as copied:
        fill(copied)
        assert len(copied.attempts()) >= 1
    os.utime(tmp_path / "b.db")
