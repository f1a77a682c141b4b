"""What the commands share."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.markdown import Markdown

from grader.cli.common import literal_stars


def laid_out(text: str) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(Markdown(literal_stars(text)))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


@pytest.mark.parametrize(
    "formula",
    [
        "E * (0.375*0.5 + 0.375*0.275) = 1.04",
        "_x_ and H_kv and h // (H // H_kv)",
        "f_i<k and a <b> c",
        "2*3*4",
    ],
)
def test_formulas_are_shown_letter_for_letter(formula: str) -> None:
    assert formula in laid_out(f"Then {formula}.")
    assert formula in laid_out(f"- {formula}")


def test_bold_code_bullets_and_fences_keep_their_meaning() -> None:
    text = laid_out("* **bold** and `a*b*c`\n\n```\nx = a * b_c  # <y>\n```\n")
    assert " • bold and a*b*c" in text
    assert " • Why divide once? 2*3 and *x*" in laid_out("* *Why divide once?* 2*3 and *x*")
    assert "x = a * b_c  # <y>" in text
