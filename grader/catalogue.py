"""The exercises on disk: read, checked, and found by slug or symbol."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from grader import paths
from grader.errors import ContentError, RequestError
from grader.listing import TRACKS, Headline, headlines
from grader.model import CostTarget, Edit, Exercise, GrowthTarget, Mistake, Part, SpeedTarget

HINT_LEVELS = ("Nudge", "Idea", "Line")
"""The headings of one part's hints, mildest first."""

EXERCISE_KEYS = frozenset(
    {
        *("slug", "title", "track", "stars", "minutes", "source", "timeout_seconds", "given", "public_tests"),
        *("part", "cost", "speed", "growth", "symbol_minutes", "reveal", "roofline"),
    }
)
PART_KEYS = frozenset({"number", "title", "points", "symbols"})
MISTAKE_KEYS = frozenset({"id", "title", "part", "find", "replace", "count", "also", "says", "hint", "seen_in", "kind"})


@dataclass(frozen=True)
class Found:
    """What a NAME on the command line means.

    ``symbol`` is set when the name was a symbol; ``part`` is then its first part, and ``others`` the
    slugs of further exercises that ask for the same symbol.
    """

    exercise: Exercise
    symbol: str | None = None
    part: int | None = None
    others: tuple[str, ...] = ()


class Catalogue:
    """All exercises under one content folder; each ``exercise.toml`` is read once, when it is needed."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else paths.content_root()
        self._read: dict[str, Exercise] = {}

    @cached_property
    def folders(self) -> dict[str, Path]:
        """Slug to folder."""
        return paths.exercise_folders(self.root)

    @property
    def slugs(self) -> tuple[str, ...]:
        """Every slug, in the order of the list."""
        return tuple(item.slug for item in self.headlines())

    def headlines(self) -> list[Headline]:
        """Every exercise's headline, in the order of the list."""
        return headlines(self.folders)

    def exercise(self, slug: str) -> Exercise:
        """The exercise with exactly this slug.

        Raises:
            RequestError: there is none.
            ContentError: its exercise.toml breaks the format.
        """
        if slug not in self.folders:
            raise RequestError(f"there is no exercise {slug!r}", self._nearest(slug))
        if slug not in self._read:
            folder = self.folders[slug]
            self._read[slug] = read_exercise(folder, paths.solution_path(self.root, folder))
        return self._read[slug]

    def exercises(self) -> list[Exercise]:
        """Every exercise, in the order of the list."""
        return [self.exercise(slug) for slug in self.slugs]

    def find(self, name: str) -> Found:
        """The exercise that a slug or a symbol names; case, ``-`` for ``_`` and ``.py`` are forgiven.

        A symbol that several exercises ask for means the one that asks for it earliest (first part, then first
        symbol): the others ask for it as a step on the way.  They are listed in the answer.

        Raises:
            RequestError: nothing has this name; the hint lists the nearest ones.
        """
        wanted = name.strip().removesuffix(".py").replace("-", "_")
        slug = self._same_but_case(wanted, self.folders)
        if slug is not None:
            return Found(self.exercise(slug))
        symbols = self._symbols()
        symbol = self._same_but_case(wanted, symbols)
        if symbol is None:
            raise RequestError(f"there is no exercise or symbol {name!r}", self._nearest(wanted, Path(wanted).name))
        places = symbols[symbol]
        slug, part = places[0]
        others = tuple(other for other, _ in places[1:] if other != slug)
        return Found(self.exercise(slug), symbol, part, tuple(dict.fromkeys(others)))

    def _symbols(self) -> dict[str, list[tuple[str, int]]]:
        """Symbol to (slug, part), the exercise that asks for it earliest first."""
        ranked: dict[str, list[tuple[int, int, int, str]]] = {}
        for place, slug in enumerate(self.slugs):
            try:
                exercise = self.exercise(slug)
            except ContentError:
                continue  # A broken exercise must not keep the others from being found.
            for part in exercise.parts:
                for index, symbol in enumerate(part.symbols):
                    ranked.setdefault(symbol, []).append((part.number, index, place, exercise.slug))
        return {symbol: [(slug, part) for part, _, _, slug in sorted(rows)] for symbol, rows in ranked.items()}

    @staticmethod
    def _same_but_case(name: str, names: Mapping[str, object]) -> str | None:
        """``name`` itself, or the only entry that differs from it in case alone."""
        if name in names:
            return name
        same = [item for item in names if item.lower() == name.lower()]
        return same[0] if len(same) == 1 else None

    def _nearest(self, name: str, file_name: str = "") -> str:
        if file_name in self.folders:
            return f"a NAME is no path: {file_name} is the exercise, and --file names a file outside the workspace"
        candidates = {item.lower(): item for item in (*self._symbols(), *self.folders)}
        close = difflib.get_close_matches(name.lower(), candidates, n=3, cutoff=0.5)
        inside = [item for item in candidates if len(name) >= 3 and name.lower() in item]
        nearest = [candidates[item] for item in dict.fromkeys([*inside[:3], *close])][:4]
        return f"nearest: {', '.join(nearest)}" if nearest else "kit list shows them all"


def read_exercise(folder: Path, solution_path: Path) -> Exercise:
    """The exercise in ``folder``.

    Raises:
        ContentError: exercise.toml is missing, is no TOML, or lacks or misstates a key.
    """
    table = _Table(_read_toml(folder / "exercise.toml"), f"{folder.name}/exercise.toml")
    parts = tuple(
        Part(item.integer("number"), item.text("title"), item.integer("points"), item.texts("symbols"))
        for item in table.tables("part")
    )
    exercise = Exercise(
        slug=table.text("slug"),
        title=table.text("title"),
        track=table.text("track"),
        stars=table.integer("stars"),
        minutes=table.integer("minutes"),
        source=table.text("source"),
        parts=parts,
        given=table.texts("given", default=()),
        folder=folder,
        solution_path=solution_path,
        timeout_seconds=table.number("timeout_seconds", default=5.0),
        reveal_after_attempts=table.table("reveal").integer("attempts", default=3),
        reveal_after_minutes=table.table("reveal").integer("minutes", default=20),
        costs=tuple(_cost(item) for item in table.tables("cost")),
        speeds=tuple(_speed(item) for item in table.tables("speed")),
        growths=tuple(_growth(item) for item in table.tables("growth")),
        symbols_minutes={key: int(value) for key, value in table.table("symbol_minutes").values.items()},
    )
    if exercise.slug != folder.name:
        raise ContentError(f"{table.name}: slug is {exercise.slug!r}, but the folder is {folder.name!r}")
    if exercise.track not in TRACKS:
        raise ContentError(f"{table.name}: track is {exercise.track!r}, not one of {', '.join(TRACKS)}")
    if [part.number for part in parts] != list(range(1, len(parts) + 1)) or not parts:
        raise ContentError(f"{table.name}: parts must be numbered 1, 2, ... in order")
    targets: tuple[CostTarget | SpeedTarget | GrowthTarget, ...] = (
        *exercise.costs,
        *exercise.speeds,
        *exercise.growths,
    )
    for target in targets:
        if not 1 <= target.part <= len(parts):
            raise ContentError(f"{table.name}: target {target.name!r} is of part {target.part}, which does not exist")
    return exercise


def read_mistakes(exercise: Exercise) -> tuple[Mistake, ...]:
    """The known mistakes of an exercise, in the order of its file; none when it has no ``mistakes.toml``.

    Raises:
        ContentError: the file is no TOML, lacks a key, or has an id twice.
    """
    path = exercise.folder / "mistakes.toml"
    if not path.exists():
        return ()
    name = f"{exercise.slug}/mistakes.toml"
    found = tuple(_mistake(item) for item in _Table(_read_toml(path), name).tables("mistake"))
    ids = [mistake.id for mistake in found]
    for mistake_id in ids:
        if ids.count(mistake_id) > 1:
            raise ContentError(f"{name}: mistake {mistake_id!r} stands there twice")
    return found


def read_prompt(exercise: Exercise) -> str:
    """The statement, as Markdown.

    Raises:
        ContentError: the file is missing or not UTF-8.
    """
    return _read_text(exercise.folder / "prompt.md")


def read_hints(exercise: Exercise) -> dict[int, tuple[str, ...]]:
    """Part number to its hints, from the nudge to the line of code.

    Raises:
        ContentError: hints.md is missing, or a part's headings are not Nudge, Idea, Line with text under each.
    """
    name = f"{exercise.slug}/hints.md"
    text = _read_text(exercise.folder / "hints.md")
    hints: dict[int, tuple[str, ...]] = {}
    for number, body in _sections(text, r"## Part (\d+)\b.*"):
        levels = _sections(body, r"### (\w+)\s*")
        if tuple(heading for heading, _ in levels) != HINT_LEVELS:
            raise ContentError(f"{name}: part {number} must have ### {', ### '.join(HINT_LEVELS)}")
        if not all(hint for _, hint in levels):
            raise ContentError(f"{name}: part {number} has an empty hint")
        hints[int(number)] = tuple(hint for _, hint in levels)
    missing = [part.number for part in exercise.parts if part.number not in hints]
    if missing or len(hints) != len(exercise.parts):
        raise ContentError(f"{name}: its parts are {sorted(hints)}, the exercise has {len(exercise.parts)}")
    return hints


def _sections(text: str, heading: str) -> list[tuple[str, str]]:
    """(first group of the heading, text below it) for each line that ``heading`` matches, outside code fences."""
    found: list[tuple[str, list[str]]] = []
    fenced = False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        match = None if fenced else re.fullmatch(heading, line)
        if match:
            found.append((match[1], []))
        elif found:
            found[-1][1].append(line)
    return [(title, "\n".join(lines).strip()) for title, lines in found]


def _mistake(item: _Table) -> Mistake:
    first = Edit(item.text("find"), item.text("replace", empty=True), item.integer("count", default=1))
    more = (
        Edit(edit.text("find"), edit.text("replace", empty=True), edit.integer("count", default=1))
        for edit in item.tables("also")
    )
    kind = item.text("kind", default="wrong")
    if kind not in ("wrong", "costly"):
        raise ContentError(f"{item.name}: kind is {kind!r}, not wrong or costly")
    return Mistake(
        id=item.text("id"),
        title=item.text("title"),
        part=item.integer("part"),
        edits=(first, *more),
        says=item.text("says"),
        hint=item.text("hint"),
        seen_in=item.text("seen_in", default=""),
        kind=kind,
    )


def _cost(item: _Table) -> CostTarget:
    required = item.values.get("required", True)
    return CostTarget(
        item.text("name"),
        item.integer("part"),
        item.number("limit"),
        item.text("unit"),
        bool(required),
        item.text("cause", default=""),
        item.number("floor", default=0.0),
    )


def _speed(item: _Table) -> SpeedTarget:
    return SpeedTarget(
        item.text("name"),
        item.integer("part"),
        item.number("target"),
        item.text("cause", default=""),
        item.text("device", default=""),
        item.number("moved_bytes", default=0.0),
        item.number("flops", default=0.0),
    )


def _growth(item: _Table) -> GrowthTarget:
    return GrowthTarget(
        item.text("name"),
        item.integer("part"),
        item.number("limit"),
        bool(item.values.get("relative", False)),
        item.text("cause", default=""),
    )


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ContentError(f"{path} cannot be read: {error}") from error


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ContentError(f"{path} is not valid TOML: {error}") from error


class _Table:
    """A TOML table whose getters name the file and key when a value is missing or of the wrong type."""

    def __init__(self, values: Mapping[str, Any], name: str) -> None:
        self.values = values
        self.name = name

    def text(self, key: str, default: str | None = None, empty: bool = False) -> str:
        value: str = self._get(key, str, "text", default)
        if not value and not empty and value != default:
            raise ContentError(f"{self.name}: {key} is empty")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        value: int = self._get(key, int, "a whole number", default)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        return float(self._get(key, (int, float), "a number", default))

    def texts(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        value = self._get(key, list, "a list of names", None if default is None else list(default))
        if not all(isinstance(item, str) for item in value):
            raise ContentError(f"{self.name}: {key} must be a list of names")
        return tuple(value)

    def table(self, key: str) -> _Table:
        """The sub-table, empty when it is absent."""
        return _Table(self._get(key, dict, "a table", {}), f"{self.name} [{key}]")

    def tables(self, key: str) -> list[_Table]:
        """The array of tables, empty when it is absent; each is named by its id, name or number."""
        rows = self._get(key, list, "an array of tables", [])
        found = []
        for place, row in enumerate(rows, start=1):
            if not isinstance(row, dict):
                raise ContentError(f"{self.name}: {key} must be an array of tables")
            found.append(_Table(row, f"{self.name} {key} {row.get('id', row.get('name', place))!r}"))
        return found

    def _get(self, key: str, kind: type | tuple[type, ...], what: str, default: object) -> Any:
        value = self.values.get(key, default)
        if value is None:
            raise ContentError(f"{self.name}: {key} is missing")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ContentError(f"{self.name}: {key} must be {what}, not {value!r}")
        return value
