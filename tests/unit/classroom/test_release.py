"""A student kit holds what students may have, and opens one exercise per code."""

from __future__ import annotations

import stat
import zlib
from datetime import date

import msgspec
import pytest

from grader import reveal, seal
from grader.catalogue import Catalogue, read_hints, read_prompt
from grader.classroom import kitfiles
from grader.classroom import release as releases
from grader.classroom.fragments import sealed_code
from grader.classroom.leaks import find_leaks
from grader.classroom.release import ReleaseLeaks, find_codes, make_release, read_codes
from grader.errors import ContentError, RequestError
from grader.judge.pack import load_pack
from grader.judge.recorded import read_tape
from grader.judge.trial import run_own
from grader.model import Outcome
from grader.stubs import stub_text

pytest.importorskip("pyrage")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One release of the miniature course, shared: recording takes a process that imports torch."""
    from tests_course import make_course

    root = make_course(tmp_path_factory.mktemp("content"))
    out = tmp_path_factory.mktemp("release") / "kit"
    catalogue = Catalogue(root)
    return catalogue, make_release(out, catalogue.exercises(), today=date(2026, 9, 1))


@pytest.fixture
def kit_catalogue(made):
    return Catalogue(made[1].folder / "grader" / "content")


def test_the_kit_has_stubs_prompts_and_public_tests_and_no_more(made):
    content = made[1].folder / "grader" / "content"
    names = {path.relative_to(content).as_posix() for path in content.rglob("*") if path.is_file()}
    files = ("exercise.toml", "prompt.md", "hints.md", "public_tests.py", "public.tape", "sealed.age")
    expected = {f"exercises/{slug}/{name}" for slug in ("scale_it", "shift") for name in (*files, f"{slug}.py")}
    assert names == expected | {"release.json"}
    assert (made[1].folder / "README.md").exists() and (made[1].folder / "LICENSE").exists()


def test_the_codes_lie_outside_and_only_their_owner_reads_them(made):
    path = made[1].codes_path
    assert path.name == "kit.codes.json" and path.parent == made[1].folder.parent
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    codes = read_codes(path).codes
    assert set(codes) == {"scale_it", "shift"} and codes["scale_it"] != codes["shift"]
    text = b"".join(file.read_bytes() for file in made[1].folder.rglob("*") if file.is_file())
    assert not any(code.encode() in text for code in codes.values())
    assert find_codes(path.parent) == path


def test_a_code_opens_its_exercise_and_no_other(made, tmp_path):
    catalogue, release = made
    codes = read_codes(release.codes_path).codes
    content = release.folder / "grader" / "content"
    opened = reveal.open_sealed(content, "shift", codes["shift"])
    assert opened.solution == catalogue.exercise("shift").solution_path.read_text()
    assert {"hidden_tests.py", "mistakes.toml", "solution.py", "hints.md", "exercise.toml"} <= set(opened.files)
    with pytest.raises(RequestError, match="not the code of scale_it"):
        reveal.open_sealed(content, "scale_it", codes["shift"])
    with pytest.raises(RequestError, match="no sealed exercise"):
        reveal.open_sealed(content, "moe", codes["shift"])
    with pytest.raises(RequestError, match="not sealed"):
        reveal.open_sealed(catalogue.root, "shift", codes["shift"])
    kept = reveal.keep_opened(opened, tmp_path)
    assert (kept / "solution.py").read_text() == opened.solution


def test_what_was_published_is_what_is_checked(made, tmp_path):
    content = made[1].folder / "grader" / "content"
    manifest = seal.read_manifest(content)
    assert manifest == made[1].manifest and manifest.made == "2026-09-01"
    assert manifest.seals == read_codes(made[1].codes_path).seals
    assert seal.read_manifest(tmp_path) is None
    forged = tmp_path / "content"
    for source in content.rglob("*"):
        target = forged / source.relative_to(content)
        target.mkdir(parents=True) if source.is_dir() else target.write_bytes(source.read_bytes())
    (forged / "exercises" / "shift" / "sealed.age").write_bytes(b"age-encryption.org/v1 forged")
    with pytest.raises(RequestError, match="not the one that was published"):
        reveal.open_sealed(forged, "shift", read_codes(made[1].codes_path).codes["shift"])


def test_hints_keep_the_nudge_and_seal_the_line(kit_catalogue):
    hints = read_hints(kit_catalogue.exercise("shift"))
    assert hints[1][:2] == ("Nudge 1.", "Idea 1.")
    assert "sealed" in hints[1][2] and "# line" not in hints[1][2]


def test_public_tests_pass_the_solution_and_fail_the_stub_without_the_reference(made, kit_catalogue):
    for slug in ("scale_it", "shift"):
        exercise = kit_catalogue.exercise(slug)
        assert not exercise.solution_path.exists()
        pack = load_pack(exercise, ())
        seed = pack.tape.seed
        solution = made[0].exercise(slug).solution_path.read_text()
        assert [end.outcome for end in run_own(pack, solution, pack.tests, seed)] == [Outcome.PASSED] * 2
        stub = (exercise.folder / f"{slug}.py").read_text()
        assert all(end.outcome is not Outcome.PASSED for end in run_own(pack, stub, pack.tests, seed))
        wrong = solution.replace("x * factor", "x * factor * 2").replace("x + 1\n", "x + 2\n")
        assert all(end.outcome is Outcome.FAILED for end in run_own(pack, wrong, pack.tests[:1], seed))
        shapes = solution.replace("return x", "return x[:1]")
        assert all(end.outcome is Outcome.FAILED for end in run_own(pack, shapes, pack.tests[:1], seed))


def test_a_tape_holds_answers_and_nothing_of_the_solution(made):
    tape = read_tape(made[1].folder / "grader" / "content" / "exercises" / "scale_it" / "public.tape")
    assert set(tape.tests) == {"test_first", "test_second"}
    assert b"factor +" not in msgspec.msgpack.encode(tape)


def test_answers_known_by_heart_pass_in_the_kit_and_fail_in_the_class(made, kit_catalogue):
    """Row 44: what the public tests give away is worth nothing on inputs drawn anew."""
    pack = load_pack(kit_catalogue.exercise("scale_it"), ())
    replies = [exchange.reply for name in ("test_first", "test_second") for exchange in pack.tape.tests[name]]
    tensors = [reply.value for reply in replies if type(reply).__name__ == "Returned"]
    known = [f"torch.frombuffer(bytearray({t.data!r}), dtype=torch.float32).view({t.shape})" for t in tensors]
    source = (
        f"import torch\nANSWERS = [{', '.join(known)}]\n"
        "def scale(x, factor=2.0):\n    return ANSWERS[factor == 3.0].clone()\n"
        "class Scaler: ...\n"
    )
    assert [end.outcome for end in run_own(pack, source, pack.tests, pack.tape.seed)] == [Outcome.PASSED] * 2
    real = load_pack(made[0].exercise("scale_it"), ())
    for seed in (pack.tape.seed + 1, 5):
        assert all(end.outcome is Outcome.FAILED for end in run_own(real, source, real.tests, seed))


def test_a_leak_stops_the_release_and_leaves_nothing(made, tmp_path, monkeypatch):
    """Row 41: a solution in `.git` or in a cache."""
    catalogue = made[0]
    monkeypatch.setattr(releases, "public_tests", lambda *arguments: _public())
    line = 'close(submission.scale(x, 3.0), reference.scale(x, 3.0), says="the factor is used")'
    for plant, where in (
        (lambda folder: (folder / ".git").mkdir(), ".git"),
        (lambda folder: (folder / "grader" / "__pycache__").mkdir(), "__pycache__"),
        (lambda folder: (folder / "grader" / "left.txt").write_text(line), "left.txt: holds .*hidden_tests.py"),
        (lambda folder: (folder / "README.md").write_bytes(zlib.compress(line.encode())), "README.md . zlib: holds"),
    ):
        with pytest.raises(ReleaseLeaks, match=where):
            make_release(tmp_path / "kit", catalogue.exercises(), before_check=plant)
        assert list(tmp_path.iterdir()) == []


def _public(text=""):
    from grader.classroom.public import PublicTests

    return {slug: PublicTests(("test_first",), text, b"") for slug in ("scale_it", "shift")}


def test_bad_places_are_refused_before_anything_is_made(made, tmp_path):
    exercises = made[0].exercises()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    for out, codes, message in (
        (tmp_path / "full", None, "not an empty folder"),
        (tmp_path / "kit", tmp_path / "kit" / "codes.json", "must not lie in the kit"),
    ):
        with pytest.raises(RequestError, match=message):
            make_release(out, exercises, codes)
    with pytest.raises(RequestError, match="at least one"):
        make_release(tmp_path / "kit", [])
    (tmp_path / "kit.codes.json").write_text("{}")
    with pytest.raises(RequestError, match="another release"):
        make_release(tmp_path / "kit", exercises)
    kit = Catalogue(made[1].folder / "grader" / "content")
    with pytest.raises(RequestError, match="no solution here"):
        make_release(tmp_path / "again", kit.exercises())


def test_codes_files_are_found_or_asked_for(tmp_path):
    with pytest.raises(RequestError, match=r"no .*codes\.json"):
        find_codes(tmp_path)
    (tmp_path / "a.codes.json").write_text("[]")
    with pytest.raises(RequestError, match="no codes file"):
        read_codes(find_codes(tmp_path))
    (tmp_path / "b.codes.json").write_text("[]")
    with pytest.raises(RequestError, match="several"):
        find_codes(tmp_path)
    with pytest.raises(RequestError, match="does not exist"):
        read_codes(tmp_path / "c.codes.json")


def test_targets_are_not_in_the_kit_and_the_rest_of_exercise_toml_is(made, tmp_path):
    from grader.classroom import kitfiles

    exercise = made[0].exercise("shift")
    path = exercise.folder / "exercise.toml"
    before = path.read_text()
    try:
        cost = '[[cost]]\nname = "c"\npart = 1\nlimit = 1\nunit = "x"\n'
        path.write_text(f'public_tests = [\n  "test_first",\n]\n{before}\n{cost}\n[reveal]\nattempts = 2\n')
        text = kitfiles.exercise_toml(exercise)
    finally:
        path.write_text(before)
    assert "cost" not in text and "public_tests" not in text and "[reveal]" in text and text.count("[[part]]") == 2


def test_a_named_public_test_that_cannot_be_one_is_an_error(tmp_path):
    from tests_course import make_course

    root = make_course(tmp_path)
    path = root / "exercises" / "shift" / "exercise.toml"
    path.write_text('public_tests = ["test_nowhere"]\n' + path.read_text())
    with pytest.raises(ContentError, match="test_nowhere cannot be public: there is no such test"):
        make_release(tmp_path / "kit", [Catalogue(root).exercise("shift")])
    assert not (tmp_path / "kit").exists() and not (tmp_path / "kit.codes.json").exists()


def test_nothing_that_a_kit_shows_holds_what_any_exercise_seals(tmp_path):
    """One statement in common, and an exercise could not be handed to a class."""
    exercises = Catalogue().exercises()
    kitfiles.copy_package(tmp_path / "grader")
    for item in exercises:
        stub = stub_text(item, item.solution_path.read_text(encoding="utf-8"))
        shown = {"py": stub, "md": read_prompt(item), "hints.md": kitfiles.hints(item)}
        for suffix, text in (shown | {"toml": kitfiles.exercise_toml(item)}).items():
            (tmp_path / f"{item.slug}.{suffix}").write_text(text)
    sealed, _ = releases._sealed_texts(exercises)
    assert find_leaks(tmp_path, [text for texts in sealed.values() for text in texts]) == []


def test_lines_of_hidden_tests_that_public_tests_show_are_no_secret():
    hidden = sealed_code("a/hidden_tests.py", f"def test_secret(submission, draws):\n    {CALL}\n    {OTHER}\n")
    public = _public(f"def test_shown(submission, draws):\n    found = [{CALL} for draw in draws]\n")
    solution = sealed_code("solutions/a.py", f"def cost(submission, draw):\n    return {CALL}\n")
    kept = releases._protected({"a": [solution, hidden]}, public)
    assert [list(text.lines.values()) for text in kept] == [[2], [3]]


CALL = "submission.multi_head_cache_bytes(*draw)"
OTHER = "submission.grouped_query_cache_bytes(*draws)"
