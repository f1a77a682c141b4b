"""`kit grade` through the real judge, on the miniature course."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from grader.journal.store import Journal
from grader.workspace import Workspace

Kit = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def solved(course: Path, workspace: Path) -> Path:
    """A workspace whose scale_it.py is the solution."""
    workspace.mkdir()
    (workspace / ".kit").mkdir()
    path = workspace / "scale_it.py"
    path.write_text((course / "solutions" / "scale_it.py").read_text())
    return path


def test_the_solution_passes_and_is_recorded(kit: Kit, solved: Path, workspace: Path) -> None:
    ran = kit("grade", "scale_it", "--no-speed", "--seed", 5)
    assert ran.code == 0, ran.out + ran.err
    assert "Scaling  10/10" in ran.out and "seed 5" in ran.out
    with Journal.open(Workspace(workspace).journal_path) as journal:
        (row,) = journal.attempts("scale_it")
        assert (row.passed, row.points, row.seed, row.part) == (True, 10, 5, None)
        assert len(row.sha256) == 64
    assert "✓ 10/10" in kit("list").out


def test_the_untouched_stub_gets_a_line_a_part(kit: Kit, course: Path, workspace: Path) -> None:
    kit("start", "scale_it")
    ran = kit("grade", "scale_it", "--no-speed")
    assert ran.code == 1
    assert ran.out.count("not started") == 2
    assert "Write part 1 (scale), then: kit grade scale_it" in ran.out
    assert "NotImplementedError" not in ran.out
    assert "✓" not in kit("list").out


def test_what_is_not_written_yet_is_said(kit: Kit, solved: Path) -> None:
    right = solved.read_text()
    solved.write_text(right.replace("def scale(", "def scaled("))
    ran = kit("grade", "scale_it", "--no-speed")
    assert ran.code == 1 and "your file does not define `scale` (it defines" in " ".join(ran.out.split())
    solved.write_text(
        right.replace("def scale(", "def scale(*a, **k):\n    raise NotImplementedError('later')\n\ndef old(")
    )
    assert "Not written yet" not in kit("grade", "scale_it", "--no-speed", "--part", 1).out, "nothing of it is begun"


def test_an_empty_file_is_sent_to_reset(kit: Kit, solved: Path) -> None:
    solved.write_text("\n")
    ran = kit("grade", "scale_it")
    assert ran.code == 2 and "kit reset scale_it writes the stub again" in ran.err
    assert kit("reset", "scale_it").code == 0 and solved.read_text().strip()


def test_a_known_mistake_is_named_in_text_json_and_junit(kit: Kit, solved: Path, tmp_path: Path) -> None:
    solved.write_text(solved.read_text().replace("x * factor + 0", "2 * x * factor + 0"))
    junit = tmp_path / "report.xml"
    ran = kit("grade", "scale_it", "--no-speed", "--json", "--junit", junit, "--seed", 3)
    assert ran.code == 1
    document = json.loads(ran.out)
    assert [item["mistake"] for item in document["diagnosis"]] == ["scale-it-wrong"]
    assert {test["outcome"] for test in document["tests"]} == {"failed"}
    assert (document["seed"], document["isolation"]) == (3, "process")
    suite = ET.parse(junit).find("testsuite")
    assert suite is not None and suite.attrib["failures"] == "2"
    text = kit("grade", "scale_it", "--no-speed").out
    assert "Mistake: Wrong number" in text and "Try: Try 2." in text and "(scale-it-wrong)" in text


def test_the_same_seed_gives_the_same_verdict_word_for_word(kit: Kit, solved: Path) -> None:
    solved.write_text(solved.read_text().replace("x * factor + 0", "3 * x + 0"))
    first, second = (json.loads(kit("grade", "scale_it", "--no-speed", "--json", "--seed", 9).out) for _ in range(2))
    for document in (first, second):
        document.pop("seconds")
        for test in document["tests"]:
            test.pop("seconds")
    assert first == second


def test_one_part_is_graded_alone_and_does_not_pass_the_exercise(kit: Kit, solved: Path) -> None:
    ran = kit("grade", "scale_it", "--no-speed", "--part", 1)
    assert ran.code == 0 and "The other parts: kit grade scale_it" in ran.out
    assert "✓" not in kit("list").out
    ran = kit("grade", "scale_it", "--part", 3)
    assert ran.code == 2 and "parts 1 to 2, not 3" in ran.err


def test_a_file_elsewhere_is_graded_without_making_a_workspace(
    kit: Kit, course: Path, workspace: Path, tmp_path: Path
) -> None:
    other = tmp_path / "some where" / "größe.py"
    other.parent.mkdir()
    other.write_text((course / "solutions" / "scale_it.py").read_text())
    ran = kit("grade", "scale_it", "--file", other, "--no-speed", "--json")
    assert ran.code == 0 and json.loads(ran.out)["file"] == str(other)
    assert not workspace.exists()


def test_every_file_of_the_workspace_is_graded(kit: Kit, solved: Path) -> None:
    kit("start", "shift")
    ran = kit("grade", "--all", "--no-speed", "--json")
    assert ran.code == 1
    document = json.loads(ran.out)
    assert [(item["exercise"], item["passed"]) for item in document["attempts"]] == [
        ("scale_it", True),
        ("shift", False),
    ]
    assert (document["points"], document["max_points"]) == (10, 20)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no file"),
        (b"", "is empty"),
        (b"x = '\xff'\n", "is not UTF-8 text: byte 0xff in line 1"),
        (b"x = 1\n\0", "NUL byte in line 2"),
    ],
)
def test_what_is_no_source_is_one_sentence_and_exit_code_two(
    kit: Kit, solved: Path, content: bytes | None, says: str
) -> None:
    solved.unlink()
    if content is not None:
        solved.write_bytes(content)
    ran = kit("grade", "scale_it", "--json")
    assert ran.code == 2 and says in ran.err and ran.out == ""
    assert len(ran.err.splitlines()) <= 2


def test_a_folder_is_refused(kit: Kit, solved: Path) -> None:
    ran = kit("grade", "scale_it", "--file", solved.parent)
    assert ran.code == 2 and "is a directory" in ran.err


def test_a_syntax_error_is_said_at_once_with_its_line(kit: Kit, solved: Path) -> None:
    solved.write_text("x = 1\n\n    def f(:\n")
    began = time.monotonic()
    ran = kit("grade", "scale_it")
    assert ran.code == 1 and "scale_it.py, line 3: unexpected indent" in ran.out
    assert time.monotonic() - began < 2.0
    assert "def f(:" in ran.out


def test_a_syntax_error_in_json_is_a_graded_file(kit: Kit, solved: Path) -> None:
    solved.write_text("def f(:\n")
    ran = kit("grade", "scale_it", "--json")
    document = json.loads(ran.out)
    assert ran.code == 1 and not document["passed"]
    assert {test["outcome"] for test in document["tests"]} == {"error"}
    assert all("line 1" in test["message"] for test in document["tests"])


def test_an_exception_at_import_is_said_once_with_the_learners_line(kit: Kit, solved: Path) -> None:
    solved.write_text("import torch\n\nvalue = 1 / 0\n")
    ran = kit("grade", "scale_it", "--no-speed")
    assert ran.code == 1
    assert ran.out.count("ZeroDivisionError") == 1 and "line 3" in ran.out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "name an exercise, or say --all"),
        (["scale_it", "--all"], "--all grades the whole workspace"),
        (["scale_it", "--pdb", "--isolation", "process"], "--pdb needs --isolation none"),
        (["scale_it", "--pdb", "--json"], "--pdb talks on the terminal"),
        (["scale_it", "--device", "tpu"], "'tpu' is not one of"),
        (["scale_it", "--part", "0"], "0 is not in the range"),
        (["scale_it", "--seed", "-1"], "-1 is not in the range"),
        (["scale_it", "--junit", "/nowhere/report.xml"], "/nowhere/report.xml cannot be written"),
        (["scale_it", "--junit", "/nowhere/scale_it.py"], "scale_it.py is a Python file, which this would overwrite"),
        (["workspace/scale_it.py"], "a NAME is no path: scale_it is the exercise, and --file names a file"),
    ],
)
def test_wrong_requests_are_exit_code_two(kit: Kit, solved: Path, options: list[str], says: str) -> None:
    ran = kit("grade", *options)
    assert ran.code == 2 and says in ran.err and ran.out == ""


def test_cuda_without_a_gpu_is_refused_with_a_sentence(kit: Kit, solved: Path) -> None:
    import torch

    if torch.cuda.is_available():
        assert kit("grade", "scale_it", "--device", "cuda", "--no-speed").code == 0
        return
    ran = kit("grade", "scale_it", "--device", "cuda", "--no-speed")
    assert ran.code == 2 and ran.out == "" and "cuda" in ran.err.lower()


def test_what_lies_beside_the_file_changes_nothing_and_is_listed(kit: Kit, solved: Path) -> None:
    (solved.parent / "conftest.py").write_text("raise RuntimeError('conftest ran')\n")
    (solved.parent / "torch.py").write_text("raise RuntimeError('shadowed')\n")
    (solved.parent / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n")
    ran = kit("grade", "scale_it", "--no-speed")
    assert ran.code == 0, ran.out
    assert "conftest.py and pytest.ini beside your file: ignored" in ran.out.replace("\n", " ")
    assert "torch.py beside your file shadows a library" in ran.out.replace("\n", " ")


def test_remarks_go_to_stderr_beside_json(kit: Kit, solved: Path) -> None:
    (solved.parent / "conftest.py").write_text("")
    ran = kit("grade", "scale_it", "--no-speed", "--json")
    json.loads(ran.out)
    assert "conftest.py beside your file: ignored" in ran.err


def test_a_result_that_cannot_be_recorded_is_still_shown(kit: Kit, solved: Path) -> None:
    (solved.parent / ".kit" / "journal.db").mkdir()
    ran = kit("grade", "scale_it", "--no-speed", "--json")
    assert ran.code == 0 and "not recorded" in ran.err
    assert json.loads(ran.out)["passed"]


@pytest.mark.parametrize("options", [["--json"], []])
def test_what_the_learner_prints_never_reaches_stdout(kit: Kit, solved: Path, options: list[str]) -> None:
    text = solved.read_text().replace("    # the trick", "    print('LOUD', flush=True)")
    solved.write_text("import os\nos.write(1, b'LOUD')\nprint('LOUD')\n" + text.replace('"""Scaling', '"""S', 1))
    ran = kit("grade", "scale_it", "--no-speed", *options)
    assert "LOUD" not in ran.out and "LOUD" not in ran.err


def test_ctrl_c_in_mid_grade_leaves_no_process_and_no_attempt(solved: Path, workspace: Path) -> None:
    solved.write_text("import time\n\n\nwhile True:\n    time.sleep(0.05)\n")
    marker = f"kit-interrupt-{os.getpid()}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = "from grader.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", command, "grade", "scale_it", "--no-speed"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**environment, "LANG": marker},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not descendants(process.pid, depth=2) and time.monotonic() < deadline:
        time.sleep(0.1)
    family = descendants(process.pid)
    assert family, "the judge and its children are running"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "interrupted" in err and out == ""
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in family) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in family if alive(pid)] == []
    assert not (workspace / ".kit" / "journal.db").exists()


def descendants(pid: int, depth: int = 1) -> list[int]:
    """Every process below ``pid`` that is at least ``depth`` generations down."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    level = [pid]
    generation = 0
    while level:
        level = [child for parent in level for child in parents.get(parent, [])]
        generation += 1
        if generation >= depth:
            found.extend(level)
    return found


def alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_breakpoint_in_the_learners_file_works_under_pdb(solved: Path) -> None:
    import pexpect

    solved.write_text(solved.read_text().replace("    # the trick", "    breakpoint()"))
    command = "from grader.cli.main import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb"}
    child = pexpect.spawn(
        sys.executable, ["-c", command, "grade", "scale_it", "--no-speed", "--pdb", "--part", "1"],
        env=environment, timeout=60, encoding="utf-8",
    )  # fmt: skip
    child.expect_exact("(Pdb)")
    child.sendline("p factor")
    child.expect_exact("2.0")
    child.expect_exact("(Pdb)")
    child.sendline("c")
    child.expect("4/4|1 points|Passed")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_progress_is_shown_on_a_terminal(solved: Path) -> None:
    import pexpect

    command = "from grader.cli.main import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "80"}
    child = pexpect.spawn(
        sys.executable, ["-c", command, "grade", "scale_it", "--no-speed"], env=environment, timeout=60,
        encoding="utf-8", dimensions=(24, 80),
    )  # fmt: skip
    child.expect("scale_it: loading")
    child.expect("test [12] of 2")
    child.expect("Passed")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
