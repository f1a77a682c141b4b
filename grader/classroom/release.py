"""``kit class release``: a student kit in which everything that gives an answer away is sealed."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from grader import seal
from grader.catalogue import read_prompt
from grader.classroom import kitfiles
from grader.classroom.fragments import (
    Sealed,
    said_by_several,
    sealed_code,
    sealed_prose,
    squeezed,
    without,
    without_lines_in,
)
from grader.classroom.identity import kit_version, pack_files, sealed_files
from grader.classroom.leaks import Leak, find_leaks
from grader.classroom.public import TESTS_PER_PART, PublicTests, public_tests
from grader.errors import ContentError, RequestError
from grader.judge.wishes import PUBLIC_TAPE, PUBLIC_TESTS
from grader.model import Exercise
from grader.stubs import Source, stub_text

CODES_SUFFIX = ".codes.json"


class Codes(msgspec.Struct, frozen=True):
    """The instructor's side of a release: the codes, never inside the kit."""

    release: str
    made: str
    codes: dict[str, str]
    seals: dict[str, seal.Seal]


class ReleaseLeaks(ContentError):
    """The finished release still held pieces of what is sealed, so it was thrown away."""

    def __init__(self, leaks: Sequence[Leak]) -> None:
        shown = "\n".join(f"  {leak}" for leak in leaks[:12])
        more = f"\n  and {len(leaks) - 12} more" if len(leaks) > 12 else ""
        super().__init__(
            f"the release would give answers away, so it was not made:\n{shown}{more}",
            "take these out of the content (or of the grader's folder) and release again",
        )
        self.leaks = tuple(leaks)


@dataclass(frozen=True)
class Release:
    """A finished release: the kit's folder, where the codes are, what is public, and remarks."""

    folder: Path
    codes_path: Path
    manifest: seal.Manifest
    notes: tuple[str, ...]


def make_release(
    out: Path,
    exercises: Sequence[Exercise],
    codes_path: Path | None = None,
    per_part: int = TESTS_PER_PART,
    today: date | None = None,
    before_check: Callable[[Path], None] = lambda folder: None,
) -> Release:
    """Make a student kit at ``out`` and put its codes beside it.

    Args:
        out: a folder that does not exist yet, or is empty.
        exercises: what to release, from a checkout with solutions.
        codes_path: where the codes go; ``<out>.codes.json`` by default, and never inside ``out``.
        per_part: public tests per part where an exercise names none.
        today: the date on the release.
        before_check: called with the finished folder before it is searched for leaks.

    Raises:
        RequestError: ``out`` is not empty, or the codes would lie in it.
        ContentError: an exercise cannot be released, or the finished kit would leak (`ReleaseLeaks`).
    """
    out = out.expanduser().absolute()
    codes_path = (codes_path or out.with_name(out.name + CODES_SUFFIX)).expanduser().absolute()
    _refuse_bad_places(out, codes_path, exercises)
    seal.encryption()  # whoever lacks it is told before a minute of work
    made = (today or date.today()).isoformat()
    name = f"{made.replace('-', '')}.{secrets.token_hex(3)}"
    sealed, notes = _sealed_texts(exercises)
    public = public_tests(
        exercises, [text for texts in sealed.values() for text in texts[:1]], _public_seed(), per_part
    )
    codes = {item.slug: seal.new_code() for item in exercises}
    out.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        manifest = _build(building, exercises, codes, public, name, made)
        before_check(building)
        if leaks := find_leaks(building, _protected(sealed, public), list(codes.values())):
            raise ReleaseLeaks(leaks)
        building.chmod(0o755)
        _write_private(codes_path, msgspec.json.format(msgspec.json.encode(Codes(name, made, codes, manifest.seals))))
        if out.exists():
            out.rmdir()
        building.rename(out)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return Release(out, codes_path, manifest, tuple(notes))


def read_codes(path: Path) -> Codes:
    """The codes of a release.

    Raises:
        RequestError: the file is missing or is no codes file.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Codes)
    except FileNotFoundError:
        raise RequestError(f"{path} does not exist", "kit class release OUT writes OUT.codes.json") from None
    except (OSError, msgspec.DecodeError) as error:
        raise RequestError(f"{path} is no codes file: {error}") from error


def find_codes(folder: Path) -> Path:
    """The only codes file in ``folder``.

    Raises:
        RequestError: there is none, or several.
    """
    found = sorted(folder.glob(f"*{CODES_SUFFIX}"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise RequestError(
            "no *.codes.json lies here", "name it with --codes FILE; kit class release OUT writes OUT.codes.json"
        )
    raise RequestError(
        f"several releases lie here: {', '.join(path.name for path in found)}", "say which: --codes FILE"
    )


def _refuse_bad_places(out: Path, codes_path: Path, exercises: Sequence[Exercise]) -> None:
    if not exercises:
        raise RequestError("a release needs at least one exercise", "--exercises gqa,moe, or --all")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RequestError(f"{out} is there already and is not an empty folder", "name a new folder")
    if codes_path == out or out in codes_path.parents:
        raise RequestError("the codes must not lie in the kit they open", "leave out --codes, or name a place outside")
    if codes_path.exists():
        raise RequestError(f"{codes_path} holds the codes of another release", "move it away, or name another OUT")
    for item in exercises:
        if not item.solution_path.exists():
            raise RequestError(
                f"{item.slug} has no solution here, so there is nothing to seal", "release from a checkout"
            )


def _build(
    folder: Path,
    exercises: Sequence[Exercise],
    codes: dict[str, str],
    public: dict[str, PublicTests],
    name: str,
    made: str,
) -> seal.Manifest:
    """Write the whole kit into ``folder``."""
    kitfiles.copy_package(folder / "grader")
    content = folder / "grader" / "content"
    (content / "exercises").mkdir(parents=True)
    seals, files = {}, {}
    for item in exercises:
        target = content / item.folder.parent.name / item.slug
        target.mkdir(parents=True)
        sealed, seals[item.slug] = seal.seal(item.slug, sealed_files(item), codes[item.slug])
        shown = {
            "exercise.toml": kitfiles.exercise_toml(item).encode(),
            "prompt.md": read_prompt(item).encode(),
            "hints.md": kitfiles.hints(item).encode(),
            f"{item.slug}.py": stub_text(item, item.solution_path.read_text(encoding="utf-8")).encode(),
            PUBLIC_TESTS: public[item.slug].text.encode(),
            PUBLIC_TAPE: public[item.slug].tape,
            seal.SEALED_NAME: sealed,
        }
        for file_name, data in shown.items():
            (target / file_name).write_bytes(data)
        files[item.slug] = {file_name: hashlib.sha256(data).hexdigest() for file_name, data in shown.items()}
    functions = {item.slug: list(public[item.slug].functions) for item in exercises}
    manifest = seal.Manifest(name, kit_version(), made, seals, functions, files)
    (content / seal.MANIFEST_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
    kitfiles.write_project(folder, manifest, exercises)
    return manifest


def _protected(sealed: dict[str, list[Sealed]], public: dict[str, PublicTests]) -> list[Sealed]:
    """What the kit must not hold: the solutions, and of tests and mistakes what no public test shows."""
    shown = [sealed_code("", item.text) for item in public.values()]
    protected = []
    for solution, *others in sealed.values():
        protected.append(solution)
        for text in others:
            for item in public.values():
                text = without_lines_in(text, item.text)
            protected.append(without(text, shown))
    return protected


def _idiom(exercises: Sequence[Exercise]) -> Sealed:
    """The statements that hidden tests of several exercises hold, of those beside the released ones too."""
    roots = {item.folder.parents[1] for item in exercises}
    paths = sorted(path for root in roots for path in root.glob("*/*/hidden_tests.py"))
    return said_by_several(sealed_code(path.parent.name, path.read_text(encoding="utf-8")) for path in paths)


def _sealed_texts(exercises: Sequence[Exercise]) -> tuple[dict[str, list[Sealed]], list[str]]:
    """Per exercise the fragments of its solution, tests and mistakes, and remarks on what other exercises show of it.

    Code that one exercise gives its learners may be another's solution (a given attention layer); that is
    content's decision, so it is no leak, but an instructor who releases both should know.
    """
    given_texts = {item.slug: _given_code(item) for item in exercises}
    given = {slug: sealed_code(f"given code of {slug}", text) for slug, text in given_texts.items()}
    shown = list(given.values())
    texts: dict[str, list[Sealed]] = {}
    notes: list[str] = []
    idiom = _idiom(exercises)
    for item in exercises:
        solution = sealed_code(f"solutions/{item.slug}.py", item.solution_path.read_text(encoding="utf-8"))
        own = without(solution, [given[item.slug]])
        for other, code in given.items():
            if other != item.slug and (common := own.statements.keys() & code.statements.keys()):
                notes.append(f"the given code of {other} shows {len(common)} statements of the solution of {item.slug}")
        texts[item.slug] = [without(solution, shown)]
        for name, data in pack_files(item).items():
            if name == "hidden_tests.py" or name == "benchmarks.py":
                texts[item.slug].append(without(sealed_code(f"{item.slug}/{name}", data.decode()), [*shown, idiom]))
            elif name == "mistakes.toml":
                texts[item.slug].append(without(_mistakes_text(item, data), shown))
    for text in given_texts.values():
        texts = {slug: [without_lines_in(one, text) for one in of_slug] for slug, of_slug in texts.items()}
    return texts, notes


def _mistakes_text(exercise: Exercise, data: bytes) -> Sealed:
    """The fragments of mistakes.toml: what it says and the wrong code, but for lines that the stub shows anyway.

    The right code in it is the solution's, and is looked for as that.
    """
    stub = squeezed(stub_text(exercise, exercise.solution_path.read_text(encoding="utf-8")))
    prose = sealed_prose(f"{exercise.slug}/mistakes.toml", "\n".join(_strings(tomllib.loads(data.decode()))))
    return Sealed(prose.name, {}, {line: at for line, at in prose.lines.items() if line not in stub})


def _given_code(exercise: Exercise) -> str:
    """The code that a stub shows whole: what is given, and the helpers it needs."""
    source = Source(exercise.solution_path.read_text(encoding="utf-8"), exercise.solution_path.name)
    asked = set(exercise.symbols)
    whole: set[str] = set()
    queue = list(exercise.given)
    bound = {name for item in source.definitions if not item.is_import for name in item.names}
    while queue:
        name = queue.pop()
        if name in bound and name not in asked and name not in whole:
            whole.add(name)
            queue.extend(source.named(name).reads)
    segments = [
        source.segment(item.first_line, item.last_line)
        for item in source.definitions
        if not item.is_import and whole & set(item.names)
    ]
    return "\n\n".join(segments)


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = [item for name, item in value.items() if name != "find"]
    items = value if isinstance(value, list) else ()
    return [text for item in items for text in _strings(item)]


def _public_seed() -> int:
    return secrets.randbelow(2**31)


def _write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read; it must not exist yet."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
