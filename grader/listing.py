"""The catalogue at a glance: what ``kit list`` prints, read from the head of each ``exercise.toml``.

Apart from `catalogue` because it must be quick: it reads only the keys before the first table and
imports neither msgspec nor `model`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from grader.errors import ContentError

TRACKS = ("attention", "mixture-of-experts", "state-space-models", "objectives", "estimates", "kernels")
"""The tracks, in the order they are shown."""


class Headline(NamedTuple):
    """One line of the list: what an exercise is, without its parts."""

    slug: str
    title: str
    track: str
    stars: int
    minutes: int


def headlines(folders: Mapping[str, Path]) -> list[Headline]:
    """The headline of every exercise (slug to folder, see `paths.exercise_folders`), by track, then from easy to hard.

    Raises:
        ContentError: an ``exercise.toml`` that cannot be read, named.
    """
    found = []
    for slug, folder in folders.items():
        path = folder / "exercise.toml"
        try:
            head = tomllib.loads(_before_the_first_table(path.read_text(encoding="utf-8")))
            found.append(
                Headline(slug, str(head["title"]), str(head["track"]), int(head["stars"]), int(head["minutes"]))
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ContentError(f"{path} cannot be read: {error!r}", f"kit author check {slug}") from error
    return sorted(found, key=order)


def order(item: Headline) -> tuple[int, int, int, str]:
    """The sort key of the list: track, stars, minutes, title."""
    track = TRACKS.index(item.track) if item.track in TRACKS else len(TRACKS)
    return (track, item.stars, item.minutes, item.title)


def _before_the_first_table(text: str) -> str:
    """The keys before the first ``[table]`` line."""
    if text.startswith("["):
        return ""
    return text.partition("\n[")[0]
