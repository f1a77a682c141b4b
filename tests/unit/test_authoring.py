"""The content checks: each fault is found, and good content has none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grader import authoring
from grader.authoring import Finding, read_through, stray_content, write_stub
from grader.catalogue import Catalogue
from grader.errors import ContentError


def faults(course: Path, slug: str = "scale_it") -> list[Finding]:
    return [finding for finding in read_through(Catalogue(course), slug) if not finding.holds]


def test_good_content_has_no_fault(course: Path) -> None:
    for slug in ("scale_it", "shift"):
        findings = read_through(Catalogue(course), slug)
        assert [finding for finding in findings if not finding.holds] == []
        assert len(findings) == 8


def append(text: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(path.read_text() + text)


def swap(find: str, replace: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        text = path.read_text()
        assert find in text
        path.write_text(text.replace(find, replace, 1))

    return change


FOLDER, SOLUTION = "exercises/scale_it/", "solutions/scale_it.py"
TOML, HINTS, PROMPT = FOLDER + "exercise.toml", FOLDER + "hints.md", FOLDER + "prompt.md"
TESTS, MISTAKES, STUB = FOLDER + "hidden_tests.py", FOLDER + "mistakes.toml", FOLDER + "scale_it.py"


@pytest.mark.parametrize(
    ("name", "change", "kind", "says"),
    [
        (TOML, swap("points = 4", "points = 5"), "exercise.toml", "add up to 11"),
        (TOML, swap("stars = 1", "stars = 4"), "exercise.toml", "4 stars"),
        (TOML, swap("stars = 1", "stars = 1\nmistery = 2"), "exercise.toml", "unknown key mistery"),
        (TOML, swap("points = 4", "points = 4\nhelp = 1"), "exercise.toml", "part 1: unknown key help"),
        (TOML, swap("Scaler = 2", "Other = 2"), "exercise.toml", "symbol_minutes names Other"),
        (TOML, swap('symbols = ["scale"]', "symbols = []"), "exercise.toml", "asks for nothing"),
        (TOML, append('\n[[speed]]\nname = "s"\npart = 1\ntarget = 2.0\n'), "files", "no benchmarks.py"),
        (HINTS, lambda path: path.unlink(), "files", "hints.md is missing"),
        (FOLDER + "notes.md", lambda path: path.write_text("x"), "files", "stray file notes.md"),
        (PROMPT, lambda path: path.write_bytes(b"a\r\n"), "files", "Windows line ends"),
        (SOLUTION, swap("import math", "import math\n\nimport requests"), "solution text", "imports requests"),
        (SOLUTION, swap("import math", "import math\n\nfrom grader import model"), "solution text", "imports grader"),
        (SOLUTION, swap(") -> Tensor:\n    \"\"\"Ret", "):\n    \"\"\"Ret"), "solution text", "scale has no return"),
        (SOLUTION, swap(8 * " " + '"""x (B, size) -> (B, size)."""\n', ""), "solution text", "has no docstring"),
        (SOLUTION, swap("x (B, T) -> (B, T).", "x (B, T)."), "stub is fresh", "stale"),
        (STUB, append("# edited by hand\n"), "stub is fresh", "stale"),
        (STUB, lambda path: path.unlink(), "stub is fresh", "there is no stub"),
        (PROMPT, swap("## Worked example", "## Example"), "prompt", "## Worked example is missing"),
        (PROMPT, swap("2 times 3 is 6.", ""), "prompt", "## Worked example is empty"),
        (PROMPT, swap("`Scaler`, ", ""), "prompt", "does not mention Scaler"),
        (HINTS, swap("### Line", "### Answer"), "hints", "must have"),
        (TESTS, swap("@part(1)\n", ""), "hidden tests", "test_first needs exactly one @part"),
        (TESTS, swap("@part(1)", "@part(2)"), "hidden tests", "part 1 has no test"),
        (TESTS, swap("test_second", "test_first"), "hidden tests", "two tests are called test_first"),
        (TESTS, swap("import torch", "import os"), "hidden tests", "imports os"),
        (TESTS, append("    assert x is None\n"), "hidden tests", "has no message"),
        (MISTAKES, swap("x * factor + 0", "x / factor"), "mistakes apply", "occurs 0 times"),
        (MISTAKES, swap('find = "x * factor + 0"', 'find = "x"'), "mistakes apply", "times in the solution, not 1"),
        (MISTAKES, swap("2 * x * factor", "2 * * factor"), "mistakes apply", "is no Python"),
        (MISTAKES, swap("2 * x * factor", "x * factor"), "mistakes apply", "changes nothing"),
        (MISTAKES, swap("part = 1", "part = 3"), "mistakes apply", "there is no part 3"),
        (MISTAKES, swap("scale-it-wrong", "Scale_It"), "mistakes apply", "lower case"),
        (MISTAKES, swap('hint = "Try 2."', 'hint = "Try 2."\nhnit = ""'), "mistakes apply", "unknown key hnit"),
        (MISTAKES, lambda path: path.write_text(""), "mistakes apply", "there is no mistake"),
    ],
)  # fmt: skip
def test_each_fault_is_found_and_named(
    course: Path, name: str, change: Callable[[Path], None], kind: str, says: str
) -> None:
    change(course / name)
    found = faults(course)
    assert any(finding.kind == kind and says in finding.seen for finding in found), found


def test_two_mistakes_that_are_the_same_function_are_found(course: Path) -> None:
    path = course / MISTAKES
    path.write_text(path.read_text() + path.read_text().replace("scale-it-wrong", "again"))
    assert any("again is the same as scale-it-wrong" in finding.seen for finding in faults(course))


def test_a_broken_exercise_file_is_one_finding(course: Path) -> None:
    (course / TOML).write_text("slug = ")
    (finding,) = faults(course)
    assert "not valid TOML" in finding.seen


def test_solutions_without_an_exercise_and_doubled_slugs_are_found(course: Path) -> None:
    assert stray_content(Catalogue(course)) == []
    (course / "solutions" / "lonely.py").write_text("x = 1\n")
    (course / "kernels" / "shift").mkdir(parents=True)
    (course / "kernels" / "shift" / "exercise.toml").write_text("")
    seen = [finding.seen for finding in stray_content(Catalogue(course))]
    assert "solutions/lonely.py belongs to no exercise" in seen
    assert "shift stands in exercises/ and in kernels/" in seen


def test_a_stub_is_written_once(course: Path) -> None:
    exercise = Catalogue(course).exercise("shift")
    assert not write_stub(exercise)
    (exercise.folder / "shift.py").unlink()
    assert write_stub(exercise)
    assert faults(course, "shift") == []


@pytest.mark.parametrize("track", ["objectives", "kernels"])
def test_a_scaffold_lacks_only_what_an_author_must_write(course: Path, track: str) -> None:
    written = authoring.scaffold(course, "fresh_one", "Fresh", track)
    assert all(path.exists() for path in written)
    catalogue = Catalogue(course)
    write_stub(catalogue.exercise("fresh_one"))
    assert {finding.kind for finding in faults(course, "fresh_one")} == {"prompt", "hints"}


@pytest.mark.parametrize(("slug", "says"), [("No-Slug", "is no slug"), ("shift", "exists already")])
def test_a_scaffold_refuses_bad_and_taken_slugs(course: Path, slug: str, says: str) -> None:
    with pytest.raises(ContentError, match=says):
        authoring.scaffold(course, slug, "T", "objectives")
