"""Every exercise is found in every way that students hand things in, and nobody is lost or merged by accident."""

from __future__ import annotations

import zipfile

import pytest

from grader.classroom.submissions import Wanted, collect
from grader.errors import RequestError

STUB = b"class GroupedQueryAttention: raise NotImplementedError\n"
GQA = Wanted("gqa", ("GroupedQueryAttention", "kv_cache_reduction_factor", "mean_pool_kv_heads"), STUB)
MOE = Wanted("moe", ("TopKRouter", "MoELayer"))
WINDOW = Wanted("sliding_window", ("sliding_window_mask",))
MAMBA = Wanted("mamba", ("MambaBlock",))
MAMBA2 = Wanted("mamba2", ("Mamba2Block",))
ALL = (GQA, MOE, WINDOW, MAMBA, MAMBA2)
ANSWER = b"class GroupedQueryAttention: pass\ndef kv_cache_reduction_factor(a, b): return a / b\n"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "submissions"
    path.mkdir()
    return path


def put(folder, name, data=ANSWER):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def found(folder, wanted=ALL):
    return {
        item.student: {one.exercise: one.path for one in item.found} for item in collect(folder, wanted).submissions
    }


def test_folders_single_files_and_archives(folder):
    put(folder, "ada/gqa.py")
    put(folder, "ada/deep/er/moe.py")
    put(folder, "Grace Hopper_gqa.py")
    put(folder, "Grace Hopper_moe.py", b"x = 1")
    put(folder, "山田 太郎/gqa.py")
    with zipfile.ZipFile(folder / "édouard.zip", "w") as archive:
        archive.writestr("hw/gqa.py", ANSWER)
    assert found(folder) == {
        "Grace Hopper": {"gqa": "Grace Hopper_gqa.py", "moe": "Grace Hopper_moe.py"},
        "ada": {"gqa": "gqa.py", "moe": "deep/er/moe.py"},
        "édouard": {"gqa": "hw/gqa.py"},
        "山田 太郎": {"gqa": "gqa.py"},
    }


@pytest.mark.parametrize(
    ("name", "student", "exercise"),
    [
        ("smithjohn_12345_67890_gqa.py", "smithjohn_12345_67890", "gqa"),
        ("smithjohn_gqa-1.py", "smithjohn", "gqa"),
        ("smithjohn_gqa (2).py", "smithjohn", "gqa"),
        ("smithjohn-GQA.py", "smithjohn", "gqa"),
        ("smithjohn_sliding-window.py", "smithjohn", "sliding_window"),
        ("smithjohn_mamba2.py", "smithjohn", "mamba2"),
        ("smithjohn_mamba.py", "smithjohn", "mamba"),
        ("İpek_gqa.py", "İpek", "gqa"),
    ],
)
def test_names_as_learning_platforms_make_them(folder, name, student, exercise):
    put(folder, name, b"x = 1\n")
    assert found(folder) == {student: {exercise: name}}


def test_an_answer_under_another_name_is_found_by_its_symbols(folder):
    put(folder, "ada/homework.py", ANSWER + b"\nclass TopKRouter: pass\nMoELayer = TopKRouter\n")
    put(folder, "ada/helpers.py", b"def something(): pass\n")
    assert found(folder) == {"ada": {"gqa": "homework.py", "moe": "homework.py"}}


def test_a_name_in_a_string_or_a_call_is_no_definition(folder):
    put(folder, "ada/notes.py", b"print('class TopKRouter')\nTopKRouter()\n  class MoELayer: pass\nMoELayer == 2\n")
    assert found(folder) == {"ada": {}}


def test_a_worked_on_file_comes_before_a_stub_and_a_shallow_one_before_a_deep_one(folder):
    put(folder, "ada/exercises/gqa.py", STUB)
    put(folder, "ada/zz/workspace/mine/gqa.py")
    put(folder, "bob/gqa.py")
    put(folder, "bob/old/gqa.py", b"old")
    assert found(folder) == {"ada": {"gqa": "zz/workspace/mine/gqa.py"}, "bob": {"gqa": "gqa.py"}}
    notes = {item.student: item.notes for item in collect(folder, ALL).submissions}
    assert notes["ada"] == ()
    assert "'old/gqa.py'" in notes["bob"][0]


def test_an_untouched_stub_alone_is_what_was_handed_in(folder):
    put(folder, "ada/gqa.py", STUB)
    assert found(folder) == {"ada": {"gqa": "gqa.py"}}


def test_a_refused_archive_does_not_stop_the_class(folder):
    (folder / "eve.zip").write_bytes(b"not a zip")
    (folder / "mallory").symlink_to("/etc")
    put(folder, "ada/gqa.py")
    by_student = {item.student: item for item in collect(folder, ALL).submissions}
    assert set(by_student) == {"ada", "eve", "mallory"}
    assert "damaged" in by_student["eve"].refused
    assert "link" in by_student["mallory"].refused
    assert not by_student["eve"].found


def test_shipped_test_files_are_noted_and_not_used(folder):
    put(folder, "ada/gqa.py")
    put(folder, "ada/conftest.py", b"import os; os._exit(0)")
    put(folder, "ada/exercises/gqa/public_tests.py", ANSWER)
    (item,) = collect(folder, ALL).submissions
    assert item.found[0].path == "gqa.py"
    assert "conftest.py" in item.notes[0] and "public_tests.py" in item.notes[0]


def test_two_entries_of_one_student_about_one_exercise_stay_apart(folder):
    put(folder, "ada/gqa.py")
    with zipfile.ZipFile(folder / "ada.zip", "w") as archive:
        archive.writestr("gqa.py", b"other")
    assert set(found(folder)) == {"ada", "ada (ada.zip)"}


def test_folders_by_exercise(folder):
    put(folder, "gqa/ada.py")
    put(folder, "gqa/bob/work.py")
    put(folder, "moe/ada.py", b"class TopKRouter: pass\nclass MoELayer: pass\n")
    assert found(folder) == {"ada": {"gqa": "ada.py", "moe": "ada.py"}, "bob": {"gqa": "work.py"}}


def test_an_empty_and_a_nameless_file_are_not_lost(folder):
    put(folder, "ada_gqa.py", b"")
    put(folder, "bob.py", b"")
    assert found(folder, [GQA]) == {"ada": {"gqa": "ada_gqa.py"}, "bob": {"gqa": "bob.py"}}


def test_what_is_nobodys_is_listed(folder):
    put(folder, "ada/gqa.py")
    put(folder, "submission_metadata.yml", b"")
    put(folder, ".DS_Store", b"")
    assert collect(folder, ALL).ignored == ["submission_metadata.yml"]


def test_a_name_that_is_no_text_becomes_text(folder):
    import os

    os.mkdir(os.fsencode(folder) + b"/ad\xffa\x1b[31m")
    put(folder, "bob/gqa.py")
    names = {item.student for item in collect(folder, ALL).submissions}
    assert names == {"ad\N{REPLACEMENT CHARACTER}a\N{REPLACEMENT CHARACTER}[31m", "bob"}


def test_no_folder_and_no_submission_are_wrong_requests(folder):
    with pytest.raises(RequestError, match="no submission"):
        collect(folder, ALL)
    with pytest.raises(RequestError, match="does not exist"):
        collect(folder / "nowhere", ALL)
    with pytest.raises(RequestError, match="not a folder"):
        collect(put(folder, "file.txt", b""), ALL)


def test_the_hash_is_of_the_bytes(folder):
    put(folder, "ada/gqa.py")
    put(folder, "bob/gqa.py")
    put(folder, "eve/gqa.py", ANSWER + b" ")
    hashes = [item.found[0].sha256 for item in collect(folder, ALL).submissions]
    assert hashes[0] == hashes[1] != hashes[2]
