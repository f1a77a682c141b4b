"""The part of a learner's file that a compiler needs: kernels, helpers, imports of triton, plain constants.

Everything else is left out, so compiling a file runs none of it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator

_MODULES = ("triton", "math", "__future__")
_FUNCTIONS = {"int", "float", "bool", "min", "max", "len", "abs", "round", "tuple"}
_JIT = {"jit", "constexpr_function"}
_PLAIN = (
    ast.Constant, ast.Name, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Tuple, ast.List, ast.Dict,
    ast.Attribute, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context, ast.keyword, ast.Call,
)  # fmt: skip


def kernel_module(source: str) -> ast.Module:
    """The kept statements of a file, each at its own line, autotuning and heuristics taken off its kernels.

    Raises:
        SyntaxError: the file is not Python.
    """
    tree = ast.parse(source)
    top = list(_flat(tree.body))
    names = {node.name for node in top if isinstance(node, ast.FunctionDef)}
    inner = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and _jit_decorators(node) and node.name not in names
    ]
    kept: list[ast.stmt] = []
    for node in [*top, *inner]:
        if isinstance(node, ast.Import):
            aliases = [alias for alias in node.names if alias.name.split(".")[0] in _MODULES]
            if aliases:
                kept.append(ast.copy_location(ast.Import(names=aliases), node))
        elif isinstance(node, ast.ImportFrom):
            if not node.level and (node.module or "").split(".")[0] in _MODULES:
                kept.append(node)
        elif isinstance(node, ast.FunctionDef):
            if decorators := _jit_decorators(node):
                node.decorator_list = decorators
                kept.append(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and _is_plain(node):
            kept.append(_guarded(node))
    future = [node for node in kept if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    body = future + [node for node in kept if node not in future]
    return ast.fix_missing_locations(ast.Module(body=body, type_ignores=[]))


class KernelTexts:
    """For each kernel of a file, a text that differs whenever its compiled code could: itself and all it refers to."""

    def __init__(self, source: str) -> None:
        self._whole = hashlib.sha256(source.encode()).hexdigest()
        self._named: dict[str, list[ast.stmt]] = {}
        self._imports: list[ast.stmt] = []
        try:
            kept = kernel_module(source).body
        except SyntaxError:
            return
        for node in kept:
            plain = node.body[0] if isinstance(node, ast.Try) else node
            names = [plain.name] if isinstance(plain, ast.FunctionDef) else _assigned(plain)
            for name in names:
                self._named.setdefault(name, []).append(plain)
            if not names:
                self._imports.append(node)

    def of(self, *roots: str) -> str:
        """The text for these functions together, or one that stands for the whole file when one is not in it."""
        if not all(root in self._named for root in roots):
            return self._whole
        seen: dict[str, None] = {}
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self._named:
                continue
            seen[name] = None
            for node in self._named[name]:
                waiting.extend(part.id for part in ast.walk(node) if isinstance(part, ast.Name))
        statements = [*self._imports, *(node for name in sorted(seen) for node in self._named[name])]
        return "\n".join(ast.unparse(node) for node in statements)


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under an ``if`` or ``try`` included."""
    for node in body:
        if isinstance(node, (ast.If, ast.Try)):
            yield from _flat(node.body)
            yield from _flat(node.orelse)
        else:
            yield node


def _jit_decorators(node: ast.FunctionDef) -> list[ast.expr]:
    """The decorators that make a function a kernel."""
    found = []
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if name in _JIT:
            found.append(decorator)
    return found


def _is_plain(node: ast.Assign | ast.AnnAssign) -> bool:
    """Whether a value can be worked out without running anything of the learner's."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if not all(isinstance(target, ast.Name) for target in targets) or node.value is None:
        return False
    return all(isinstance(part, _PLAIN) and _may_call(part) for part in ast.walk(node.value))


def _may_call(part: ast.AST) -> bool:
    """Whether a call in a constant is one of triton's, math's, or a harmless builtin."""
    if not isinstance(part, ast.Call):
        return True
    if isinstance(part.func, ast.Name):
        return part.func.id in _FUNCTIONS or part.func.id in ("constexpr", "next_power_of_2", "cdiv")
    root = part.func
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id in ("tl", "triton", "math", "language")


def _guarded(node: ast.stmt) -> ast.stmt:
    """A constant that cannot be worked out here is no fault; a kernel that needs it says so."""
    handler = ast.ExceptHandler(type=ast.Name("Exception", ast.Load()), name=None, body=[ast.Pass()])
    return ast.copy_location(ast.Try(body=[node], handlers=[handler], orelse=[], finalbody=[]), node)
