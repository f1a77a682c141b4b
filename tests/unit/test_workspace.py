"""The workspace: where it is, and that no file is ever lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grader.errors import RequestError
from grader.workspace import Workspace, find_root, neighbour_notes, read_submission


def test_the_variable_comes_first(tmp_path: Path) -> None:
    (tmp_path / ".kit").mkdir()
    assert find_root(tmp_path, {"KIT_WORKSPACE": "elsewhere"}) == tmp_path / "elsewhere"


def test_then_the_nearest_folder_with_a_state_folder(tmp_path: Path) -> None:
    (tmp_path / "a" / ".kit").mkdir(parents=True)
    inner = tmp_path / "a" / "b" / "c"
    inner.mkdir(parents=True)
    assert find_root(inner, {}) == tmp_path / "a"


def test_then_workspace_here(tmp_path: Path) -> None:
    (tmp_path / ".kit").write_text("a file is no state folder")
    assert find_root(tmp_path, {}) == tmp_path / "workspace"


def test_writing_new_never_touches_what_is_there(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "w")
    assert workspace.write_new("gqa", "first\n")
    assert not workspace.write_new("gqa", "second\n")
    assert workspace.file("gqa").read_text() == "first\n"


def test_a_dangling_link_counts_as_a_file_that_is_there(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.prepare()
    workspace.file("gqa").symlink_to(tmp_path / "nowhere.py")
    assert not workspace.write_new("gqa", "text")
    assert not (tmp_path / "nowhere.py").exists()


def test_replacing_keeps_every_earlier_version(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write_new("gqa", "0")
    for version in range(1, 5):
        workspace.replace("gqa", str(version))
    assert workspace.file("gqa").read_text() == "4"
    assert [path.read_text() for path in workspace.backups("gqa")] == ["3", "2", "1", "0"]


def test_restoring_backs_up_first_and_can_be_undone(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write_new("gqa", "mine")
    backup = workspace.replace("gqa", "stub")
    assert backup is not None
    replaced = workspace.restore("gqa", backup)
    assert workspace.file("gqa").read_text() == "mine"
    assert replaced is not None and replaced.read_text() == "stub"
    assert workspace.backups("gqa")[0] == replaced


def test_backups_of_another_exercise_are_not_mixed_in(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    for slug in ("moe", "moe-x"):
        workspace.write_new(slug, slug)
        workspace.replace(slug, "")
    assert [path.read_text() for path in workspace.backups("moe")] == ["moe"]


def test_the_files_mode_survives_a_replacement(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write_new("gqa", "mine")
    workspace.file("gqa").chmod(0o600)
    workspace.replace("gqa", "stub")
    assert workspace.file("gqa").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("before", ["mine", None])
def test_preserved_puts_the_file_back_after_any_exception(tmp_path: Path, before: str | None) -> None:
    workspace = Workspace(tmp_path)
    if before is not None:
        workspace.write_new("gqa", before)
    with pytest.raises(KeyboardInterrupt), workspace.preserved("gqa"):
        workspace.file("gqa").write_text("drill")
        raise KeyboardInterrupt
    assert workspace.file("gqa").exists() == (before is not None)
    if before is not None:
        assert workspace.file("gqa").read_text() == before


def test_a_place_that_not_even_root_may_write_is_refused() -> None:
    with pytest.raises(RequestError, match="cannot be written"):
        Workspace(Path("/proc/kit-workspace")).prepare()


def test_a_folder_that_cannot_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="cannot be written") as caught:
        Workspace(tmp_path / "file" / "w").write_new("gqa", "x")
    assert "KIT_WORKSPACE" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"x = 1\ny = '\xff'\n", "not UTF-8 text: byte 0xff in line 2"),
        (b"x = 1\n\0\n", "NUL byte in line 2"),
        (b"#" * ((1 << 20) + 1), "at most 1048576"),
    ],
)
def test_a_file_that_is_no_source_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "gqa.py"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=says):
        read_submission(path)


def test_missing_files_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no file"):
        read_submission(tmp_path / "none.py")
    with pytest.raises(RequestError, match="is a directory"):
        read_submission(tmp_path)
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(RequestError, match="not a regular file"):
        read_submission(tmp_path / "pipe.py")


def test_a_good_file_comes_back_as_bytes(tmp_path: Path) -> None:
    (tmp_path / "gqa.py").write_bytes("\ufeffα = 1\r\n".encode())
    assert read_submission(tmp_path / "gqa.py") == "\ufeffα = 1\r\n".encode()


def test_what_could_seem_to_matter_beside_the_file_is_listed(tmp_path: Path) -> None:
    for name in ("conftest.py", "pytest.ini", "random.py", "helper.py", "notes.txt"):
        (tmp_path / name).write_text("")
    own = tmp_path / "torch.py"
    own.write_text("")
    ignored, own_name, others = neighbour_notes(own)
    assert ignored.startswith("conftest.py and pytest.ini")
    assert own_name.startswith("torch.py shadows a library")
    assert others.startswith("random.py")
    assert not any("helper" in note or "notes.txt" in note for note in (ignored, own_name, others))


def test_nothing_odd_beside_the_file_gives_no_note(tmp_path: Path) -> None:
    (tmp_path / "gqa.py").write_text("")
    assert neighbour_notes(tmp_path / "gqa.py") == ()
