"""Who may import whom, what stays quiet, and what a quick command must not load."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "grader"

RANKS = {
    **dict.fromkeys(("errors", "model"), 0),
    **dict.fromkeys(("paths", "listing", "stubs", "seal", "report", "meter"), 1),
    **dict.fromkeys(("catalogue", "workspace", "retype", "journal", "host"), 2),
    **dict.fromkeys(("judge", "review", "reveal"), 3),
    **dict.fromkeys(("grading", "authoring"), 4),
    **dict.fromkeys(("classroom", "watch"), 5),
    **dict.fromkeys(("cli",), 6),
}
"""An import goes to a lower rank, or stays inside its own package."""

LIBRARIES = {
    "click": {"cli"},
    "rich": {"cli"},
    "jinja2": {"report"},
    "dask": {"classroom"},
    "distributed": {"classroom"},
    "torch": {"meter", "host", "judge"},
    "triton": {"meter", "host", "judge"},
    "numpy": {"meter", "host", "judge"},
    "fsrs": {"review"},
    "watchfiles": {"watch"},
}
"""Which parts may import a library; the others must not need it."""

PROGRAMS = {"host/child.py", "host/zygote.py", "judge/server.py"}
"""Processes of their own: their parent hands them a channel as an argument."""

HEAVY = ("torch", "triton", "jinja2", "numpy", "distributed", "dask")


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "content" not in path.relative_to(PACKAGE).parts)


def unit_of(path: Path) -> str:
    """The rank table's name for a module: ``judge`` for ``grader/judge/server.py``."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """(dotted name, line) of every import, those of names out of ``grader`` spelt out; type-checking ones left out."""
    skipped = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            if node.module == "grader":
                yield from ((f"grader.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield node.module, node.lineno


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_and_libraries_stay_where_they_belong(path: Path) -> None:
    unit = unit_of(path)
    if unit == "__init__":
        return
    assert unit in RANKS, f"{unit} has no rank: add it to CONTRIBUTING.md and here"
    for name, line in imports(ast.parse(path.read_text(encoding="utf-8"))):
        first, _, rest = name.partition(".")
        where = f"{path.relative_to(ROOT)}:{line}"
        if first == "grader":
            other = rest.partition(".")[0]
            assert other == unit or RANKS[other] < RANKS[unit], f"{where} imports grader.{other}"
        elif first in LIBRARIES:
            assert unit in LIBRARIES[first], f"{where} imports {first}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_command_line_prints_exits_or_reads_arguments(path: Path) -> None:
    if unit_of(path) == "cli":
        return
    is_program = str(path.relative_to(PACKAGE)) in PROGRAMS
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        inner
        for node in tree.body
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in guarded:
            continue
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("print", "sys.exit", "exit", "quit"), f"{path.name}:{node.lineno} calls {called}"
        if isinstance(node, ast.Attribute) and not is_program:
            assert ast.unparse(node) != "sys.argv", f"{path.name}:{node.lineno} reads sys.argv"


def test_package_files_stay_empty() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        assert path.read_text() == "", path


def test_content_imports_nothing_of_the_grader() -> None:
    for folder in ("exercises", "kernels", "solutions"):
        for path in (ROOT / folder).rglob("*.py"):
            for name, line in imports(ast.parse(path.read_text(encoding="utf-8"))):
                assert name.partition(".")[0] != "grader", f"{path}:{line}"


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["show", "gqa"], ["grade", "--help"], ["nonsense"]])
def test_quick_commands_load_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    loaded = loaded_by(arguments, tmp_path)
    assert not loaded.intersection(HEAVY)


def test_the_list_loads_neither_rich_nor_the_model(tmp_path: Path) -> None:
    assert not loaded_by(["list"], tmp_path).intersection({"rich", "msgspec", "grader.model"})


def loaded_by(arguments: list[str], folder: Path) -> set[str]:
    """The modules in memory after ``kit`` ran with these arguments."""
    code = (
        "import json, sys\n"
        "from grader.cli.main import run\n"
        f"run({arguments!r})\n"
        "print('\\n' + json.dumps(sorted(sys.modules)))"
    )
    environment = {"PYTHONPATH": str(ROOT), "KIT_WORKSPACE": str(folder / "w"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=folder, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))
