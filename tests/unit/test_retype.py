"""Drill texts: whole, one symbol blanked, expressions blanked."""

from __future__ import annotations

import ast
from pathlib import Path

from grader.catalogue import Catalogue
from grader.retype import cloze_sites, cloze_text, retype_text, symbol_drill_text, without_comments


def test_a_retype_text_runs_and_has_no_comment_or_docstring(course: Path) -> None:
    text = retype_text(Catalogue(course).exercise("scale_it").solution_path.read_text())
    tree = ast.parse(text)
    assert "#" not in text and '"""' not in text
    assert [node.name for node in tree.body if hasattr(node, "name")] == ["unit", "_ones", "scale", "Scaler"]
    assert "_SECRET = math.pi" in text and "return x * factor + 0 * _SECRET" in text


def test_a_retype_text_of_one_symbol_brings_only_what_it_needs(course: Path) -> None:
    text = retype_text(Catalogue(course).exercise("scale_it").solution_path.read_text(), ["Scaler"])
    assert "class Scaler" in text and "def scale" not in text and "_SECRET" not in text


def test_a_symbol_drill_blanks_that_symbol_and_its_private_helpers_only(course: Path) -> None:
    exercise = Catalogue(course).exercise("scale_it")
    text = symbol_drill_text(exercise, exercise.solution_path.read_text(), "scale")
    assert "x * factor" not in text and "_SECRET" not in text and "write scale" in text
    assert "return x * self.weight" in text and "return _ones(n)" in text
    ast.parse(text)


def test_comments_go_and_hashes_in_strings_stay() -> None:
    text = 'x = "# no comment"  # one\n# two\n\n\n\n\ny = 1\n'
    assert without_comments(text) == 'x = "# no comment"\n\n\ny = 1\n'


def test_a_function_that_was_only_a_docstring_stays_valid() -> None:
    ast.parse(without_comments('def f():\n    """Only this."""\n', keep_docstrings=False))


def test_cloze_sites_are_the_expressions_and_replacing_them_back_gives_the_text() -> None:
    text = "def f(α, b):\n    c = α + b\n    d = c\n    c += len('αα') * 2\n    return c / 2\n"
    sites = cloze_sites(text, "f")
    assert [site.text for site in sites] == ["α + b", "len('αα') * 2", "c / 2"]
    blanked = cloze_text(text, sites, "____")
    assert blanked == "def f(α, b):\n    c = ____\n    d = c\n    c += ____\n    return ____\n"
