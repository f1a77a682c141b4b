"""list, show, start, hint, reset, doctor on the miniature course."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.journal.store import Journal
from grader.workspace import Workspace

Kit = Callable[..., "Ran"]  # noqa: F821 (the type lives in conftest)


def test_help_lists_every_command_and_the_exit_codes(kit: Kit) -> None:
    ran = kit("--help")
    assert ran.code == 0
    for name in ("list", "show", "start", "grade", "hint", "reset", "doctor", "author"):
        assert f"\n  {name} " in ran.out
    assert "Exit codes: 0 passed" in ran.out


def test_every_command_is_in_the_readme() -> None:
    from grader.cli.main import COMMANDS

    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    for name in COMMANDS:
        assert f"`kit {name}" in readme, name


def test_every_command_has_help(kit: Kit) -> None:
    from grader.cli.main import COMMANDS

    for name in COMMANDS:
        ran = kit(name, "--help")
        assert ran.code == 0 and ran.out.startswith("Usage: kit"), name


def test_the_version_is_the_packages(kit: Kit) -> None:
    assert kit("--version").out.startswith("kit 0.")


def test_an_unknown_command_gets_the_nearest(kit: Kit) -> None:
    ran = kit("strat", "gqa")
    assert ran.code == 2
    assert "there is no command 'strat'; did you mean start" in ran.err
    assert ran.out == ""


def test_the_list_goes_by_track_and_counts(kit: Kit, course: Path, workspace: Path) -> None:
    ran = kit("list")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "Attention",
        "  scale_it  ★      5 min  Scaling",
        "",
        "Objectives",
        "  shift     ★★    10 min  Shifting",
        "",
        "0 of 2 passed (0%)",
        "Start with: kit start scale_it",
    ]


def test_the_list_of_one_track(kit: Kit, course: Path, workspace: Path) -> None:
    assert "shift" not in kit("list", "att").out
    ran = kit("list", "music")
    assert ran.code == 2 and "there is no track 'music'" in ran.err


def test_show_prints_the_statement_and_the_ladder(kit: Kit, course: Path, workspace: Path) -> None:
    ran = kit("show", "Scaler")
    assert ran.code == 0
    assert ran.out.startswith("# Scaling (scale_it)\n\n## Formula")
    assert "- Part 2 (6 points): The module: Scaler" in ran.out


def test_show_says_which_exercise_an_ambiguous_symbol_means(kit: Kit, course: Path, workspace: Path) -> None:
    ran = kit("show", "scale")
    assert ran.out.startswith("# Scaling") and "shift too; this is scale_it" in ran.err


@pytest.mark.parametrize("command", ["show", "start", "grade", "hint", "reset"])
def test_an_unknown_name_gets_the_nearest_and_exit_code_two(
    kit: Kit, course: Path, workspace: Path, command: str
) -> None:
    ran = kit(command, "scal_it")
    assert ran.code == 2
    assert ran.err == "kit: there is no exercise or symbol 'scal_it'\n     nearest: scale_it, scale, Scaler\n"
    assert ran.out == ""


def test_start_writes_the_stub_once_and_never_over_a_file(kit: Kit, course: Path, workspace: Path) -> None:
    ran = kit("start", "scale_it")
    path = workspace / "scale_it.py"
    assert ran.code == 0 and "wrote " in ran.out and "kit grade scale_it" in ran.out
    assert path.read_bytes() == (course / "exercises" / "scale_it" / "scale_it.py").read_bytes()
    path.write_text("mine")
    ran = kit("start", "scale_it")
    assert ran.code == 0 and "left alone" in ran.out and path.read_text() == "mine"


def test_start_by_force_keeps_a_backup_and_says_where(kit: Kit, course: Path, workspace: Path) -> None:
    kit("start", "shift")
    (workspace / "shift.py").write_text("mine")
    ran = kit("start", "shift", "--force")
    (backup,) = (workspace / ".kit" / "backups").iterdir()
    assert backup.read_text() == "mine" and backup.name in ran.out


def test_start_where_a_folder_stands_is_refused(kit: Kit, course: Path, workspace: Path) -> None:
    (workspace / "shift.py").mkdir(parents=True)
    ran = kit("start", "shift")
    assert ran.code == 2 and "is a directory" in ran.err


def test_start_in_a_place_that_cannot_be_written_is_refused(
    kit: Kit, course: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIT_WORKSPACE", "/proc/kit")
    ran = kit("start", "shift")
    assert ran.code == 2 and "/proc/kit cannot be written" in ran.err and "KIT_WORKSPACE" in ran.err


def test_hints_climb_one_level_a_call_and_are_recorded(kit: Kit, course: Path, workspace: Path) -> None:
    kit("start", "scale_it")
    assert "part 1, nudge (1 of 3)\nNudge 1.\n" in kit("hint", "scale_it").out
    second = kit("hint", "scale_it").out
    assert "Idea 1." in second and "Nudge 1." not in second
    assert "# line 1" in kit("hint", "scale_it").out
    every = kit("hint", "scale_it").out
    assert "Nudge 1." in every and "Idea 1." in every and "# line 1" in every and "still stuck" not in every
    assert "Nudge 2." in kit("hint", "Scaler").out
    with Journal.open(Workspace(workspace).journal_path) as journal:
        assert (journal.hint_level("scale_it", 1), journal.hint_level("scale_it", 2)) == (3, 1)
        assert len(journal.rows("SELECT * FROM hints")) == 4


def test_hints_seen_can_be_read_again_without_a_further_one(kit: Kit, course: Path, workspace: Path) -> None:
    kit("start", "scale_it")
    assert kit("hint", "scale_it", "--again").code == 2
    kit("hint", "scale_it")
    again = kit("hint", "scale_it", "--again").out
    assert "Nudge 1." in again and "Idea" not in again


def test_a_hint_for_a_part_that_does_not_exist_is_refused(kit: Kit, course: Path, workspace: Path) -> None:
    ran = kit("hint", "scale_it", "--part", 3)
    assert ran.code == 2 and "parts 1 to 2, not 3" in ran.err


def test_hints_work_without_a_workspace(kit: Kit, course: Path, workspace: Path) -> None:
    assert "Nudge 1." in kit("hint", "shift").out
    assert not workspace.exists()


def test_a_symbol_of_several_exercises_means_the_one_begun(kit: Kit, course: Path, workspace: Path) -> None:
    kit("start", "shift")
    ran = kit("hint", "scale")
    assert "part 2, nudge" in ran.out and "this is shift" in ran.err


def test_reset_backs_up_says_where_and_can_be_undone(kit: Kit, course: Path, workspace: Path) -> None:
    assert kit("reset", "shift").code == 2
    kit("start", "shift")
    path = workspace / "shift.py"
    stub = path.read_text()
    path.write_text("mine")
    ran = kit("reset", "shift")
    assert ran.code == 0 and path.read_text() == stub
    (backup,) = (workspace / ".kit" / "backups").iterdir()
    assert backup.name in ran.out and backup.read_text() == "mine"
    assert kit("reset", "shift", "--restore").code == 0 and path.read_text() == "mine"
    assert kit("reset", "shift", "--restore").code == 0 and path.read_text() == stub
    with Journal.open(Workspace(workspace).journal_path) as journal:
        assert len(journal.rows("SELECT * FROM resets")) == 3


def test_reset_takes_a_named_backup(kit: Kit, course: Path, workspace: Path) -> None:
    kit("start", "shift")
    (workspace / "old.py").write_text("old")
    assert kit("reset", "shift", "--backup", workspace / "old.py").code == 2
    assert kit("reset", "shift", "--restore", "--backup", workspace / "none.py").code == 2
    assert kit("reset", "shift", "--restore", "--backup", workspace / "old.py").code == 0
    assert (workspace / "shift.py").read_text() == "old"


def test_restoring_without_a_backup_is_refused(kit: Kit, course: Path, workspace: Path) -> None:
    ran = kit("reset", "shift", "--restore")
    assert ran.code == 2 and "there is no backup" in ran.err


def test_a_damaged_journal_is_said_and_work_goes_on(kit: Kit, course: Path, workspace: Path) -> None:
    kit("start", "shift")
    for path in (workspace / ".kit").glob("journal.db*"):
        path.unlink()
    (workspace / ".kit" / "journal.db").write_bytes(b"garbage " * 1000)
    ran = kit("hint", "shift")
    assert ran.code == 0 and "Nudge 1." in ran.out
    assert "the journal was damaged" in ran.err and "journal.damaged-" in ran.err
    assert "Idea 1." in kit("hint", "shift").out


def test_a_missing_stub_says_how_to_make_it(kit: Kit, course: Path, workspace: Path) -> None:
    (course / "exercises" / "shift" / "shift.py").unlink()
    ran = kit("start", "shift")
    assert ran.code == 3 and "kit author stub shift" in ran.err


def test_an_unexpected_fault_is_one_sentence_and_exit_code_three(
    kit: Kit, course: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grader.cli.learn.stub_of", lambda exercise: 1 / 0)
    ran = kit("start", "shift")
    assert ran.code == 3
    assert "the grader itself failed: ZeroDivisionError" in ran.err and "Traceback" not in ran.err


def test_ctrl_c_is_exit_code_130(kit: Kit, course: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(exercise: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("grader.cli.learn.stub_of", interrupt)
    ran = kit("start", "shift")
    assert ran.code == 130 and "interrupted" in ran.err


def test_doctor_looks_at_everything_and_finds_the_content(kit: Kit, course: Path, workspace: Path) -> None:
    kit("start", "shift")
    ran = kit("doctor")
    assert ran.code == 0, ran.out
    for piece in (
        "✓ python: ",
        "✓ torch: ",
        "bubblewrap: ",
        f"✓ exercises: 2 (0 of them kernels) in {course}",
        f"✓ workspace: {workspace}",
        "✓ journal: 0 attempts",
    ):
        assert piece in ran.out


def test_doctor_says_when_the_journal_is_damaged(kit: Kit, course: Path, workspace: Path) -> None:
    kit("start", "shift")
    for path in (workspace / ".kit").glob("journal.db*"):
        path.unlink()
    (workspace / ".kit" / "journal.db").write_bytes(b"garbage " * 1000)
    ran = kit("doctor")
    assert ran.code == 3 and "✗ journal: " in ran.out


def test_author_new_stub_and_check_work_together(kit: Kit, course: Path, workspace: Path) -> None:
    ran = kit("author", "new", "fresh", "--track", "estimates")
    assert ran.code == 0 and "exercise.toml" in ran.out
    assert kit("author", "new", "fresh").code == 2
    assert kit("author", "stub", "fresh", "--check").code == 1
    assert kit("author", "stub", "fresh").code == 0
    assert "already fresh" in kit("author", "stub", "fresh").out
    assert kit("author", "stub", "fresh", "--check").code == 0
    ran = kit("author", "check", "fresh", "--static")
    assert ran.code == 1 and "## Formula is empty" in ran.out
    ran = kit("author", "check", "scale_it", "--static")
    assert ran.code == 0 and "everything holds" in ran.out


def test_author_stub_wants_names_or_all(kit: Kit, course: Path, workspace: Path) -> None:
    assert kit("author", "stub").code == 2
    assert kit("author", "stub", "shift", "--all").code == 2
    assert kit("author", "stub", "--all").out.count("already fresh") == 2


def test_a_reader_that_leaves_early_is_no_error(course: Path, workspace: Path) -> None:
    import subprocess
    import sys

    command = f"{sys.executable} -c 'from grader.cli.main import main; main()' list | head -1; echo ${{PIPESTATUS[0]}}"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert done.stdout.startswith("Attention") and "Traceback" not in done.stderr
