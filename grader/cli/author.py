"""``kit author``: new exercises, their stubs, and the proof that they hold."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from grader import authoring
from grader.authoring import Finding
from grader.catalogue import Catalogue
from grader.cli.common import shown
from grader.errors import ContentError, RequestError
from grader.host import limits
from grader.listing import TRACKS

TICK, CROSS = "✓", "✗"


@click.group()
def author() -> None:
    """Make, stub and check exercises. CONTRIBUTING.md is the recipe."""


@author.command()
@click.argument("slug")
@click.option("--title", default="", help="The title; made from the slug if not given.")
@click.option("--track", type=click.Choice(TRACKS), default=TRACKS[0], show_default=True, help="Where it belongs.")
def new(slug: str, title: str, track: str) -> None:
    """Write the files of a new exercise SLUG, to be filled."""
    catalogue = Catalogue()
    try:
        written = authoring.scaffold(catalogue.root, slug, title or slug.replace("_", " ").capitalize(), track)
    except ContentError as error:
        raise RequestError(error.message) from error
    for path in written:
        click.echo(f"wrote {shown(path)}")
    click.echo(f"fill them, then: kit author stub {slug} && kit author check {slug}")


@author.command()
@click.argument("slugs", nargs=-1)
@click.option("--all", "every", is_flag=True, help="The stubs of all exercises.")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 when a stub is stale.")
def stub(slugs: tuple[str, ...], every: bool, check: bool) -> int:
    """Generate the stubs of the exercises SLUGS from their solutions."""
    catalogue = Catalogue()
    if bool(slugs) == every:
        raise click.UsageError("name exercises, or say --all")
    stale = 0
    for slug in slugs or catalogue.slugs:
        exercise = catalogue.exercise(slug)
        path = exercise.folder / f"{slug}.py"
        if check:
            if not path.exists() or path.read_text(encoding="utf-8") != authoring.fresh_stub(exercise):
                stale += 1
                click.echo(f"{shown(path)} is stale; kit author stub {slug}")
        else:
            changed = authoring.write_stub(exercise)
            click.echo(f"{'wrote' if changed else 'already fresh:'} {shown(path)}")
    return 1 if stale else 0


@author.command()
@click.argument("slugs", nargs=-1)
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="How many run seeds.")
@click.option("--static", is_flag=True, help="Only what needs no running.")
@click.option(
    "--submissions",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of SLUG/right and SLUG/wrong; tests/submissions beside the content if not given.",
)
@click.option("-v", "--verbose", is_flag=True, help="Every finding, not only what does not hold.")
def check(slugs: tuple[str, ...], seeds: int, static: bool, submissions: Path | None, verbose: bool) -> int:
    """Prove the exercises SLUGS (all of them if none is named); exit 1 when something does not hold.

    The stub fails every test, the solution passes all, every mistake fails and is diagnosed as itself, right
    submissions pass and wrong ones are named; the format is kept, and the stub is fresh.
    """
    catalogue = Catalogue()
    for slug in slugs:
        catalogue.exercise(slug)
    folder = submissions or catalogue.root / "tests" / "submissions"
    wanted = slugs or catalogue.slugs
    # As many processes as there are cores: an exercise each, or several at one where there are fewer exercises.
    cores = limits.usable_cores()
    jobs = max(1, cores // max(1, len(wanted)))
    width = max((len(slug) for slug in wanted), default=0)
    bad = 0
    click.secho(
        f"{'exercise':<{width}}  {'format':<6}  {'solution':<8}  {'stub':<5}  mistakes  right  wrong", bold=True
    )

    def all_findings(slug: str) -> list[Finding]:
        findings = authoring.read_through(catalogue, slug)
        if not static and all(finding.holds for finding in findings if finding.kind == "exercise.toml"):
            findings += authoring.prove(catalogue, slug, seeds, folder, jobs)
        return findings

    with ThreadPoolExecutor(max_workers=cores) as pool:
        for slug, findings in zip(wanted, pool.map(all_findings, wanted), strict=True):
            bad += _show_row(slug, findings, width, verbose)
    if not slugs:
        bad += _show_faults(authoring.stray_content(catalogue), verbose)
    click.echo(f"\n{len(wanted)} exercises, " + (f"{bad} faults" if bad else "everything holds"))
    return 1 if bad else 0


def _show_row(slug: str, findings: list[Finding], width: int, verbose: bool) -> int:
    run = ("solution", "stub", "mistake", "right", "wrong")
    cells = [_cell([item for item in findings if item.kind not in run])]
    cells += [_cell([item for item in findings if item.kind == kind]) for kind in run]
    formatted, solution, stub_cell, mistakes, right, wrong = cells
    click.echo(f"{slug:<{width}}  {formatted:<6}  {solution:<8}  {stub_cell:<5}  {mistakes:<8}  {right:<5}  {wrong}")
    return _show_faults(findings, verbose)


def _show_faults(findings: list[Finding], verbose: bool) -> int:
    for item in findings:
        if verbose or not item.holds:
            mark = click.style(TICK, fg="green") if item.holds else click.style(CROSS, fg="red")
            click.echo(f"    {mark} {item.kind}: {item.name}{': ' if item.seen else ''}{item.seen}")
    return sum(1 for item in findings if not item.holds)


def _cell(findings: list[Finding]) -> str:
    """``✓`` or ``✗`` for a single check, ``11/12`` for several, ``-`` for none."""
    if not findings:
        return "-"
    held = sum(1 for item in findings if item.holds)
    if held == len(findings):
        return TICK if len(findings) == 1 else f"{held}/{held}"
    return CROSS if len(findings) == 1 else f"{held}/{len(findings)}"
