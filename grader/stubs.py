"""Stubs, generated from a solution's text.

The text is cut by line and never unparsed, so signatures, docstrings and given code look as the author
wrote them.  What is kept of each top-level statement follows from three sets of names: *asked* names
keep their signature and docstring, *given* names stay whole, and everything else goes, apart from the
imports and constants that the kept text needs.
"""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grader.errors import ContentError

if TYPE_CHECKING:
    from grader.model import Exercise

STRUCTURAL_DECORATORS = frozenset(
    {"staticmethod", "classmethod", "property", "dataclass", "abstractmethod", "overload", "setter", "jit"}
)
"""Decorators that belong to a signature; others (``no_grad``, ``lru_cache``) are how it is done, and go."""

ALWAYS_IMPORTED = ("torch", "triton", "__future__")
"""Modules whose imports a stub keeps even when no signature needs them."""

_WIDTH = 118
_DATA_BASES = frozenset({"NamedTuple", "Enum", "StrEnum", "IntEnum", "TypedDict", "Protocol"})

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Definition:
    """One top-level statement of a solution: what it binds, its text's lines (from 1, inclusive), what it reads."""

    names: tuple[str, ...]
    node: ast.stmt
    first_line: int
    last_line: int
    reads: frozenset[str] = field(repr=False)

    @property
    def is_import(self) -> bool:
        """True for ``import`` and ``from ... import``."""
        return isinstance(self.node, ast.Import | ast.ImportFrom)

    @property
    def is_code(self) -> bool:
        """True for functions and classes."""
        return isinstance(self.node, FunctionNode | ast.ClassDef)


class Source:
    """A solution's text, parsed once.

    Raises:
        ContentError: from the constructor, when the text is no Python.
    """

    def __init__(self, text: str, name: str = "solution") -> None:
        self.text = text.replace("\r\n", "\n")
        self.name = name
        self.lines = self.text.split("\n")
        try:
            self.tree = ast.parse(self.text)
        except (SyntaxError, ValueError) as error:
            raise ContentError(f"{name} is not valid Python: {error}") from error
        self.definitions = tuple(_definition(node) for node in self.tree.body)

    def named(self, name: str) -> Definition:
        """The last top-level statement that binds ``name``.

        Raises:
            ContentError: when nothing does.
        """
        for item in reversed(self.definitions):
            if name in item.names:
                return item
        raise ContentError(f"{self.name} does not define {name}")

    @property
    def public_code(self) -> tuple[str, ...]:
        """The public functions and classes, in order."""
        return tuple(
            name for item in self.definitions if item.is_code for name in item.names if not name.startswith("_")
        )

    def segment(self, first_line: int, last_line: int) -> str:
        """Lines ``first_line`` to ``last_line``, from 1, both included."""
        return "\n".join(self.lines[first_line - 1 : last_line])


def stub_text(exercise: Exercise, solution: str) -> str:
    """The file a learner starts from.

    Raises:
        ContentError: the solution lacks a name that exercise.toml promises, has a public function or class that
            exercise.toml does not mention, or a kept signature that needs a private name.
    """
    source = Source(solution, exercise.solution_path.name)
    asked = set(exercise.symbols)
    given = set(exercise.given)
    for name in (*exercise.symbols, *exercise.given):
        source.named(name)
    for name in source.public_code:
        if name not in asked | given:
            raise ContentError(
                f"{source.name}: {name} is public, but no part asks for it and it is not given",
                f"list {name} in exercise.toml, or call it _{name}",
            )
    return assemble(source, header(exercise), asked, given, lambda name: raise_line(exercise, name))


def header(exercise: Exercise) -> str:
    """The docstring of a stub: what it is, how long, which parts, which commands."""
    parts = "\n".join(
        textwrap.fill(
            f"Part {part.number} ({part.points} points)  {plain(part.title)}: {', '.join(part.symbols)}",
            _WIDTH,
            subsequent_indent="    ",
        )
        for part in exercise.parts
    )
    given = f"\n\nGiven whole: {', '.join(exercise.given)}" if exercise.given else ""
    return (
        f'"""{plain(exercise.title)}\n\n{textwrap.fill(plain(exercise.source), _WIDTH)}\n\n'
        f"{parts}{given}\n\n"
        f"Target: part 1 in {exercise.minutes} minutes, from memory.\n\n"
        f"    kit show {exercise.slug}     the statement\n"
        f"    kit grade {exercise.slug}    the verdict (--part 1 for one part)\n"
        f"    kit hint {exercise.slug}     a nudge\n"
        '"""'
    )


def assemble(
    source: Source,
    header_text: str,
    asked: set[str],
    given: set[str],
    blank: Callable[[str], str],
) -> str:
    """The text with ``asked`` names blanked and ``given`` names whole.

    ``blank`` makes the statement that stands for the body of a qualified name.

    Raises:
        ContentError: a kept signature needs a private function, class or constant.
    """
    kept = _closure(source, asked, given)
    reads = _kept_reads(source, asked, kept)
    blocks: list[str] = [header_text] if header_text else []
    blocks.extend(_imports(source, reads))
    body: list[tuple[bool, str]] = []
    for item in source.definitions:
        if item.is_import or not item.names:
            continue
        if item.is_code and item.names[0] in asked:
            body.append((True, _blanked(source, item.node, item.names[0], blank)))
        elif kept.intersection(item.names):
            body.append((item.is_code, source.segment(item.first_line, item.last_line)))
    text = "\n\n".join(blocks)
    previous_is_code = False
    for place, (is_code, block) in enumerate(body):
        gap = "\n\n\n" if is_code or previous_is_code else ("\n\n" if place == 0 else "\n")
        text = f"{text}{gap}{block}" if text else block
        previous_is_code = is_code
    return text.rstrip("\n") + "\n"


def raise_line(exercise: Exercise, qualified_name: str) -> str:
    """The body of a blanked function: it says which part asks for it."""
    symbol = qualified_name.partition(".")[0]
    parts = [str(part.number) for part in exercise.parts if symbol in part.symbols]
    where = f"part{'s' if len(parts) > 1 else ''} {', '.join(parts)}"
    return f'raise NotImplementedError("{where}: write {qualified_name}")'


def plain(text: str) -> str:
    """Text that is safe inside a triple-quoted string."""
    return text.replace("\\", "/").replace('"""', "'''")


def _definition(node: ast.stmt) -> Definition:
    first = node.lineno
    if isinstance(node, FunctionNode | ast.ClassDef):
        first = min([first, *(item.lineno for item in node.decorator_list)])
    return Definition(_bound_names(node), node, first, node.end_lineno or node.lineno, _names_read(node))


def _bound_names(node: ast.stmt) -> tuple[str, ...]:
    """The names a top-level statement binds."""
    if isinstance(node, FunctionNode | ast.ClassDef):
        return (node.name,)
    if isinstance(node, ast.Import | ast.ImportFrom):
        return tuple(alias.asname or alias.name.partition(".")[0] for alias in node.names)
    return tuple(item.id for item in ast.walk(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store))


def _names_read(*nodes: ast.AST | None) -> frozenset[str]:
    """Every name that the nodes mention, those in quoted annotations too."""
    found: set[str] = set()
    for node in nodes:
        for item in ast.walk(node) if node is not None else ():
            if isinstance(item, ast.Name):
                found.add(item.id)
            elif isinstance(item, ast.arg | ast.AnnAssign | FunctionNode):
                annotation = item.returns if isinstance(item, FunctionNode) else item.annotation
                if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
                    found |= _names_read(ast.parse(annotation.value, mode="eval"))
    return frozenset(found)


def _signature_reads(node: ast.stmt) -> frozenset[str]:
    """The names that the blanked form of a function or class mentions."""
    if isinstance(node, FunctionNode):
        kept = [item for item in node.decorator_list if _decorator_name(item) in STRUCTURAL_DECORATORS]
        bare = ast.FunctionDef(name=node.name, args=node.args, body=[], decorator_list=[], returns=node.returns)
        return _names_read(bare, *kept)
    if isinstance(node, ast.ClassDef):
        reads = _names_read(*node.bases, *node.keywords, *_kept_decorators(node))
        for item in _kept_members(node):
            reads |= _signature_reads(item)
        return reads
    return _names_read(node.annotation if isinstance(node, ast.AnnAssign) and not node.value else node)


def _closure(source: Source, asked: set[str], given: set[str]) -> set[str]:
    """The top-level names that stay whole: the given ones, and what they and the asked signatures need."""
    whole: set[str] = set()
    queue = [(name, False) for name in given]
    for item in source.definitions:
        if item.is_code and item.names[0] in asked:
            queue.extend((name, True) for name in sorted(_signature_reads(item.node)))
    bound = {name for item in source.definitions if not item.is_import for name in item.names}
    while queue:
        name, from_signature = queue.pop()
        if name not in bound or name in asked or name in whole:
            continue
        item = source.named(name)
        if from_signature and name.startswith("_"):
            raise ContentError(
                f"{source.name}: a public signature needs the private name {name}", f"make {name} public"
            )
        whole.update(item.names)
        queue.extend((read, False) for read in sorted(item.reads))
    return whole


def _kept_reads(source: Source, asked: set[str], whole: set[str]) -> set[str]:
    reads: set[str] = set()
    for item in source.definitions:
        if item.is_code and item.names[0] in asked:
            reads |= _signature_reads(item.node)
        elif not item.is_import and whole.intersection(item.names):
            reads |= item.reads
    return reads


def _imports(source: Source, reads: set[str]) -> Iterator[str]:
    """The import blocks the text still needs, grouped as the author grouped them."""
    block: list[str] = []
    last_line = 0
    for item in source.definitions:
        if not isinstance(item.node, ast.Import | ast.ImportFrom):
            continue
        module = item.node.module if isinstance(item.node, ast.ImportFrom) else None
        kept = [
            alias
            for alias, name in zip(item.node.names, item.names, strict=True)
            if name in reads or (module or alias.name).partition(".")[0] in ALWAYS_IMPORTED
        ]
        if not kept:
            continue
        if block and any(not line.strip() for line in source.lines[last_line : item.first_line - 1]):
            yield "\n".join(block)
            block = []
        if len(kept) == len(item.node.names):
            block.append(strip_comments(source.segment(item.first_line, item.last_line)))
        elif isinstance(item.node, ast.ImportFrom):
            block.append(ast.unparse(ast.ImportFrom(module=module, names=kept, level=item.node.level)))
        else:
            block.append(ast.unparse(ast.Import(names=kept)))
        last_line = item.last_line
    if block:
        yield "\n".join(block)


def _decorator_name(node: ast.expr) -> str:
    target = node.func if isinstance(node, ast.Call) else node
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def _kept_decorators(node: FunctionNode | ast.ClassDef) -> list[ast.expr]:
    return [item for item in node.decorator_list if _decorator_name(item) in STRUCTURAL_DECORATORS]


def _is_data_class(node: ast.ClassDef) -> bool:
    """A class whose fields are its signature: their values stay."""
    bases = {_decorator_name(base) for base in node.bases}
    return bool(bases & _DATA_BASES) or any(_decorator_name(item) == "dataclass" for item in node.decorator_list)


def _kept_members(node: ast.ClassDef) -> list[ast.stmt]:
    """The statements of a class body that its stub shows in some form."""
    kept: list[ast.stmt] = []
    for item in node.body:
        if isinstance(item, FunctionNode | ast.ClassDef):
            if not item.name.startswith("_") or (item.name.startswith("__") and item.name.endswith("__")):
                kept.append(item)
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            if not item.target.id.startswith("_"):
                kept.append(item)
        elif isinstance(item, ast.Assign) and _is_data_class(node):
            kept.append(item)
    return kept


def _blanked(source: Source, node: ast.stmt, name: str, blank: Callable[[str], str]) -> str:
    """The stub form of a function or class."""
    if isinstance(node, ast.ClassDef):
        return _blanked_class(source, node, name, blank)
    if not isinstance(node, FunctionNode):
        raise ContentError(f"{source.name}: {name} is asked for, but is neither a function nor a class")
    return "\n".join([*_signature(source, node), *_docstring(source, node), f"{_indent(node)}    {blank(name)}"])


def _blanked_class(source: Source, node: ast.ClassDef, name: str, blank: Callable[[str], str]) -> str:
    """The stub form of a class: its fields, and its public and dunder methods blanked."""
    lines = [*_signature(source, node), *_docstring(source, node)]
    after_code = False
    first = True
    for item in _kept_members(node):
        is_code = isinstance(item, FunctionNode | ast.ClassDef)
        if (first and _docstring(source, node)) or (not first and (is_code or after_code)):
            lines.append("")
        if isinstance(item, FunctionNode | ast.ClassDef):
            lines.append(_blanked(source, item, f"{name}.{item.name}", blank))
        else:
            lines.append(_blanked_field(source, item, keep_value=_is_data_class(node)))
        after_code, first = is_code, False
    if first and not _docstring(source, node):
        lines.append(f"{_indent(node)}    ...")
    return "\n".join(lines)


def _blanked_field(source: Source, node: ast.stmt, keep_value: bool) -> str:
    """A field of a class; its value stays only where it is part of the signature."""
    if isinstance(node, ast.AnnAssign) and node.value is not None and not keep_value:
        return f"{_indent(node)}{ast.unparse(node.target)}: {ast.unparse(node.annotation)}"
    return strip_comments(source.segment(node.lineno, node.end_lineno or node.lineno))


def _indent(node: ast.stmt) -> str:
    return " " * node.col_offset


def _signature(source: Source, node: FunctionNode | ast.ClassDef) -> list[str]:
    """Decorators that matter, then ``def`` or ``class`` up to its colon, without comments."""
    lines = [f"{_indent(node)}@{ast.get_source_segment(source.text, item)}" for item in _kept_decorators(node)]
    text = source.segment(node.lineno, node.end_lineno or node.lineno)
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.OP:
            continue
        if token.string in "([{":
            depth += 1
        elif token.string in ")]}":
            depth -= 1
        elif token.string == ":" and depth == 0:
            row, column = token.end
            cut = text.split("\n")[:row]
            cut[-1] = cut[-1][:column]
            lines.append(strip_comments("\n".join(cut)))
            return lines
    raise ContentError(f"{source.name}: no colon ends the signature of {node.name}")


def _docstring(source: Source, node: FunctionNode | ast.ClassDef) -> list[str]:
    """The docstring as written, at the body's indentation; nothing when there is none."""
    if ast.get_docstring(node, clean=False) is None:
        return []
    segment = ast.get_source_segment(source.text, node.body[0]) or ""
    return [f"{_indent(node)}    {segment}"]


def strip_comments(text: str) -> str:
    """``text`` (a possibly incomplete statement) without comments and without the lines they leave empty."""
    lines = text.split("\n")
    empty: set[int] = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column].rstrip()
                if not lines[row - 1]:
                    empty.add(row - 1)
    except (tokenize.TokenError, IndentationError):
        pass  # A signature cut before its body ends the token stream early; the comments came before.
    return "\n".join(line for place, line in enumerate(lines) if place not in empty)
