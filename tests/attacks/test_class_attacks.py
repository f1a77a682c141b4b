"""Rows of the attack table about a class: what a sandbox must stop, archives, shipped tests, releases, reports.

Rows whose folder needs something to attack (a listener, a token, a second run) are run here as `kit class selftest`
runs them; rows that are no submission are tests of their own, or named with where they are tested.
"""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader import paths
from grader.catalogue import Catalogue
from grader.classroom import exports
from grader.classroom.batch import BatchOptions, Gradebook, Status, grade_class
from grader.classroom.feedback import Redactor
from grader.classroom.selftest import _canaries, read_attacks, run_attack
from grader.host import sandbox
from grader.judge.client import JudgeClient
from grader.judge.orders import GradeOrder
from grader.model import Isolation

HERE = Path(__file__).parent
ATTACKS = read_attacks(HERE)
IN_A_SANDBOX = [
    name for name, attack in ATTACKS.items() if attack.isolation is Isolation.BWRAP or name.startswith("control")
]

pytestmark = pytest.mark.skipif(bool(sandbox.why_not()), reason=sandbox.why_not() or "bubblewrap works")


@pytest.fixture(scope="module")
def judge() -> Iterator[JudgeClient]:
    variables = [attack.canary_variable for attack in ATTACKS.values() if attack.canary_variable]
    with _canaries(variables), JudgeClient() as client:
        yield client


@pytest.mark.parametrize("name", IN_A_SANDBOX)
def test_a_sandbox_shows_what_the_table_says(judge: JudgeClient, name: str) -> None:
    result = run_attack(judge, HERE / name, ATTACKS[name], Isolation.BWRAP)
    assert result.stopped, result.seen


def test_a_slow_test_after_others_outlives_what_the_sandbox_does_meanwhile(judge: JudgeClient) -> None:
    # While a host keeps it waiting, the process that hosts come from imports what some will ask for: in a sandbox whose
    # folders have been emptied since.
    slow = (HERE / "control-right" / "submission.py").read_text()
    place = slow.index(":\n", slow.index("    def forward(")) + 2
    slow = f"{slow[:place]}        __import__('time').sleep(1.0)\n{slow[place:]}"
    orders = [
        GradeOrder(
            "gqa",
            str(paths.content_root()),
            source,
            "gqa.py",
            "gqa.py",
            seed=1,
            only=("test_one_token",),
            isolation=Isolation.BWRAP,
        )
        for source in ((HERE / "control-wrong" / "submission.py").read_bytes(), slow.encode())
    ]
    with JudgeClient() as own:  # with a sandbox that has done nothing yet
        outcomes = [{str(test.outcome) for test in own.grade(order, lambda event: None).tests} for order in orders]
    assert outcomes[1] == {"passed"}


def test_every_row_of_issue_7_has_a_folder_or_a_test_here() -> None:
    rows = {attack.row for attack in ATTACKS.values()}
    elsewhere = {
        36: "test_archives_that_attack_are_refused_and_the_class_goes_on",
        37: "test_archives_that_attack_are_refused_and_the_class_goes_on",
        40: "test_shipped_tests_that_were_edited_are_noted_and_not_used",
        41: "tests/unit/classroom/test_release.py and test_leaks.py",
    }
    assert rows | set(elsewhere) >= {12, 13, 22, 29, *range(33, 45)}


def _hostile_tar(kind: bytes, name: str = "gqa.py", link: str = "/etc/passwd") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        archive.addfile(info)
    return buffer.getvalue()


def _hostile_zip(members: list[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Gradebook, Path]:
    """A class of the two controls and of everybody who attacks with an archive or a link."""
    folder = tmp_path_factory.mktemp("class") / "submissions"
    folder.mkdir()
    answer = (HERE / "control-right" / "submission.py").read_bytes()
    (folder / "right_gqa.py").write_bytes(answer)
    (folder / "wrong_gqa.py").write_bytes((HERE / "control-wrong" / "submission.py").read_bytes())
    hostile = {
        "slip.zip": _hostile_zip([("../../gqa.py", answer)]),
        "prefix.zip": _hostile_zip([("../submissions-2/gqa.py", answer)]),
        "absolute.zip": _hostile_zip([("/tmp/gqa.py", answer)]),
        "bomb.zip": _hostile_zip([("gqa.py", answer), ("zeros", bytes(80 << 20))]),
        "many.zip": _hostile_zip([(f"{number}.py", b"") for number in range(10_000)]),
        "symlink.tgz": _hostile_tar(tarfile.SYMTYPE),
        "hardlink.tgz": _hostile_tar(tarfile.LNKTYPE),
        "fifo.tgz": _hostile_tar(tarfile.FIFOTYPE),
        "device.tgz": _hostile_tar(tarfile.CHRTYPE),
        "torn.tgz": _hostile_tar(tarfile.SYMTYPE)[:40],
    }
    for name, data in hostile.items():
        (folder / name).write_bytes(data)
    for name in ("linked", "piped", "hard"):
        (folder / name).mkdir()
    (folder / "linked" / "gqa.py").symlink_to(
        paths.solution_path(paths.content_root(), paths.content_root() / "exercises" / "gqa")
    )
    os.mkfifo(folder / "piped" / "gqa.py")
    cheat = folder / "cheat"
    (cheat / "exercises" / "gqa").mkdir(parents=True)
    (cheat / "exercises" / "gqa" / "hidden_tests.py").write_text("def test_nothing(): pass\n")
    (cheat / "conftest.py").write_text("import os; os._exit(0)\n")
    (cheat / "gqa.py").write_bytes((HERE / "control-wrong" / "submission.py").read_bytes())
    (folder / "hard" / "gqa.py").hardlink_to(cheat / "gqa.py")
    catalogue = Catalogue()
    out = folder.with_name("out")
    options = BatchOptions(isolation=Isolation.BWRAP, lanes=2, speed=False)
    return grade_class(folder, out, catalogue, [catalogue.exercise("gqa")], options), folder


def test_archives_that_attack_are_refused_and_the_class_goes_on(graded: tuple[Gradebook, Path]) -> None:
    book, folder = graded
    by_student = {row.entry.student: row for row in book.rows}
    refused = (
        "slip",
        "prefix",
        "absolute",
        "bomb",
        "many",
        "symlink",
        "hardlink",
        "fifo",
        "device",
        "torn",
        "linked",
        "piped",
        "hard",
    )
    for student in refused:
        assert by_student[student].status is Status.REFUSED, student
        assert by_student[student].points == 0 and by_student[student].entry.refused
    assert by_student["right"].points == 10
    assert by_student["wrong"].points == 0 and by_student["wrong"].status is Status.GRADED
    assert not (folder.parent / "gqa.py").exists() and not Path("/tmp/gqa.py").exists()
    assert not (folder.parent / "submissions-2").exists()


def test_shipped_tests_that_were_edited_are_noted_and_not_used(graded: tuple[Gradebook, Path]) -> None:
    book, folder = graded
    rows = {row.entry.student: row for row in book.rows}
    assert rows["cheat"].status is Status.REFUSED  # its answer has a second name, see above: links are not read
    (folder / "hard" / "gqa.py").unlink()
    catalogue = Catalogue()
    options = BatchOptions(isolation=Isolation.BWRAP, lanes=1, speed=False)
    again = grade_class(folder, folder.with_name("out"), catalogue, [catalogue.exercise("gqa")], options)
    row = next(row for row in again.rows if row.entry.student == "cheat")
    assert row.status is Status.GRADED and row.points == 0
    assert "conftest.py" in row.entry.notes[0] and "hidden_tests.py" in row.entry.notes[0]


def test_what_a_submission_read_of_the_tests_does_not_reach_a_page() -> None:
    """Row 12's second half; under process isolation the tests can be read, and what quotes them is taken out."""
    exercise = Catalogue().exercise("gqa")
    redact = Redactor([exercise])
    lines = (exercise.folder / "hidden_tests.py").read_text().splitlines()
    quoted = [line.strip() for line in lines if "close(" in line and len("".join(line.split())) > 40]
    assert quoted
    for line in quoted:
        assert "close(" not in redact(f"RuntimeError: {line}")
    assert (
        redact("RuntimeError: shapes (2, 3) and (4, 5) do not match")
        == "RuntimeError: shapes (2, 3) and (4, 5) do not match"
    )


def test_no_cell_of_an_export_is_a_formula() -> None:
    assert exports.neutral("=cmd|' /C calc'!A0") == "'=cmd|' /C calc'!A0"
