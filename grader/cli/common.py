"""What several commands share: the exercise a NAME means, the journal if it can be had, a console."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from grader.errors import ContentError, KitError, RequestError

if TYPE_CHECKING:
    from rich.console import Console

    from grader.catalogue import Catalogue, Found
    from grader.journal.store import Journal
    from grader.model import Exercise
    from grader.workspace import Workspace


def note(message: str) -> None:
    """A remark on stderr, where it does not disturb what scripts read."""
    click.secho("note: ", fg="yellow", nl=False, err=True)
    click.echo(message, err=True)


def refuse_code(path: Path) -> None:
    """Refuse to write results over what is, by its name, somebody's code.

    Raises:
        RequestError: the path is that of a Python file.
    """
    if path.suffix == ".py":
        raise RequestError(f"{shown(path)} is a Python file, which this would overwrite", "name another file")


def say_what_was_meant(name: str, found: Found) -> None:
    """When NAME was a symbol of several exercises, say which was taken."""
    if found.others:
        others = " and ".join(found.others)
        note(f"{found.symbol} is asked for in {others} too; this is {found.exercise.slug}")


def find(catalogue: Catalogue, name: str, workspace: Workspace | None = None) -> Found:
    """The exercise NAME means; of several that ask for a symbol, one that has a file in ``workspace`` comes first.

    Raises:
        RequestError: nothing has this name.
    """
    from dataclasses import replace

    found = catalogue.find(name)
    if workspace is not None and found.others and not workspace.file(found.exercise.slug).exists():
        started = [slug for slug in found.others if workspace.file(slug).exists()]
        if started:
            others = (found.exercise.slug, *(slug for slug in found.others if slug != started[0]))
            exercise = catalogue.exercise(started[0])
            part = next(part.number for part in exercise.parts if found.symbol in part.symbols)
            found = replace(found, exercise=exercise, part=part, others=others)
    say_what_was_meant(name, found)
    return found


def stub_of(exercise: Exercise) -> str:
    """The generated stub's text.

    Raises:
        ContentError: it was never generated.
    """
    path = exercise.folder / f"{exercise.slug}.py"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ContentError(f"{path} cannot be read: {error}", f"kit author stub {exercise.slug}") from error


@contextmanager
def journal_of(workspace: Workspace) -> Iterator[Journal | None]:
    """The workspace's journal, or None (with a remark) when there is no workspace or it cannot be written.

    A learner can work without a journal; what cannot be recorded is said, and nothing else fails.
    """
    if not workspace.exists:
        yield None
        return
    from grader.journal.store import Journal

    try:
        journal = Journal.open(workspace.journal_path)
    except KitError as error:
        note(f"not recorded: {error.message}")
        yield None
        return
    for remark in journal.notes:
        note(remark)
    with journal:
        yield journal


def record(workspace: Workspace, entry: str, *values: object, **options: object) -> None:
    """Call the journal's method ``entry``; what cannot be recorded is said, not fatal."""
    import sqlite3

    with journal_of(workspace) as journal:
        if journal is None:
            return
        try:
            getattr(journal, entry)(*values, **options)
        except sqlite3.Error as error:
            note(f"not recorded: {error}")


def console(stderr: bool = False) -> Console:
    """A rich console; colours only on a terminal."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, emoji=False, markup=False, soft_wrap=False)


def print_markdown(text: str) -> None:
    """Markdown, laid out on a terminal, as it is elsewhere."""
    if not sys.stdout.isatty():
        click.echo(text.rstrip("\n"))
        return
    from rich.markdown import Markdown

    console().print(Markdown(literal_stars(text)))


def literal_stars(markdown: str) -> str:
    """Markdown whose single stars, underscores and ``<`` outside code stay as they are: in formulas they are no layout.

    ``**bold**``, bullets, code and a question in stars that begins a bullet keep their meaning.
    """
    lines = []
    fenced = False
    for line in markdown.split("\n"):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        if fenced or fence or line.startswith("    "):
            lines.append(line)
            continue
        bullet = re.match(r"\s*[*+-] (?:\*[^*`]+\?\*(?=\s|$))?", line)
        head = bullet[0] if bullet else ""
        pieces = re.split(r"(`+[^`]*`+)", line[len(head) :])
        pieces[::2] = [re.sub(r"(?<![*\\])\*(?!\*)|(?<!\\)[_<]", r"\\\g<0>", piece) for piece in pieces[::2]]
        lines.append(head + "".join(pieces))
    return "\n".join(lines)


def shown(path: Path) -> str:
    """A path as short as it can be typed from here."""
    relative = os.path.relpath(path)
    return relative if not relative.startswith(os.pardir + os.sep + os.pardir) else str(path)
