"""Who handed in what: from a folder of submissions to one file per student and exercise.

An entry of the folder is one student's: a folder, a zip or tar, or a single file.
Exercises are found by file name, decorated as learning platforms decorate them,
and where no name fits by the symbols that a file defines.  Students' files are
never parsed here, only searched: a parser can be brought down by its input.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from grader.classroom.archives import Contents, Limits, Rejected, is_archive, read_entry, shown_name, without_suffix
from grader.errors import RequestError

GRADER_FILES = frozenset({"conftest.py", "hidden_tests.py", "public_tests.py", "sitecustomize.py", "usercustomize.py"})
_DEFINED = re.compile(r"^(?:class|def|async[ \t]+def)[ \t]+([^\W\d]\w*)|^([^\W\d]\w*)[ \t]*(?::[^=\n]*)?=(?!=)", re.M)
_COPY_NUMBER = r"(?:[-_ ]?\(?\d{1,3}\)?)?"


@dataclass(frozen=True)
class Wanted:
    """An exercise to look for: its public symbols, and the bytes of its stub (which nobody has worked on)."""

    slug: str
    symbols: tuple[str, ...]
    stub: bytes = b""


@dataclass(frozen=True)
class Found:
    """One exercise in one submission; ``path`` is relative to the submission and for display."""

    exercise: str
    path: str
    source: bytes

    @property
    def sha256(self) -> str:
        """The hash of the file's bytes, in hexadecimal."""
        return hashlib.sha256(self.source).hexdigest()


@dataclass(frozen=True)
class Submission:
    """What one student handed in.  ``refused`` is the sentence that says why nothing of it was read."""

    student: str
    origin: str
    found: tuple[Found, ...] = ()
    notes: tuple[str, ...] = ()
    refused: str = ""


@dataclass
class Collected:
    """A folder's submissions, and the names of entries that are nobody's."""

    submissions: list[Submission] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def collect(folder: Path, wanted: Sequence[Wanted], limits: Limits | None = None) -> Collected:
    """Read every submission in ``folder``.

    When all its entries are folders named like exercises, each holds the submissions of that exercise.

    Raises:
        RequestError: the folder is missing, is no folder, or has no submission in it.
    """
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise RequestError(f"{folder} {what}", "name the folder that holds one entry per student")
    entries = _entries(folder)
    slugs = {_plain(item.slug): item for item in wanted}
    collected = Collected()
    by_exercise = [entry for entry in entries if entry.is_dir(follow_symlinks=False) and _plain(entry.name) in slugs]
    if by_exercise and len(by_exercise) == sum(entry.is_dir(follow_symlinks=False) for entry in entries):
        for group in by_exercise:
            only = slugs[_plain(group.name)]
            _collect_into(collected, _entries(Path(group.path)), [only], limits, f"{group.name}/")
        collected.ignored += [entry.name for entry in entries if entry not in by_exercise]
    else:
        _collect_into(collected, entries, wanted, limits, "")
    collected.submissions = _one_per_student(collected.submissions)
    if not collected.submissions:
        raise RequestError(
            f"{folder} holds no submission", "an entry is a student's folder, a .py file, or a zip or tar archive"
        )
    return collected


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    entries = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
    return sorted((entry for entry in entries if entry.name != "__MACOSX"), key=lambda entry: entry.name)


def _collect_into(
    collected: Collected,
    entries: Iterable[os.DirEntry[str]],
    wanted: Sequence[Wanted],
    limits: Limits | None,
    prefix: str,
) -> None:
    for entry in entries:
        single = entry.name.casefold().endswith(".py")
        if not (single or is_archive(entry.name) or entry.is_dir(follow_symlinks=False) or entry.is_symlink()):
            collected.ignored.append(prefix + printable(entry.name))
            continue
        student = printable(without_suffix(entry.name) if not entry.is_dir(follow_symlinks=False) else entry.name)
        origin = prefix + printable(entry.name)
        try:
            contents = read_entry(Path(entry.path), limits)
            if single:
                student, found, notes = _single(student, contents, wanted)
            else:
                found, notes = find_exercises(contents, wanted)
            collected.submissions.append(Submission(student, origin, found, notes))
        except Rejected as error:
            collected.submissions.append(Submission(student, origin, refused=error.message))


def find_exercises(contents: Contents, wanted: Sequence[Wanted]) -> tuple[tuple[Found, ...], tuple[str, ...]]:
    """The file of every wanted exercise in ``contents``, and notes on what was passed over.

    A file with exactly the exercise's name comes before a decorated name, a worked-on file before an untouched
    stub, a shallow one before a deep one.
    """
    notes: list[str] = []
    found: dict[str, Found] = {}
    plain_slugs = {_plain(item.slug) for item in wanted}
    named: dict[str, list[str]] = {item.slug: [] for item in wanted}
    unnamed = []
    for path in contents.python:
        slug, _ = _slug_in(_stem(path), plain_slugs)
        match = next((item.slug for item in wanted if _plain(item.slug) == slug), "")
        if match:
            named[match].append(path)
        elif path.rpartition("/")[2].casefold() not in GRADER_FILES:
            unnamed.append(path)
    for item in wanted:
        paths = named[item.slug] or _by_symbols(contents, unnamed, item)
        if not paths:
            continue
        order = sorted(paths, key=lambda path: _preference(path, contents.python[path], item))
        best = order[0]
        found[item.slug] = Found(item.slug, best, contents.python[best])
        worked_on = [path for path in order[1:] if contents.python[path] not in (contents.python[best], item.stub)]
        if worked_on:
            listed = ", ".join(shown_name(path) for path in worked_on[:3])
            notes.append(f"graded {shown_name(best)} for {item.slug}; also there, with other contents: {listed}")
    for path, size_bytes in contents.oversized.items():
        notes.append(f"{shown_name(path)} is too large to be an answer ({size_bytes >> 10:,} KiB) and was not read")
    aside = sorted(path for path in contents.python if path.rpartition("/")[2].casefold() in GRADER_FILES)
    if aside:
        listed = ", ".join(shown_name(path) for path in aside[:5])
        notes.append(f"not used, since the grader has its own: {listed}")
    return tuple(found[item.slug] for item in wanted if item.slug in found), tuple(notes)


def printable(name: str) -> str:
    """A file name as text that can stand in any report: NFC, undecodable bytes and unprintable letters replaced."""
    text = unicodedata.normalize("NFC", name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _single(
    student: str, contents: Contents, wanted: Sequence[Wanted]
) -> tuple[str, tuple[Found, ...], tuple[str, ...]]:
    """A single file: the exercise may be part of its name (``ada_gqa.py``), the rest is the student's."""
    slug, rest = _slug_in(student, {_plain(item.slug) for item in wanted})
    for item in wanted:
        if _plain(item.slug) == slug and rest:
            found = tuple(Found(item.slug, path, source) for path, source in contents.python.items())
            notes = tuple(
                f"{shown_name(path)} is too large to be an answer ({size_bytes >> 10:,} KiB) and was not read"
                for path, size_bytes in contents.oversized.items()
            )
            return rest, found, notes
    found, notes = find_exercises(contents, wanted)
    if not found and len(wanted) == 1:  # only one exercise was asked for, so it can be nothing else
        found = tuple(Found(wanted[0].slug, path, source) for path, source in contents.python.items())
    return student, found, notes


def _one_per_student(submissions: list[Submission]) -> list[Submission]:
    """Merge entries of one student about different exercises; keep apart, by name, what would overwrite something."""
    merged: dict[str, Submission] = {}
    for item in submissions:
        other = merged.get(item.student)
        if other is None:
            merged[item.student] = item
            continue
        exercises = {found.exercise for found in other.found}
        if not item.refused and not other.refused and not exercises & {found.exercise for found in item.found}:
            merged[item.student] = replace(
                other,
                origin=f"{other.origin}, {item.origin}",
                found=other.found + item.found,
                notes=other.notes + item.notes,
            )
        else:
            name = f"{item.student} ({item.origin})"
            merged[name] = replace(
                item, student=name, notes=(*item.notes, f"{other.origin} is also a submission of {item.student}")
            )
    return list(merged.values())


def _preference(path: str, source: bytes, item: Wanted) -> tuple[bool, bool, int, str]:
    return (source == item.stub, _plain(_stem(path)) != _plain(item.slug), path.count("/"), path)


def _by_symbols(contents: Contents, paths: Sequence[str], item: Wanted) -> list[str]:
    """The files that define at least half of the exercise's symbols, those with the most of them."""
    counts = {}
    for path in paths:
        names = {
            first or second for first, second in _DEFINED.findall(contents.python[path].decode("utf-8", "replace"))
        }
        counts[path] = len(names & set(item.symbols))
    best = max(counts.values(), default=0)
    if best == 0 or 2 * best < len(item.symbols):
        return []
    return [path for path, count in counts.items() if count == best]


def _slug_in(stem: str, slugs: set[str]) -> tuple[str, str]:
    """The exercise that a file's stem names and what is left of it: ``Ada_Lovelace_gqa-1`` is gqa of Ada_Lovelace."""
    plain = _plain(stem)
    if plain in slugs:
        return plain, ""
    for slug in sorted(slugs, key=len, reverse=True):
        match = re.fullmatch(rf"(?:(.*)_)?{re.escape(slug)}{_COPY_NUMBER}", plain, re.S)
        if match:
            length = len(match[1] or "")
            return slug, unicodedata.normalize("NFC", stem)[:length].strip("_- ") if length else ""
    return "", ""


def _stem(path: str) -> str:
    return path.rpartition("/")[2][: -len(".py")]


def _plain(name: str) -> str:
    """A name as it is compared: lower case, letter by letter so that lengths stay; dashes and spaces as underscores."""
    lowered = (letter.lower() if len(letter.lower()) == 1 else letter for letter in unicodedata.normalize("NFC", name))
    return re.sub(r"[- ]", "_", "".join(lowered))
