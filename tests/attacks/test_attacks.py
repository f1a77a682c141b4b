"""Rows of the attack table: what a submission may try, and what the grader must show.

A folder is a row: `submission.py`, and `expected.toml` with the outcomes that any graded test may have (all of
them must have one of these), and what some message must contain.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from grader import paths
from grader.classroom.selftest import survivors
from grader.errors import KitError
from grader.host import landlock
from grader.judge.client import JudgeClient
from grader.judge.orders import GradeOrder
from grader.model import Attempt, Isolation

HERE = Path(__file__).parent
FOLDERS = sorted(path.parent for path in HERE.glob("*/expected.toml"))
# Few tests, of all three kinds: one call, several calls, a gradient.
ONLY = ("test_multi_head_case", "test_one_token", "test_a_second_call")


@pytest.fixture(scope="module")
def judge() -> Iterator[JudgeClient]:
    with JudgeClient() as client:
        yield client


def graded(judge: JudgeClient, folder: Path, expected: dict[str, Any], **changes: Any) -> Attempt:
    order = GradeOrder(
        expected["exercise"],
        str(paths.content_root()),
        (folder / "submission.py").read_bytes(),
        f"{expected['exercise']}.py",
        "submission.py",
        seed=expected.get("seed", 11),
        isolation=Isolation(expected["isolation"]),
        only=tuple(expected.get("only", ONLY)),
        timeout_seconds=expected.get("timeout_seconds", 30.0),
        diagnose=False,
    )
    return judge.grade(msgspec.structs.replace(order, **changes), lambda event: None)


def passes(attempt: Attempt) -> bool:
    return bool(attempt.tests) and all(test.outcome == "passed" for test in attempt.tests)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_grader_shows_what_the_table_says(judge: JudgeClient, folder: Path) -> None:
    expected = tomllib.loads((folder / "expected.toml").read_text())
    attempt = graded(judge, folder, expected)
    outcomes = {str(test.outcome) for test in attempt.tests}
    assert outcomes <= set(expected["outcomes"]), [(test.outcome, test.message) for test in attempt.tests]
    assert not attempt.passed or outcomes == {"passed"}
    messages = "\n".join(test.message for test in attempt.tests)
    for text in expected["message_contains"]:
        assert text in messages
    if "survivor_name" in expected:
        ran = [test for test in attempt.tests if not test.message.startswith("not run")]
        assert ran and all("orphaned" in test.printed for test in ran)
        deadline = time.monotonic() + 3
        while survivors(expected["survivor_name"]) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not survivors(expected["survivor_name"])


def test_the_controls_pass_and_fail_as_a_whole(judge: JudgeClient) -> None:
    expected = tomllib.loads((HERE / "control-right" / "expected.toml").read_text())
    right = graded(judge, HERE / "control-right", expected, only=())
    assert right.passed and right.points == right.max_points == 10
    wrong = graded(judge, HERE / "control-wrong", expected, only=())
    assert not wrong.passed and wrong.points == 0


def test_a_forged_print_is_shown_as_what_was_printed(judge: JudgeClient) -> None:
    folder = HERE / "14-forged-stdout"
    attempt = graded(judge, folder, tomllib.loads((folder / "expected.toml").read_text()))
    assert '"passed": true' in attempt.tests[0].printed
    assert not attempt.passed


def test_reports_with_control_characters_parse(judge: JudgeClient) -> None:
    from grader.cli import export

    folder = HERE / "32-control-characters"
    attempt = graded(judge, folder, tomllib.loads((folder / "expected.toml").read_text()))
    text = export.json_text(export.attempt_document(attempt))
    assert json.loads(text)["passed"] is False
    assert not any(ord(char) < 32 and char not in "\n\t" for char in text)
    xml = export.junit_xml([attempt]).decode()
    ElementTree.fromstring(xml)
    assert "<script>" not in xml


def test_the_judge_grades_on_after_every_attack(judge: JudgeClient) -> None:
    expected = tomllib.loads((HERE / "control-right" / "expected.toml").read_text())
    for name in ("01-exit", "30-memory-bomb", "28-orphan"):
        graded(judge, HERE / name, expected, only=ONLY[:1])
        assert passes(graded(judge, HERE / "control-right", expected, only=ONLY[:1]))


def test_a_host_that_kills_its_own_zygote_costs_it_the_test_and_nothing_else(judge: JudgeClient) -> None:
    expected = tomllib.loads((HERE / "control-right" / "expected.toml").read_text())
    killer = (
        (HERE / "01-exit" / "submission.py").read_text().replace("os._exit(0)", "os.kill(os.getppid(), 9); os._exit(0)")
    )
    attempt = graded(judge, HERE / "01-exit", expected, source=killer.encode(), only=ONLY[:2])
    # Where the kernel forbids the signal it raises; where it does not, the host dies with its zygote.
    assert {str(test.outcome) for test in attempt.tests} <= {"crashed", "error"}
    assert passes(graded(judge, HERE / "control-right", expected, only=ONLY[:1]))


def test_a_host_reads_no_solution_and_writes_only_its_scratch_folder(judge: JudgeClient) -> None:
    if not landlock.version():
        pytest.fail("this kernel has no Landlock; process isolation cannot keep a host from reading solutions")
    expected = tomllib.loads((HERE / "control-wrong" / "expected.toml").read_text())
    root = paths.content_root()
    probe = f"""
import os, tempfile
from pathlib import Path

def attempt(action):
    try:
        action()
        return "done"
    except PermissionError:
        return "denied"

print("solution", attempt(lambda: Path({str(root / "solutions" / "gqa.py")!r}).read_text()))
print("tests", attempt(lambda: Path({str(root / "exercises" / "gqa" / "hidden_tests.py")!r}).read_text()))
print("outside", attempt(lambda: Path({str(root / "README.md")!r}).open("a").close()))
print("parent", attempt(lambda: os.kill(os.getppid(), 0)))
print("scratch", attempt(lambda: tempfile.NamedTemporaryFile("w").write("x")))
"""
    attempt = graded(judge, HERE / "control-wrong", expected, source=probe.encode(), only=ONLY[:1])
    shown = attempt.tests[0].printed.split("\n")[:5]
    assert shown == ["solution denied", "tests denied", "outside denied", "parent denied", "scratch done"]


def test_a_judge_that_is_killed_leaves_nothing_running() -> None:
    expected = tomllib.loads((HERE / "28-orphan" / "expected.toml").read_text())
    client = JudgeClient()
    hanging = threading.Thread(target=lambda: graded_until_aborted(client, expected), daemon=True)
    hanging.start()
    deadline = time.monotonic() + 90
    while not survivors("kit-orphan") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert survivors("kit-orphan")
    client.abort()
    hanging.join(10)
    client.close()
    deadline = time.monotonic() + 20
    while survivors("kit-orphan") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not survivors("kit-orphan")


def graded_until_aborted(client: JudgeClient, expected: dict[str, Any]) -> None:
    with contextlib.suppress(KitError):
        graded(client, HERE / "28-orphan", expected, timeout_seconds=300.0)
