"""The public tests of a release: which of an exercise's hidden tests may be shown, and their text.

``public_tests = ["test_..."]`` in exercise.toml names them.  Without it, the first
two of every part are taken that can be played with a recorded reference and whose
text holds no piece of a solution.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from grader.classroom.fragments import Sealed
from grader.classroom.leaks import leaks_in_text
from grader.errors import ContentError, GraderFault
from grader.judge.wishes import Recorded, Wish
from grader.model import Exercise
from grader.stubs import Source, strip_comments

TESTS_PER_PART = 2
_SECONDS_PER_EXERCISE = 600.0


@dataclass(frozen=True)
class PublicTests:
    """What a kit gets of one exercise's tests: the functions by name, their text, the tape as bytes."""

    functions: tuple[str, ...]
    text: str
    tape: bytes


def public_tests(
    exercises: Sequence[Exercise], sealed: Sequence[Sealed], seed: int, per_part: int = TESTS_PER_PART
) -> dict[str, PublicTests]:
    """Choose and record the public tests of each exercise.

    Args:
        exercises: from one content folder.
        sealed: the solutions' fragments; a test that holds one stays hidden.
        seed: of the tests' inputs in the kit; public, so never used for grading a class.
        per_part: how many to take of a part where exercise.toml names none.

    Raises:
        ContentError: a test that exercise.toml names cannot be public, or a part is left without any.
        GraderFault: the recording failed.
    """
    sources = {item.slug: _TestSource(item) for item in exercises}
    wishes = []
    for item in exercises:
        required = _required(item)
        source = sources[item.slug]
        candidates = (
            [] if required else [name for name in source.tests if not leaks_in_text("", source.text([name]), sealed)]
        )
        wishes.append(Wish(item.slug, str(item.folder.parents[1]), seed, candidates, required, per_part))
    found = {}
    for item, recorded in zip(exercises, _record(wishes), strict=True):
        if recorded.error:
            raise ContentError(f"the public tests of {item.slug} cannot be recorded: {recorded.error}")
        for name in _required(item):
            if name in recorded.refused:
                raise ContentError(f"{item.slug}: {name} cannot be public: {recorded.refused[name]}")
        if not recorded.functions:
            reasons = "; ".join(f"{name}: {why}" for name, why in list(recorded.refused.items())[:3])
            raise ContentError(
                f"{item.slug} has no test that can be public ({reasons or 'all hold pieces of the solution'})"
            )
        found[item.slug] = PublicTests(
            tuple(recorded.functions), sources[item.slug].text(recorded.functions), recorded.tape
        )
    return found


class _TestSource:
    """A hidden test file, cut into tests and what they need."""

    def __init__(self, exercise: Exercise) -> None:
        path = exercise.folder / "hidden_tests.py"
        self._source = Source(path.read_text(encoding="utf-8"), f"{exercise.slug}/hidden_tests.py")
        self._title = exercise.title
        self.tests = [
            name for item in self._source.definitions if item.is_code for name in item.names if name.startswith("test_")
        ]

    def text(self, functions: Sequence[str]) -> str:
        """The file with only these tests and the helpers they use, comments left out."""
        wanted = self._closure(functions)
        blocks = [f'"""Public tests of {self._title}. Your instructor grades with more of them, on other inputs."""']
        imports = []
        for item in self._source.definitions:
            segment = self._source.segment(item.first_line, item.last_line)
            if item.is_import:
                if wanted & set(item.names):
                    imports.append(segment)
            elif wanted & set(item.names):
                blocks.append(strip_comments(segment).strip("\n"))
        if imports:
            blocks.insert(1, "\n".join(imports))
        return "\n\n\n".join(blocks) + "\n"

    def _closure(self, functions: Sequence[str]) -> set[str]:
        by_name: Mapping[str, object] = {name: item for item in self._source.definitions for name in item.names}
        wanted: set[str] = set()
        queue = list(functions)
        while queue:
            name = queue.pop()
            if name in wanted or name not in by_name:
                continue
            wanted.add(name)
            queue.extend(self._source.named(name).reads)
        return wanted


def _required(exercise: Exercise) -> list[str]:
    table = tomllib.loads((exercise.folder / "exercise.toml").read_text(encoding="utf-8"))
    names = table.get("public_tests", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ContentError(f"{exercise.slug}/exercise.toml: public_tests must be a list of test names")
    return names


def _record(wishes: Sequence[Wish]) -> list[Recorded]:
    """Record in a process of its own, which is the one that imports torch."""
    with tempfile.TemporaryDirectory(prefix="kit-record-") as folder:
        out = Path(folder) / "recorded"
        try:
            done = subprocess.run(
                [sys.executable, "-m", "grader.judge.recording", str(out)],
                input=msgspec.json.encode(list(wishes)),
                capture_output=True,
                timeout=_SECONDS_PER_EXERCISE * len(wishes),
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        except subprocess.TimeoutExpired as error:
            raise GraderFault("recording the public tests did not come to an end") from error
        if done.returncode != 0 or not out.exists():
            last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise GraderFault("recording the public tests failed", last[:300])
        return msgspec.msgpack.decode(out.read_bytes(), type=list[Recorded])
