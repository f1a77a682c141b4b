"""``kit prove``: the learner's own tests, scored by the known mistakes they catch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click
from rich.text import Text

from grader.catalogue import Catalogue, read_mistakes
from grader.cli.common import console, find, shown
from grader.cli.escape import visible
from grader.grading import Progress
from grader.judge.client import JudgeClient
from grader.judge.orders import Measuring, ProofResult, ProveOrder
from grader.model import Exercise, Isolation
from grader.review.drills import solution_of
from grader.workspace import Workspace, read_submission

LISTED = 6


@click.command()
@click.argument("name")
@click.option("--file", type=click.Path(path_type=Path), help="These tests instead of the workspace's.")
@click.option("--spoil", is_flag=True, help="Also name the mistakes that got through.")
def prove(name: str, file: Path | None, spoil: bool) -> int:
    """Write the tests for NAME: they must pass the solution and right answers written otherwise, and catch mistakes.

    The first call writes a page for them into your workspace. Exit code 0: every known mistake is caught.
    """
    workspace = Workspace.find()
    catalogue = Catalogue()
    exercise = find(catalogue, name, workspace).exercise
    solution_of(exercise)  # refuses where it is sealed
    stem = f"{exercise.slug}_prove"
    path = file or workspace.file(stem)
    if file is None and workspace.write_new(stem, _page(exercise)):
        click.echo(f"wrote {shown(path)}: write tests there, then: kit prove {exercise.slug}")
        return 1
    tests = read_submission(path)
    order = ProveOrder(exercise.slug, str(catalogue.root), tests, path.name, isolation=Isolation.PROCESS)
    with JudgeClient() as client:
        results = client.prove(order, _progress())
    return _show(exercise, results, spoil)


def _page(exercise: Exercise) -> str:
    names = ", ".join(exercise.symbols)
    return (
        f'"""Tests for {exercise.slug}: {exercise.title}.\n\n'
        f"Plain pytest functions, with parametrize where you like, no fixtures. The module under test is\n"
        f"`{exercise.slug}`: sometimes the solution, sometimes a right answer in another style, mostly\n"
        f'a wrong one.\n"""\n\n'
        f"import pytest\nimport torch\n\nfrom {exercise.slug} import {names}\n\n\n"
        f"def test_it_can_be_imported():\n    assert {exercise.symbols[0]} is not None\n"
    )


def _progress() -> Callable[[Progress], None]:
    if not sys.stderr.isatty():
        return lambda event: None

    def report(event: Progress) -> None:
        if isinstance(event, Measuring):
            click.echo(f"\r\x1b[K{event.name}", nl=False, err=True)

    return report


def _show(exercise: Exercise, results: tuple[ProofResult, ...], spoil: bool) -> int:
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    out = console()
    solution = results[0]
    if solution.trouble or solution.failed:
        out.print(Text("Your tests refuse the solution:", "bold red"))
        for line in _complaints(solution):
            out.print(Text(f"  {visible(line)}"))
        return 1
    if not solution.total:
        out.print(Text("There is no test yet: functions whose names begin with test_.", "yellow"))
        return 1
    strict = {test for result in results if result.kind == "right" for test in result.failed}
    for result in results:
        if result.kind == "right" and (result.failed or result.trouble):
            out.print(Text(f"A right answer is refused ({visible(result.name)}):", "bold red"))
            for line in _complaints(result):
                out.print(Text(f"  {visible(line)}"))
    if strict:
        out.print(
            Text(f"Not counted, since they refuse a right answer: {', '.join(sorted(map(visible, strict)))}", "yellow")
        )
    mistakes = [result for result in results if result.kind == "mistake"]
    missed = [result for result in mistakes if not result.trouble and not set(result.failed) - strict]
    caught = len(mistakes) - len(missed)
    style = "bold green" if not missed and not strict else "bold"
    out.print(Text(f"{exercise.title}: {solution.total} tests catch {caught} of {len(mistakes)} known mistakes", style))
    titles = {mistake.id: mistake for mistake in read_mistakes(exercise)}
    if missed and spoil:
        for result in missed:
            out.print(Text(f"  got through: {visible(titles[result.name].title)} ({result.name})"))
    elif missed:
        parts = sorted({titles[result.name].part for result in missed})
        counts = ", ".join(f"part {part}: {sum(titles[m.name].part == part for m in missed)}" for part in parts)
        out.print(Text(f"  got through, {counts}; --spoil names them", "dim"))
    return 0 if not missed and not strict else 1


def _complaints(result: ProofResult) -> list[str]:
    if result.trouble:
        return [result.trouble]
    lines = [f"{test}: {message}" for test, message in zip(result.failed, result.messages, strict=True)]
    return lines[:LISTED] + ([f"... and {len(lines) - LISTED} more"] if len(lines) > LISTED else [])
