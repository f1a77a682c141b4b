"""What is asked of `grader.judge.recording`, and what it answers.  Imports no torch."""

from __future__ import annotations

import msgspec

PUBLIC_TESTS = "public_tests.py"
PUBLIC_TAPE = "public.tape"


class Wish(msgspec.Struct, frozen=True):
    """Which tests of an exercise may be public.

    ``candidates`` are test functions in order of preference, of which ``per_part`` of each part are taken;
    those in ``required`` are all taken.  ``seed`` is the run seed to record under.
    """

    slug: str
    root: str
    seed: int
    candidates: list[str]
    required: list[str] = []
    per_part: int = 2


class Recorded(msgspec.Struct, frozen=True):
    """The functions that can be public, their tape (msgpack, see `recorded.Tape`), and why others cannot.

    ``error`` is set, and the rest empty, when the exercise could not be loaded.
    """

    slug: str
    functions: list[str]
    tape: bytes
    refused: dict[str, str] = {}
    error: str = ""
