"""``kit grade``: one file, or every file of the workspace."""

from __future__ import annotations

import functools
import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from grader import grading
from grader.catalogue import Catalogue
from grader.cli import render
from grader.cli.common import console, find, note, record, refuse_code, shown
from grader.cli.follow import Follower
from grader.errors import RequestError
from grader.judge.client import JudgeClient
from grader.model import Attempt, Exercise, Isolation
from grader.workspace import Workspace, neighbour_notes, read_submission

MAX_SEED = 2**31


@click.command()
@click.argument("name", required=False)
@click.option("--all", "every", is_flag=True, help="Every file of your workspace.")
@click.option("--file", type=click.Path(path_type=Path), help="This file instead of the workspace's.")
@click.option("--part", type=click.IntRange(min=1), help="Only this part's tests.")
@click.option("--device", type=click.Choice(["cpu", "cuda", "auto"]), default="cpu", show_default=True)
@click.option("--no-speed", is_flag=True, help="Verdict on the values and costs only.")
@click.option(
    "--isolation",
    type=click.Choice([level.value for level in Isolation]),
    help="What stands between your code and the judge; process if not given.",
)
@click.option("--seed", type=click.IntRange(min=0, max=MAX_SEED - 1), help="Draw the inputs of an earlier run again.")
@click.option("--pdb", is_flag=True, help="One process, so that breakpoint() in your file works.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout, nothing else.")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Also write JUnit XML here.")
@click.option("-v", "--verbose", is_flag=True, help="Every failing test in full.")
def grade(
    name: str | None,
    every: bool,
    file: Path | None,
    part: int | None,
    device: str,
    no_speed: bool,
    isolation: str | None,
    seed: int | None,
    pdb: bool,
    as_json: bool,
    junit: Path | None,
    verbose: bool,
) -> int:
    """Grade your file for the exercise NAME: which parts pass, which mistake it holds, what it costs.

    Exit codes: 0 passed, 1 something failed, 2 the request was wrong, 3 the grader itself failed.
    """
    _check_options(name, every, file, part, isolation, pdb, as_json)
    if junit is not None:
        _check_writable(junit)
    workspace = Workspace.find()
    catalogue = Catalogue()
    if every:
        jobs = [(exercise, workspace.file(exercise.slug)) for exercise in _started(catalogue, workspace)]
    else:
        exercise = find(catalogue, name or "", workspace).exercise
        if part is not None and part > len(exercise.parts):
            raise RequestError(f"{exercise.slug} has parts 1 to {len(exercise.parts)}, not {part}")
        jobs = [(exercise, file or workspace.file(exercise.slug))]
    level = Isolation(isolation) if isolation else (Isolation.NONE if pdb else Isolation.PROCESS)
    run_seed = secrets.randbelow(MAX_SEED) if seed is None else seed
    attempts = []
    sources = [read_submission(path, _how_to_get(exercise, path, workspace)) for exercise, path in jobs]
    if not as_json and junit is None and not every and _says_syntax_error(sources[0], jobs[0][1]):
        return 1
    early = None
    with JudgeClient(pdb, device, level) as client:
        for (exercise, path), source in zip(jobs, sources, strict=True):
            request = grading.GradeRequest(
                exercise, source, path, part, run_seed, device, level, speed=not no_speed, pdb=pdb
            )
            show = None if every or as_json else _shower(exercise, verbose)
            keep = functools.partial(_record, workspace, source=source, part=part)
            with Follower(exercise.slug, spinner=not (as_json or pdb), show=show) as follower:
                try:
                    attempt = grading.grade(request, follower, client)
                except KeyboardInterrupt:
                    if follower.verdict is not None:
                        keep(follower.verdict)  # what was shown is a fact; only the timing is lost
                    raise
            attempt = msgspec.structs.replace(attempt, notes=(*attempt.notes, *neighbour_notes(path.resolve())))
            keep(attempt)
            attempts.append(attempt)
            early = follower.verdict
    if early is not None:
        render.print_timing(console(), attempts[0], jobs[0][0], early)
    else:
        _show(attempts, [exercise for exercise, _ in jobs], every, as_json, verbose)
    if junit is not None:
        from grader.cli.export import junit_xml

        junit.write_bytes(junit_xml(attempts))
    return 0 if all(attempt.passed for attempt in attempts) else 1


def _check_options(
    name: str | None, every: bool, file: Path | None, part: int | None, isolation: str | None, pdb: bool, as_json: bool
) -> None:
    if every and (name or file or part or pdb):
        raise click.UsageError("--all grades the whole workspace: no NAME, --file, --part or --pdb with it")
    if not every and not name:
        raise click.UsageError("name an exercise, or say --all")
    if pdb and isolation not in (None, Isolation.NONE.value):
        raise click.UsageError(f"--pdb needs --isolation none; a breakpoint cannot be reached under {isolation}")
    if pdb and as_json:
        raise click.UsageError("--pdb talks on the terminal, and --json wants it for itself")


def _check_writable(path: Path) -> None:
    """Refuse before grading what could not be written after it."""
    refuse_code(path)
    if path.is_dir() or not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise RequestError(f"{path} cannot be written")


def _started(catalogue: Catalogue, workspace: Workspace) -> list[Exercise]:
    found = [catalogue.exercise(slug) for slug in catalogue.slugs if workspace.file(slug).exists()]
    if not found:
        raise RequestError(f"{shown(workspace.root)} holds no exercise yet", "kit start NAME writes a stub")
    return found


def _how_to_get(exercise: Exercise, path: Path, workspace: Workspace) -> str:
    """What to do about a file that is missing or empty."""
    if path != workspace.file(exercise.slug):
        return ""
    if path.exists():
        return f"kit reset {exercise.slug} writes the stub again"
    return f"kit start {exercise.slug} writes the stub; KIT_WORKSPACE names another workspace"


def _says_syntax_error(source: bytes, path: Path) -> bool:
    """Whether the file is no Python; if so, its line is shown at once, without waiting for torch to load."""
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, str(path), "exec", dont_inherit=True, flags=0)
    except SyntaxError as error:
        click.secho(f"{shown(path)}, line {error.lineno}: {error.msg}", fg="red", err=False)
        if error.text:
            from grader.cli.escape import visible

            line = visible(error.text.rstrip("\n"))
            click.echo(f"    {line.strip()}")
            if error.offset:
                click.echo("    " + " " * max(0, error.offset - 1 - (len(line) - len(line.lstrip()))) + "^")
        return True
    except (ValueError, RecursionError, MemoryError):
        return False  # The judge's own process meets it and says so.
    return False


def _shower(exercise: Exercise, verbose: bool) -> Callable[[Attempt], None]:
    """A function that prints the verdict on the values, for before the times are measured."""
    return lambda attempt: render.print_verdict(console(), attempt, exercise, verbose)


def _record(workspace: Workspace, attempt: Attempt, source: bytes, part: int | None) -> None:
    record(workspace, "record_attempt", attempt, hashlib.sha256(source).hexdigest(), part=part)


def _show(attempts: list[Attempt], exercises: list[Exercise], every: bool, as_json: bool, verbose: bool) -> None:
    if as_json:
        from grader.cli.export import all_document, attempt_document, json_text

        for attempt in attempts:
            for remark in attempt.notes:
                note(f"{attempt.exercise}: {remark}" if every else remark)
        click.echo(json_text(all_document(attempts) if every else attempt_document(attempts[0])))
        return
    if every:
        render.print_summary(console(), attempts)
    else:
        render.print_attempt(console(), attempts[0], exercises[0], verbose)
