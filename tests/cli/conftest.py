"""`kit` run in this process, with its streams and exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from grader.cli.main import run


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def kit(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run ``kit`` with these arguments."""

    def call(*arguments: object) -> Ran:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return call
