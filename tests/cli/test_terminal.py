"""The practice commands as a learner drives them: in a real terminal, key by key, with crashes in the middle."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest
from attempts import attempt, test_result

from grader.journal import drills, sessions
from grader.journal.store import Journal
from grader.model import Outcome

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 90
"""How long a test waits for the terminal: a judge imports torch, on a busy machine slowly."""

Terminal = Callable[..., "pexpect.spawn"]


@pytest.fixture
def terminal(workspace: Path) -> Iterator[Terminal]:
    """Run ``kit`` with these arguments in a terminal of its own."""
    spawned = []

    def run(*arguments: str) -> pexpect.spawn:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
        child = pexpect.spawn(
            sys.executable,
            ["-c", "from grader.cli.main import main; main()", *arguments],
            env=environment,
            timeout=SECONDS,
            encoding="utf-8",
            dimensions=(50, 120),
        )
        spawned.append(child)
        return child

    yield run
    for child in spawned:
        child.close(force=True)


def ended(child: pexpect.spawn) -> tuple[str, int]:
    """What the terminal showed until the command ended, without control sequences, and the exit code."""
    child.expect(pexpect.EOF)
    child.close()
    assert child.signalstatus is None, child.before
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", child.before), child.exitstatus


def waiting(child: pexpect.spawn) -> None:
    """Wait until the command waits for a save or a key."""
    time.sleep(0.3)
    child.expect("q quit|p pause")


def rename_into(path: Path, text: str) -> None:
    """Save the way many editors do: another file, moved over."""
    other = path.with_suffix(".new")
    other.write_text(text)
    os.replace(other, path)


def solution(course: Path, slug: str) -> str:
    return (course / "solutions" / f"{slug}.py").read_text()


def test_start_fail_fix_pass_and_a_reveal_refused_then_allowed(
    course: Path, workspace: Path, terminal: Terminal
) -> None:
    shown, code = ended(terminal("start", "shift"))
    assert code == 0 and "wrote" in shown
    shown, code = ended(terminal("reveal", "shift"))
    assert code == 2 and "opens after a pass, after 3 graded tries (you have 0)" in " ".join(shown.split())
    right = solution(course, "shift")
    (workspace / "shift.py").write_text(right.replace("x + 1", "2 * x + 1"))
    shown, code = ended(terminal("grade", "shift"))
    assert code == 1 and "Mistake: Wrong number" in shown
    (workspace / "shift.py").write_text(right)
    shown, code = ended(terminal("grade", "shift"))
    assert code == 0 and "10/10" in shown
    shown, code = ended(terminal("reveal", "shift"))
    assert code == 0 and "the solution" in shown and "to the letter" in shown
    assert "1 of 2 passed" in ended(terminal("list"))[0]


def test_a_reveal_before_a_pass_takes_tries_and_a_yes_and_lowers_the_reviews(
    course: Path, workspace: Path, terminal: Terminal
) -> None:
    ended(terminal("start", "shift"))
    with Journal.open(workspace / ".kit" / "journal.db") as journal:
        for _ in range(3):
            failed = test_result("first", 1, Outcome.FAILED)
            journal.record_attempt(attempt((failed,), exercise="shift"), "ab")
    child = terminal("reveal", "shift")
    child.expect("You have not passed shift yet")
    child.sendline("n")
    shown, code = ended(child)
    assert code == 1 and "kept closed" in shown
    child = terminal("reveal", "shift")
    child.expect("come up again soon")
    child.sendline("y")
    shown, code = ended(child)
    assert code == 0 and "return x + 1" in shown and "from your file to the solution" in shown
    with Journal.open(workspace / ".kit" / "journal.db") as journal:
        assert [row["reason"] for row in journal.rows("SELECT reason FROM reveals")] == ["tried"]


def test_watch_takes_every_way_of_saving_and_its_keys(course: Path, workspace: Path, terminal: Terminal) -> None:
    ended(terminal("start", "scale_it"))
    path, right = workspace / "scale_it.py", solution(course, "scale_it")
    child = terminal("watch", "scale_it")
    waiting(child)
    path.write_text(right.replace("x * factor + 0", "2 * x * factor + 0"))
    child.expect("0/10")
    child.expect("Mistake: Wrong number")
    child.expect(r"failure 1 of \d")
    child.send("h")
    child.expect("nudge")
    child.expect("Nudge 1")
    rename_into(path, right + "\n)")
    child.expect("unmatched")
    path.unlink()
    child.expect("there is no file")
    path.write_text(right.replace("factor + 0", "2 + 0"))
    child.expect(r"failure 1 of \d")
    child.send("n")
    child.expect(r"failure \d of \d")
    rename_into(path, right)
    child.expect("10/10")
    child.expect("Everything passes")
    child.send("g")
    child.expect("10/10")
    child.send("q")
    _, code = ended(child)
    assert code == 0
    with Journal.open(workspace / ".kit" / "journal.db") as journal:
        assert {row.source for row in journal.attempts("scale_it")} == {"watch"}
        assert journal.attempts("scale_it")[-1].passed and journal.hint_level("scale_it", 1) == 1


def test_a_drill_outlives_a_kill_and_ends_with_a_time_and_a_date(
    course: Path, workspace: Path, terminal: Terminal
) -> None:
    workspace.mkdir()
    (workspace / "scale_it_drill.py").write_text("mine")
    child = terminal("drill", "scale_it")
    child.expect("kept as .*backups")
    waiting(child)
    time.sleep(2.5)  # two ticks of its clock are in the journal
    second = terminal("drill", "--resume")
    shown, code = ended(second)
    assert code == 2 and "in another terminal" in shown
    child.kill(signal.SIGKILL)
    child.wait()
    with Journal.open(workspace / ".kit" / "journal.db") as journal:
        (row,) = drills.unfinished(journal)
        assert 1.0 <= row.elapsed_seconds < 60
    shown, code = ended(terminal("drill", "shift"))
    assert code == 2 and "kit drill --resume" in shown
    child = terminal("drill", "--resume")
    child.expect(r"the clock stood at \d:\d\d")
    waiting(child)
    (workspace / "scale_it_drill.py").write_text(solution(course, "scale_it"))
    shown, code = ended(child)
    assert code == 0 and "passed" in shown and "Easy" in shown and re.search(r"next +\d{4}-\d\d-\d\d", shown)
    assert "0 tokens from the solution" in shown
    with Journal.open(workspace / ".kit" / "journal.db") as journal:
        (done,) = drills.history(journal, "scale_it")
        assert done.state == "passed" and done.elapsed_seconds >= row.elapsed_seconds
        assert [review.card for review in drills.reviews(journal)] == ["scale_it:1:blank"]
    assert "(" not in ended(terminal("due"))[0]


def test_a_hunt_ends_with_the_mistakes_story(course: Path, workspace: Path, terminal: Terminal) -> None:
    child = terminal("debug", "shift")
    child.expect("one mistake in")
    waiting(child)
    assert "2 * x + 1" in (workspace / "shift_debug.py").read_text()
    (workspace / "shift_debug.py").write_text(solution(course, "shift"))
    shown, code = ended(child)
    assert code == 0 and "mended" in shown and "It held: Wrong number" in shown and "made/up#1" in shown


def test_tests_of_ones_own_are_scored_by_what_they_catch(course: Path, workspace: Path, terminal: Terminal) -> None:
    shown, code = ended(terminal("prove", "shift"))
    assert code == 1 and "write tests there" in shown
    page = (workspace / "shift_prove.py").read_text()
    (workspace / "shift_prove.py").write_text(
        page + "\n\ndef test_it_adds_one():\n    assert shift(torch.tensor([2.0])).item() == 3.0\n"
    )
    shown, code = ended(terminal("prove", "shift"))
    assert code == 0 and "catch 1 of 1 known mistakes" in shown


def test_a_quiz_takes_numbers_marks_speech_and_schedules_both(
    course: Path, workspace: Path, terminal: Terminal
) -> None:
    shutil.copytree(ROOT / "quiz", course / "quiz")
    child = terminal("quiz", "gqa-reduction", "--seed", "1")
    child.expect("in times")
    child.sendline("many")
    child.expect("does not begin with a number")
    child.sendline("1e9")
    child.expect("The answer is")
    _, code = ended(child)
    assert code == 1
    child = terminal("quiz", "balance-loss")
    child.expect("then press Enter")
    child.sendline("")
    child.expect("and this")
    child.sendline("")
    child.expect("A good answer")
    for _ in range(6):
        child.expect(r"\[y/N\]")
        child.sendline("y")
    shown, code = ended(child)
    assert code == 0 and "10 of 10 points" in shown
    with Journal.open(workspace / ".kit" / "journal.db") as journal:
        assert [(review.card, review.rating) for review in drills.reviews(journal)] == [
            ("quiz:attention:gqa-reduction", 1),
            ("quiz:mixture-of-experts:balance-loss", 4),
        ]
    child = terminal("quiz", "serving")
    child.expect("1 of 5")
    child.sendline("q")
    shown, code = ended(child)
    assert code == 1 and "what you answered is kept" in shown


def test_an_interview_outlives_a_kill_and_ends_with_a_scorecard(
    course: Path, workspace: Path, terminal: Terminal
) -> None:
    shutil.copytree(ROOT / "quiz", course / "quiz")
    child = terminal("interview", "--minutes", "30", "--seed", "5")
    child.expect("30 minutes, ")
    child.expect("mend it")
    waiting(child)
    with Journal.open(workspace / ".kit" / "journal.db") as journal:
        (row,) = sessions.interviews(journal)
    hunted, written, *questions = row.items
    assert (hunted.kind, written.kind) == ("debugging", "coding") and questions[-1].kind == "spoken"
    child.send("h")  # no hints here
    rename_into(workspace / f"{hunted.subject}_interview.py", solution(course, hunted.subject))
    child.expect("done")
    child.expect("write part 1")
    waiting(child)
    child.kill(signal.SIGKILL)
    child.wait()
    shown, code = ended(terminal("interview"))
    assert code == 2 and "kit interview --resume" in shown
    child = terminal("interview", "--resume")
    child.expect("going on; 2")
    child.expect("write part 1")
    waiting(child)
    child.send("s")
    child.expect("Press s again to end this unfinished")
    child.send("s")
    child.expect("skipped")
    for question in questions:
        if question.kind == "number":
            child.expect("if you do not know")
            child.sendline("?")
        else:
            child.expect("press Enter")
            child.sendline("")
            child.expect("press Enter")
            child.sendline("")
            while child.expect([r"\[y/N\]", "points"]) == 0:
                child.sendline("y")
    shown, code = ended(child)
    assert "Scorecard" in shown and f"{hunted.subject} held" in shown and code in (0, 1)
    with Journal.open(workspace / ".kit" / "journal.db") as journal:
        (row,) = sessions.interviews(journal)
        assert row.state == "finished"
        assert [item.state for item in row.items] == ["passed", "skipped", *["failed"] * (len(questions) - 1), "passed"]
        assert journal.rows("SELECT * FROM hints") == []
        assert [run.state for run in drills.history(journal)] == ["passed", "given_up"]
    shown, _ = ended(terminal("status", "--interview", "2999-01-01"))
    assert "Interview on 2999-01-01" in shown and "Reviews:" in shown
