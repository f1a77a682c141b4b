"""Running a learner's own tests against a module (`kit prove`), in the host that loaded the module.

The tests are plain pytest functions: `test_*` at the top of the file, with `assert` and `pytest.raises`, and
`pytest.mark.parametrize` where wanted.  pytest itself is not run, since 80 variants are.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
import random
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from grader.host.wire import bounded

TESTS_NAME = "learner_tests"


def run_tests(source: bytes, filename: str, name: str, module: types.ModuleType, seed: int) -> list[list[str]]:
    """Run every test of a file against a module.

    Args:
        source: the tests.
        filename: for tracebacks.
        name: what `import` calls the module under test.
        module: the module under test.
        seed: of the global random generators, set anew before every test.

    Returns:
        One [id, "passed" or "failed", message] per test, in order.

    Raises:
        Whatever the file raises while it is loaded, and ValueError for a test that asks for fixtures.
    """
    sys.modules[name] = module
    text = source.decode("utf-8-sig")
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    tests = types.ModuleType(TESTS_NAME)
    tests.__file__ = filename
    sys.modules[TESTS_NAME] = tests
    exec(compile(text, filename, "exec", dont_inherit=True), tests.__dict__)
    return [[label, *_outcome(call, filename, seed)] for label, call in _cases(tests)]


def _cases(tests: types.ModuleType) -> Iterator[tuple[str, Callable[[], Any]]]:
    for name, function in list(vars(tests).items()):
        if not name.startswith("test_") or not inspect.isfunction(function):
            continue
        marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"]
        axes = [[(_names(mark.args[0]), value) for value in mark.args[1]] for mark in marks]
        for place, chosen in enumerate(itertools.product(*axes)):
            arguments: dict[str, Any] = {}
            for names, value in chosen:
                arguments.update(zip(names, (value,) if len(names) == 1 else value, strict=True))
            missing = [parameter for parameter in inspect.signature(function).parameters if parameter not in arguments]
            if missing:
                raise ValueError(f"{name} asks for {', '.join(missing)}; tests here have parametrize and no fixtures")
            label = f"{name}[{place}]" if axes else name
            yield label, lambda f=function, a=arguments: f(**a)  # type: ignore[misc]


def _names(argument: str | tuple[str, ...] | list[str]) -> list[str]:
    return [name.strip() for name in argument.split(",")] if isinstance(argument, str) else list(argument)


def _outcome(call: Callable[[], Any], filename: str, seed: int) -> tuple[str, str]:
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == filename]
        where = f"line {lines[-1].lineno}: {(lines[-1].line or '').strip()}" if lines else ""
        return "failed", bounded(f"{type(error).__name__}{f': {error}' if str(error) else ''} ({where})", 400)
    return "passed", ""
