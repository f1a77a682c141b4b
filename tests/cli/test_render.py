"""What a learner sees, at fixed widths, against the texts in golden/ (KIT_GOLDEN=write makes them anew)."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import attempts
import pytest
from rich.console import Console

from grader.cli.render import print_attempt, print_summary

GOLDEN = Path(__file__).parent / "golden"


def rendered(name: str, width: int, terminal: bool = False, verbose: bool = False) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=terminal, color_system="standard" if terminal else None,
        highlight=False, emoji=False, markup=False, legacy_windows=False,
    )  # fmt: skip
    print_attempt(console, attempts.ALL[name], attempts.EXERCISE, verbose)
    return out.getvalue()


def same_as_golden(text: str, name: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("KIT_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("name", sorted(attempts.ALL))
def test_a_verdict_looks_as_agreed(name: str, width: int) -> None:
    same_as_golden(rendered(name, width), f"{name}-{width}")


def test_everything_is_shown_when_asked_for() -> None:
    same_as_golden(rendered("wrong", 80, verbose=True), "wrong-80-verbose")


def test_the_summary_of_all_looks_as_agreed() -> None:
    out = io.StringIO()
    print_summary(Console(file=out, width=80, highlight=False, markup=False), list(attempts.ALL.values()))
    same_as_golden(out.getvalue(), "summary-80")


@pytest.mark.parametrize("name", sorted(attempts.ALL))
def test_no_line_is_wider_than_the_terminal_and_none_ends_in_spaces(name: str) -> None:
    for width in (30, 50, 100):
        for line in rendered(name, width).splitlines():
            assert len(line) <= width
            assert line == line.rstrip()


def test_colours_come_only_on_a_terminal() -> None:
    assert "\x1b[" not in rendered("wrong", 80)
    assert "\x1b[" in rendered("wrong", 80, terminal=True)


def test_what_a_learner_printed_cannot_drive_the_terminal() -> None:
    text = rendered("nasty", 80, terminal=True)
    ours = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", ours)
    assert "\\x1b[31mred" in ours


def test_the_untouched_stub_takes_one_line_a_part() -> None:
    text = rendered("untouched", 80)
    assert text.count("not started") == 3
    assert "NotImplementedError" not in text
    assert len(text.splitlines()) <= 8


def test_a_file_that_does_not_load_is_said_once() -> None:
    assert rendered("does_not_load", 80).count("invalid syntax") == 1


def test_the_next_command_is_named() -> None:
    assert "kit grade gqa --part 2 --seed 7" in rendered("wrong", 80)
    assert "kit hint gqa --part 2" in rendered("wrong", 80)
    assert "kit list" in rendered("passed", 80)
    assert "kit grade gqa" in rendered("one_part", 80)
