"""The learner's page in a real browser, and what it says; status; the journal on its way between machines."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest
from attempts import attempt, test_result

from grader.journal import drills, sessions
from grader.journal.store import Journal
from grader.model import Diagnosis, Outcome
from grader.report import practice_page
from grader.review.schedule import DAY_NS, Rating, next_review

Kit = Callable[..., "Ran"]  # noqa: F821 (the type lives in conftest)
TIMES = (700.0, 290.0, 150.0)
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr"),
)


@pytest.fixture
def journal(workspace: Path, course: Path) -> Iterator[Journal]:
    """A journal with something of each kind."""
    (workspace / ".kit").mkdir(parents=True)
    now = time.time_ns()
    failed = test_result("first", 1, Outcome.FAILED)
    with Journal.open(workspace / ".kit" / "journal.db") as made:
        wrong = (Diagnosis("scale-it-wrong", "Wrong number", "It does one thing.", ("test_first",)),)
        made.record_attempt(attempt((failed,), exercise="scale_it", diagnosis=wrong), "a", at_ns=now - 9 * DAY_NS)
        made.record_attempt(attempt((), (1, 2, 3), exercise="scale_it"), "b", at_ns=now - 8 * DAY_NS)
        made.record_attempt(attempt((failed,), exercise="shift"), "c", at_ns=now - DAY_NS)
        made.record_attempt(attempt((failed,), exercise="gone <script>alert(1)</script>"), "d", at_ns=now - DAY_NS)
        for place, seconds in enumerate(TIMES):
            at_ns = now - (8 - place) * DAY_NS
            row = drills.begin(made, "scale_it", 1, "", "blank", "f.py", 1, 300.0, at_ns)
            drills.beat(made, row.id, seconds, at_ns, 1)
            drills.finish(made, row.id, place != 1, at_ns)
        for card, rating in (("scale_it:1:blank", Rating.AGAIN), ("quiz:serving:decode-speed", Rating.EASY)):
            scheduled = next_review(None, rating, now - 5 * DAY_NS)
            drills.record_review(made, card, int(rating), scheduled.due_ns, scheduled.memory, now - 5 * DAY_NS)
        sessions.record_answer(made, "quiz:serving:decode-speed", 1, "5", 1, 1, 30, now)
        yield made


def page(kit: Kit, workspace: Path) -> str:
    ran = kit("report")
    assert ran.code == 0 and ran.err == ""
    return (workspace / ".kit" / "report.html").read_text()


def test_the_page_holds_the_journals_numbers(kit: Kit, workspace: Path, journal: Journal) -> None:
    text = page(kit, workspace)
    assert re.findall(r'data-seconds="([0-9.]+)"', text) == [f"{seconds}" for seconds in TIMES]
    assert "1 of 2" in text and "Mistakes mended</dt><dd>1 of 1" in text and "Reviews due now</dt><dd>1<" in text
    for words in ("Wrong number", ">failed</td>", "kit drill scale_it", "kit quiz decode-speed",
                  "target 5:00", "best 2:30", "11:40", "given up", "in time", "over"):  # fmt: skip
        assert words in text, words
    assert "<script" not in text and "gone &lt;script&gt;" in text
    assert text.count('<tr><td class="day">') >= 4 + len(TIMES)


def test_the_page_loads_and_runs_nothing(kit: Kit, workspace: Path, journal: Journal) -> None:
    text = page(kit, workspace)
    assert "default-src 'none'" in text
    assert set(re.findall(r'(?:src|href)="([^"#][^"]*)"', text)) == {"data:,"}
    assert not re.search(r"@import|url\(|<script|<iframe|<object|<link rel=\"style", text)


def test_headings_tables_and_charts_can_be_read_aloud(kit: Kit, workspace: Path, journal: Journal) -> None:
    text = page(kit, workspace)
    assert '<html lang="en">' in text and "<main" in text and text.count("<h1") == 1
    levels = [int(level) for level in re.findall(r"<h([1-6])", text)]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(set(ids)) == len(ids)
    for svg in re.findall(r"<svg[^>]*>", text):
        named = re.search(r'aria-labelledby="([^"]+)" aria-describedby="([^"]+)"', svg)
        assert 'aria-hidden="true"' in svg or ('role="img"' in svg and named and {*named.groups()} <= set(ids)), svg
    for labelled in re.findall(r'aria-labelledby="([^"]+)"', text):
        assert labelled in ids
    for table in re.findall(r"<table.*?</table>", text, re.S):
        assert 'scope="col"' in table


def test_an_empty_journal_makes_a_page_and_a_status(kit: Kit, course: Path, workspace: Path) -> None:
    assert kit("status").code == 0 and not workspace.exists()
    text = page(kit, workspace)
    assert "0 of 2" in text and "No reviews yet" in text and "No drills yet" in text and "No attempts yet" in text
    ran = kit("status")
    assert ran.code == 0 and "Reviews: 0 due now" in ran.out
    assert "nothing is due" in kit("due").out


def test_a_wrong_clock_another_zone_and_a_years_gap_still_make_a_page(
    kit: Kit, workspace: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = test_result("first", 1, Outcome.FAILED)
    for at_ns in (0, -(10**18), time.time_ns() + 900 * DAY_NS, 9 * 10**18, time.time_ns() - 400 * DAY_NS):
        journal.record_attempt(attempt((failed,), exercise="shift"), "e", at_ns=at_ns)
    scheduled = next_review(None, Rating.GOOD, time.time_ns() + 900 * DAY_NS)
    drills.record_review(journal, "shift:1:blank", 3, scheduled.due_ns, scheduled.memory, time.time_ns() + 900 * DAY_NS)
    for zone in ("Pacific/Kiritimati", "America/Los_Angeles", "UTC"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert "Attempts</dt><dd>9<" in page(kit, workspace)
        assert kit("status").code == 0 and kit("due", "--all").code == 0
    monkeypatch.undo()
    time.tzset()


def test_status_says_progress_due_reviews_drills_and_readiness(kit: Kit, workspace: Path, journal: Journal) -> None:
    ran = kit("status", "--interview", "2999-01-01")
    assert ran.code == 0
    for words in ("Attention", "1 of 1", "100%", "Reviews: 1 due now", "kit drill scale_it", "last 2:30", "best 2:30",
                  "target 5:00", "Interview on 2999-01-01", "1 of 1 exercises", "Quiz: serving"):  # fmt: skip
        assert words in ran.out, words
    assert "Interview on" in kit("status").out
    assert "Interview on" not in kit("status", "--interview", "none").out
    assert kit("status", "--interview", "2000-01-01").code == 2
    tomorrow = (date.today() + timedelta(days=1)).isoformat()
    assert f"Interview on {tomorrow}, in 1 day\n" in kit("status", "--interview", tomorrow).out


def test_a_journal_moves_to_another_workspace(
    kit: Kit, workspace: Path, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = kit("report", "--export", tmp_path / "journal.jsonl")
    assert ran.code == 0 and "records" in ran.out
    monkeypatch.setenv("KIT_WORKSPACE", str(tmp_path / "laptop"))
    assert kit("report", "--export", tmp_path / "x").code == 2
    (tmp_path / "shift.py").write_text("mine")
    for option in ("--export", "--out"):
        ran = kit("report", option, tmp_path / "shift.py")
        assert ran.code == 2 and "is a Python file, which this would overwrite" in ran.err
    assert (tmp_path / "shift.py").read_text() == "mine"
    assert "4 attempts" in kit("report", "--import", tmp_path / "journal.jsonl").out
    assert "nothing in it was new" in kit("report", "--import", tmp_path / "journal.jsonl").out
    assert "1 of 1" in kit("status").out
    (tmp_path / "other").write_text("hello")
    assert kit("report", "--import", tmp_path / "other").code == 2
    assert kit("report", "--import", tmp_path / "none").code == 2
    assert kit("report", "--import", tmp_path / "other", "--open").code == 2


def test_a_journal_that_turns_out_damaged_is_set_aside_and_said(
    kit: Kit, workspace: Path, course: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grader.journal import store

    path = workspace / ".kit" / "journal.db"
    path.parent.mkdir(parents=True)
    with Journal.open(path) as made, made.transaction():
        for number in range(200):
            made.record_attempt(attempt((test_result("first", 1, Outcome.FAILED),), exercise=f"e{number}"), "a")
    content = bytearray(path.read_bytes())
    for leaf in range(len(content) // 8192 * 4096, len(content) - 4096, 4096):
        content[leaf : leaf + 64] = os.urandom(64)
    path.write_bytes(content)
    monkeypatch.setattr(store, "CHECKED_BYTES", 0)  # as if it were too large to look through when it is opened
    ran = kit("report")
    assert ran.code == 3 and "the journal is damaged" in ran.err and "journal.damaged-" in ran.err
    (kept,) = path.parent.glob("journal.damaged-*.db")
    assert kept.read_bytes() == bytes(content)
    assert kit("report").code == 0


def test_the_charts_scale_holds_every_run_and_the_target() -> None:
    for seconds in (1.0, 59.0, 301.0, 5000.0, 90000.0):
        run = practice_page.RunView("2026-01-01", seconds, "over")
        chart = practice_page.line_chart(practice_page.DrillView("x", 300.0, (run, run), None))
        assert 2 <= len(chart.ticks) <= 7
        assert all(0 <= mark.y <= chart.height and chart.left <= mark.x <= chart.right for mark in chart.marks)
        assert 0 < chart.target_y < chart.height
        higher = chart.marks[0].y < chart.target_y
        assert higher == (seconds > 300.0)


def browse(path: Path, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the browser on a file, with every connection it might make going to a port where nothing answers."""
    assert BROWSER is not None, "the page is tested in chromium: install it"
    command = [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", *more, path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(BROWSER is None and not os.environ.get("CI"), reason="no chromium here")
def test_in_a_browser_nothing_is_said_asked_for_or_wider_than_a_phone(
    kit: Kit, workspace: Path, journal: Journal, tmp_path: Path
) -> None:
    page(kit, workspace)
    path = workspace / ".kit" / "report.html"
    asked: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        done = threading.Event()

        def listen() -> None:
            while not done.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.settimeout(2)
                    asked.append(connection.recv(200).decode("latin-1"))

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            proxy = f"--proxy-server=http://127.0.0.1:{server.getsockname()[1]}"
            wide = browse(path, tmp_path, proxy, "--dump-dom", "--window-size=1100,900")
            # A frame of a phone's width tells how wide the page wants to be.
            probe = tmp_path / "probe.html"
            probe.write_text(
                '<img src="http://control.invalid/" alt="">'
                f'<iframe id="f" width="390" height="800" style="border:0" src="{path.as_uri()}"></iframe><script>'
                'document.getElementById("f").onload = e => { document.title = "loaded"; try { document.title ='
                ' "wide " + e.target.contentDocument.documentElement.scrollWidth } catch (x) { document.title = x } }'
                "</script>"
            )
            narrow = browse(
                probe, tmp_path, proxy, "--dump-dom", "--allow-file-access-from-files", "--virtual-time-budget=3000"
            )
        finally:
            done.set()
            thread.join()
    said = [line for line in (wide.stderr + narrow.stderr).splitlines() if "CONSOLE" in line]
    assert said == []
    hosts = {found[1] for request in asked if (found := re.match(r"[A-Z]+ (?:http://)?([^/: ]+)", request))}
    ours = {host for host in hosts if not re.search(r"(google|googleapis|gstatic)\.com$", host)}
    assert ours == {"control.invalid"}, "but for the browser's own errands, only the control's request was to be seen"
    assert re.findall(r'data-seconds="([0-9.]+)"', wide.stdout) == [f"{seconds}" for seconds in TIMES]
    found = re.search(r"<title>wide (\d+)</title>", narrow.stdout)
    assert found is not None and int(found[1]) <= 390, narrow.stdout[:300]
