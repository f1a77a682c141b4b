"""The meters a host can run a call under, by name; each is imported when it first runs."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

from grader.model import INTERPRET_VARIABLE

# Triton asks once, when it is first imported, whether its kernels are to be interpreted.  Whoever imports the meters
# (a zygote, or a judge that runs variants itself) may come to run kernels, so this is the latest place to say so.
os.environ.setdefault(INTERPRET_VARIABLE, "1")

MeteredCall = Callable[[functools.partial[Any], Any], tuple[Any, bytes]]


def _lazily(module: str) -> MeteredCall:
    def run(call: functools.partial[Any], session: Any) -> tuple[Any, bytes]:
        found: MeteredCall = importlib.import_module(module).metered
        return found(call, session)

    return run


ONE_DEVICE = "one_device"

METERS: dict[str, MeteredCall] = {
    ONE_DEVICE: _lazily("grader.meter.one_device"),
    "costs": _lazily("grader.meter.costs"),
    "triton": _lazily("grader.meter.triton_meter"),
}
