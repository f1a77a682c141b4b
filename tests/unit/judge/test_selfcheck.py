"""The proof of an exercise finds what is wrong with it, under every seed and however many processes work at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.catalogue import Catalogue
from grader.judge.selfcheck import Finding, prove

MISTAKE = """
[[mistake]]
id = "{id}"
title = "Another wrong number"
part = 1
find = "x + 1\\n"
replace = "{replace}\\n"
says = "It does one thing; it should do another."
hint = "Try 2."
seen_in = "made/up#1"
"""


def add_mistake(course: Path, name: str, replace: str) -> None:
    path = course / "exercises" / "shift" / "mistakes.toml"
    path.write_text(path.read_text() + MISTAKE.format(id=name, replace=replace))


def proved(course: Path, seeds: int = 4, jobs: int = 1) -> dict[str, Finding]:
    exercise = Catalogue(course).exercise("shift")
    return {finding.name: finding for finding in prove(exercise, course / "submissions" / "shift", range(seeds), jobs)}


@pytest.fixture
def submissions(course: Path) -> Path:
    folder = course / "submissions" / "shift"
    for kind in ("right", "wrong"):
        (folder / kind).mkdir(parents=True)
    solution = (course / "solutions" / "shift.py").read_text()
    (folder / "right" / "other_way_round.py").write_text(solution.replace("x + 1", "1 + x"))
    (folder / "wrong" / "shift-wrong.py").write_text(solution.replace("x + 1", "x + x + 1"))
    (folder / "wrong" / "none-two-more.py").write_text(solution.replace("x + 1", "x + 3"))
    return folder


@pytest.mark.parametrize("jobs", [1, 2])
def test_good_content_holds(course: Path, submissions: Path, jobs: int) -> None:
    found = proved(course, jobs=jobs)
    assert set(found) == {"passes", "fails", "other_way_round", "shift-wrong", "none-two-more"}
    assert all(finding.holds for finding in found.values())


def test_how_many_processes_changes_nothing(course: Path, submissions: Path) -> None:
    add_mistake(course, "shift-twice", "2 * x + 1")
    (submissions / "right" / "not_right.py").write_text("def shift(x):\n    return x\n")
    alone, together = ({name: finding.holds for name, finding in proved(course, jobs=jobs).items()} for jobs in (1, 3))
    assert alone == together and not all(alone.values())


def test_mistakes_that_are_one_are_not_named(course: Path) -> None:
    add_mistake(course, "shift-twice", "x + x + 1")
    found = proved(course)
    assert not found["shift-twice"].holds
    assert "diagnosed as nothing" in found["shift-twice"].seen


def test_a_mistake_that_shows_under_some_seeds_only_is_found(course: Path) -> None:
    add_mistake(course, "now-and-then", "x + 1 + (x[0, 0] > 0)")
    assert not proved(course, seeds=8)["now-and-then"].holds


def test_mistakes_that_differ_under_some_seeds_only_are_found(course: Path) -> None:
    add_mistake(course, "three", "x + 3")
    add_mistake(course, "three-or-four", "x + 3 + (x[0, 0] > 0)")
    found = proved(course, seeds=8)
    assert not found["three"].holds
    assert "diagnosed as nothing" in found["three"].seen


def test_a_right_answer_that_fails_under_a_later_seed_is_found(course: Path, submissions: Path) -> None:
    solution = (course / "solutions" / "shift.py").read_text()
    (submissions / "right" / "now_and_then.py").write_text(solution.replace("x + 1", "x + 1 + (x[0, 0] > 0)"))
    finding = proved(course, seeds=8, jobs=2)["now_and_then"]
    assert not finding.holds
    assert finding.seen.startswith("seed ")
