"""What counts as a piece of a sealed text, in a form that renaming and reformatting do not change.

A statement's fragment is the dump of its syntax tree with local names numbered in
order of appearance, annotations and docstrings dropped.  A line's fragment is
the line without its white space.  Code finds code, lines find the rest
(comments, Markdown, what no longer parses).
"""

from __future__ import annotations

import ast
import hashlib
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

MIN_NODES = 13
"""Statements with fewer nodes are common property (``x = torch.zeros(n)``) and no fragment."""

MIN_LINE_CHARS = 28
"""Shorter lines, white space not counted, are common property too."""

_COMMON = (ast.Import, ast.ImportFrom, ast.Pass, ast.Raise, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Sealed:
    """One sealed text: where it is from, and its fragments with the line each stands on."""

    name: str
    statements: dict[str, int]
    lines: dict[str, int]


def sealed_code(name: str, text: str, public_names: Collection[str] = ()) -> Sealed:
    """The fragments of a Python text, without what belongs to the top-level names that are public anyway.

    Signatures and public docstrings of the text are public by design (they stand in the stub) and are no fragments.
    """
    tree = ast.parse(text)
    rows = text.split("\n")
    statements: dict[str, int] = {}
    lines: dict[str, int] = {}
    for node in tree.body:
        names = top_level_names(node)
        if names and names <= set(public_names):
            continue
        for statement in _inner_statements(node):
            if (key := statement_key(statement)) is not None:
                statements.setdefault(key, statement.lineno)
            if not _is_docstring(statement) and not isinstance(statement, _COMMON):
                end = getattr(statement, "body", None)
                last = end[0].lineno - 1 if isinstance(end, list) else (statement.end_lineno or statement.lineno)
                for number in range(statement.lineno, max(last, statement.lineno) + 1):
                    _add_line(lines, rows[number - 1], number)
    for number, row in enumerate(rows, start=1):
        if row.lstrip().startswith("#"):
            _add_line(lines, row.lstrip("# "), number)
    return Sealed(name, statements, lines)


def sealed_prose(name: str, text: str) -> Sealed:
    """The fragments of a text that is no Python: its long lines."""
    lines: dict[str, int] = {}
    for number, row in enumerate(text.split("\n"), start=1):
        _add_line(lines, row, number)
    return Sealed(name, {}, lines)


def without(sealed: Sealed, public: Collection[Sealed]) -> Sealed:
    """``sealed`` less everything that ``public`` texts hold."""
    return Sealed(
        sealed.name,
        {key: line for key, line in sealed.statements.items() if not any(key in other.statements for other in public)},
        {key: line for key, line in sealed.lines.items() if not any(key in other.lines for other in public)},
    )


def without_lines_in(sealed: Sealed, text: str) -> Sealed:
    """``sealed`` less the lines that stand in a text which is shown, parts of longer lines included."""
    packed = squeezed(text)
    return Sealed(
        sealed.name, sealed.statements, {key: line for key, line in sealed.lines.items() if key not in packed}
    )


def said_by_several(texts: Iterable[Sealed]) -> Sealed:
    """The statements that two texts or more hold: a way of writing, and nobody's secret."""
    counts = Counter(key for text in texts for key in text.statements)
    return Sealed("common", {key: 0 for key, count in counts.items() if count > 1}, {})


def statement_keys(text: str) -> Iterator[tuple[str, int]]:
    """Every statement of a Python text as (fragment, line); nothing when it does not parse even after dedenting."""
    try:
        tree = ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and (key := statement_key(node)) is not None:
            yield key, node.lineno


def statement_key(node: ast.stmt) -> str | None:
    """The fragment of one statement, or None where it is too small or too common to be anybody's."""
    if isinstance(node, _COMMON) or _is_docstring(node):
        return None
    renamed: dict[str, str] = {}
    parts: list[str] = []
    nodes = _dump(node, renamed, parts)
    if nodes < MIN_NODES:
        return None
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:24]


def squeezed(text: str) -> str:
    """The text without white space."""
    return "".join(text.split())


def top_level_names(node: ast.stmt) -> set[str]:
    """The names a top-level statement binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return set()


def _inner_statements(node: ast.stmt) -> Iterator[ast.stmt]:
    """The statements inside functions; what stands directly in a class or a module is signature or constant."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in inner.body:
                yield from (found for found in ast.walk(statement) if isinstance(found, ast.stmt))


def _dump(node: ast.AST, renamed: dict[str, str], parts: list[str]) -> int:
    """Append the normalised dump of ``node`` and return how many nodes it has; contexts are not counted."""
    if isinstance(node, ast.expr_context):
        return 0
    parts.append(type(node).__name__ + "(")
    count = 1
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_comment", "decorator_list", "kind"):
            continue
        values = value if isinstance(value, list) else [value]
        for item in values:
            if isinstance(item, ast.AST):
                if isinstance(item, ast.stmt) and _is_docstring(item):
                    continue
                count += _dump(item, renamed, parts)
            elif isinstance(item, str) and isinstance(node, ast.Name | ast.arg):
                parts.append(renamed.setdefault(item, f"n{len(renamed)}"))
            else:
                parts.append(repr(item))
            parts.append(",")
    parts.append(")")
    return count


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _add_line(lines: dict[str, int], row: str, number: int) -> None:
    code = row.strip().removesuffix("\\")
    if code.startswith(("import ", "from ", "def ", "class ", "@", "raise ")):
        return
    key = squeezed(code)
    if len(key) >= MIN_LINE_CHARS:
        lines.setdefault(key, number)
