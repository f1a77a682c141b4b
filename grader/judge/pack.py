"""Everything the judge knows about one exercise: hidden tests, reference, known mistakes.

Loaded only after the zygote has been forked, so that no host inherits any of it.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from grader.errors import ContentError
from grader.judge.recorded import Tape, played, read_tape
from grader.judge.testing import INJECTED
from grader.judge.wishes import PUBLIC_TAPE, PUBLIC_TESTS
from grader.model import Exercise, Mistake

FIXTURES = ("submission", "reference", "rng", "device")


@dataclass(frozen=True)
class HiddenTest:
    """One hidden test, parameters bound."""

    id: str
    part: int
    function: Callable[..., Any]
    parameters: dict[str, Any] = field(hash=False)
    fixtures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pack:
    """An exercise ready to be judged."""

    exercise: Exercise
    reference: types.ModuleType
    solution: str
    tests: tuple[HiddenTest, ...]
    mistakes: tuple[Mistake, ...]
    tape: Tape | None = None
    """What the reference answered, in a student kit; `solution` is then the stub, and `reference` the stub's module."""

    def reference_of(self, test: HiddenTest) -> Any:
        """What a test gets as `reference`: the solution's module, or the tape that stands for it."""
        return self.reference if self.tape is None else played(self.tape, test.id, self.reference)

    def variant(self, *mistakes: Mistake) -> str | None:
        """The solution with the mistakes in it, or None where their edits overlap or do not apply."""
        text = self.solution
        for mistake in mistakes:
            for edit in mistake.edits:
                if text.count(edit.find) != edit.count:
                    return None
                text = text.replace(edit.find, edit.replace)
        return text


def load_pack(exercise: Exercise, mistakes: tuple[Mistake, ...]) -> Pack:
    """Read an exercise's reference and collect its hidden tests.

    Raises:
        ContentError: the solution or the tests cannot be loaded, or a test has no part.
    """
    if not exercise.solution_path.exists() and (exercise.folder / PUBLIC_TESTS).exists():
        return _public_pack(exercise)
    solution = exercise.solution_path.read_text(encoding="utf-8")
    reference = module_of(solution, f"reference_{exercise.slug}", exercise.solution_path)
    tests = _collect(exercise.folder / "hidden_tests.py")
    unknown = sorted({test.id for test in tests if test.part not in {part.number for part in exercise.parts}})
    if unknown:
        raise ContentError(f"{exercise.slug}: tests of a part that exercise.toml does not list: {', '.join(unknown)}")
    return Pack(exercise, reference, solution, tests, mistakes)


def _public_pack(exercise: Exercise) -> Pack:
    """What a student kit has of an exercise: tests in the open, and a recorded reference."""
    path = exercise.folder / f"{exercise.slug}.py"
    stub = path.read_text(encoding="utf-8")
    tape = read_tape(exercise.folder / PUBLIC_TAPE)
    tests = _collect(exercise.folder / PUBLIC_TESTS)
    return Pack(exercise, module_of(stub, f"reference_{exercise.slug}", path), stub, tests, (), tape)


def module_of(source: str, name: str, path: Path, injected: dict[str, Any] | None = None) -> types.ModuleType:
    """A module made from our own source, registered so that dataclasses and Triton find it, with `injected` in it."""
    module = types.ModuleType(name)
    module.__dict__.update(injected or {}, __file__=str(path))
    sys.modules[name] = module
    linecache.cache[str(path)] = (len(source), None, source.splitlines(keepends=True), str(path))
    try:
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    except Exception as error:
        raise ContentError(f"{path.name} cannot be loaded: {type(error).__name__}: {error}") from error
    return module


class _HiddenModule(pytest.Module):
    """A test module whose globals already hold the injected names."""

    def _getobj(self) -> types.ModuleType:
        name = f"hidden_{self.path.parent.name}"
        module = types.ModuleType(name)
        module.__dict__.update(INJECTED, __file__=str(self.path))
        sys.modules[name] = module
        exec(compile(self.path.read_text(encoding="utf-8"), str(self.path), "exec", dont_inherit=True), module.__dict__)
        return module


class _Collector:
    """The pytest plugin that collects one hidden test file and keeps its items."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.items: list[pytest.Item] = []
        self.errors: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        return _HiddenModule.from_parent(parent, path=module_path) if module_path == self._path else None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(str(report.longrepr))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.items = list(items)

    @pytest.fixture
    def submission(self) -> None:
        """Filled in by the judge."""

    @pytest.fixture
    def reference(self) -> None:
        """Filled in by the judge."""

    @pytest.fixture
    def rng(self) -> None:
        """Filled in by the judge."""

    @pytest.fixture
    def device(self) -> None:
        """Filled in by the judge."""


def _collect(path: Path) -> tuple[HiddenTest, ...]:
    path = path.resolve()
    collector = _Collector(path)
    blocked = (
        "cacheprovider",
        "terminalreporter",
        "junitxml",
        "pastebin",
        "timeout",
        "python",
        "doctest",
        "unittest",
        "faulthandler",
    )
    options = ["--collect-only", "--noconftest", "-c", "/dev/null", "--rootdir", str(path.parent), "--assert=plain"]
    options += [word for name in blocked if name not in ("python", "terminalreporter") for word in ("-p", f"no:{name}")]
    with _plugin_autoload_off(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        pytest.main([*options, "-q", "-s", str(path)], plugins=[collector])
    if collector.errors or not collector.items:
        raise ContentError(
            f"{path}: hidden tests cannot be collected: {' '.join(collector.errors)[-1500:] or 'none found'}"
        )
    return tuple(_hidden_test(item, path) for item in collector.items)


@contextlib.contextmanager
def _plugin_autoload_off() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    patch.delenv("PYTEST_ADDOPTS", raising=False)
    patch.setattr(sys, "dont_write_bytecode", True)
    try:
        yield
    finally:
        patch.undo()


def _hidden_test(item: pytest.Item, path: Path) -> HiddenTest:
    if not isinstance(item, pytest.Function):
        raise ContentError(f"{path}: {item.name} is not a plain function")
    number = getattr(item.function, "kit_part", None)
    if not isinstance(number, int):
        raise ContentError(f"{path}: {item.name} has no @part(n)")
    parameters = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    wanted = [name for name in item.fixturenames if name not in parameters and name in _arguments(item.function)]
    if strangers := [name for name in wanted if name not in FIXTURES]:
        raise ContentError(
            f"{path}: {item.name} asks for {', '.join(strangers)}; a hidden test has {', '.join(FIXTURES)}"
        )
    return HiddenTest(item.name, number, item.function, parameters, tuple(wanted))


def _arguments(function: Callable[..., Any]) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount]
