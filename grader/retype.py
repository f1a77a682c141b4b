"""Texts for drills, generated from a solution: whole for copying, one symbol blanked, expressions blanked."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass

from grader.model import Exercise
from grader.stubs import FunctionNode, Source, assemble, plain, raise_line


def symbol_drill_text(exercise: Exercise, solution: str, symbol: str) -> str:
    """The solution with one symbol blanked: comments gone, helpers that only this symbol uses gone too.

    Raises:
        ContentError: the solution does not define ``symbol``.
    """
    source = Source(solution, exercise.solution_path.name)
    source.named(symbol)
    rest = {name for name in source.public_code if name != symbol}
    text = f'"""{plain(exercise.title)}: write {symbol}; the rest is there."""'
    drill = assemble(source, text, {symbol}, rest, lambda name: raise_line(exercise, name))
    return without_comments(drill, keep_docstrings=True)


def retype_text(solution: str, symbols: Iterable[str] | None = None) -> str:
    """What a copy drill shows: the solution (or the named symbols and what they need) without its comments."""
    source = Source(solution)
    wanted = set(source.public_code if symbols is None else symbols)
    return without_comments(assemble(source, "", set(), wanted, str), keep_docstrings=False)


def without_comments(text: str, keep_docstrings: bool = True) -> str:
    """``text`` without ``#`` comments and, when asked, without docstrings; never more than two blank lines in a row."""
    lines = text.split("\n")
    drop: set[int] = set()
    if not keep_docstrings:
        lines = _without_docstrings(text).split("\n")
    for token in tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
            if not lines[row - 1]:
                drop.add(row - 1)
    kept: list[str] = []
    for place, line in enumerate(lines):
        if place in drop or (not line.strip() and len(kept) >= 2 and not kept[-1].strip() and not kept[-2].strip()):
            continue
        kept.append(line)
    return "\n".join(kept).strip("\n") + "\n"


@dataclass(frozen=True)
class ClozeSite:
    """An expression that a cloze drill may blank: lines from 1, columns from 0 in characters, end excluded."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


def cloze_sites(text: str, symbol: str) -> tuple[ClozeSite, ...]:
    """The expressions worth blanking in ``symbol``: what is assigned, returned or added, on one line, in order.

    Bare names, constants and ``super().__init__()`` are not worth it.  Sites never overlap.

    Raises:
        ContentError: ``text`` does not define ``symbol``.
    """
    source = Source(text)
    found = []
    for node in ast.walk(source.named(symbol).node):
        if not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return) or node.value is None:
            continue
        value = node.value
        if isinstance(value, ast.Name | ast.Constant) or value.lineno != value.end_lineno:
            continue
        line = source.lines[value.lineno - 1]
        start, end = _characters(line, value.col_offset), _characters(line, value.end_col_offset or 0)
        found.append(ClozeSite(value.lineno, start, value.lineno, end, line[start:end]))
    return tuple(sorted(found, key=lambda site: (site.line, site.column)))


def cloze_text(text: str, sites: Iterable[ClozeSite], filler: str = "...") -> str:
    """``text`` with each site replaced by ``filler``."""
    lines = text.split("\n")
    for site in sorted(sites, key=lambda item: (item.line, item.column), reverse=True):
        line = lines[site.line - 1]
        lines[site.line - 1] = line[: site.column] + filler + line[site.end_column :]
    return "\n".join(lines)


def _without_docstrings(text: str) -> str:
    lines: list[str | None] = list(text.split("\n"))
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | FunctionNode) or ast.get_docstring(node) is None:
            continue
        first = node.body[0]
        only = len(node.body) == 1 and not isinstance(node, ast.Module)
        end = first.end_lineno or first.lineno
        after_it = end + 1 if end < len(lines) and not (lines[end] or "").strip() else end
        for row in range(first.lineno - 1, after_it):
            lines[row] = None
        if only:
            lines[first.lineno - 1] = " " * first.col_offset + "..."
    return "\n".join(line for line in lines if line is not None)


def _characters(line: str, byte_offset: int) -> int:
    """A column in characters from ast's column in UTF-8 bytes."""
    return len(line.encode()[:byte_offset].decode())
