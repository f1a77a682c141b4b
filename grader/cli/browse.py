"""``kit list`` and ``kit show``."""

from __future__ import annotations

import sys

import click

from grader import listing, paths
from grader.cli.plurals import counted
from grader.journal.progress import Progress, progress
from grader.listing import Headline
from grader.workspace import Workspace

TRACK_TITLES = {
    "attention": "Attention",
    "mixture-of-experts": "Mixture of experts",
    "state-space-models": "State-space models",
    "objectives": "Objectives",
    "estimates": "Estimates",
    "kernels": "Kernels",
}


@click.command("list")
@click.argument("track", required=False)
def list_command(track: str | None) -> None:
    """The exercises (of one TRACK), their stars and minutes, and your points."""
    items = listing.headlines(paths.exercise_folders(paths.content_root()))
    if track is not None:
        tracks = [name for name in listing.TRACKS if name.startswith(track.lower())]
        if not tracks:
            raise click.UsageError(f"there is no track {track!r}; the tracks are {', '.join(listing.TRACKS)}")
        items = [item for item in items if item.track in tracks]
    done = progress(Workspace.find().journal_path)
    width = max((len(item.slug) for item in items), default=0)
    last_track = ""
    for item in items:
        if item.track != last_track:
            if last_track:
                click.echo()
            click.secho(TRACK_TITLES.get(item.track, item.track) + _why_unavailable(item.track), bold=True)
            last_track = item.track
        click.echo(_line(item, width, done.get(item.slug)))
    passed = sum(1 for item in items if item.slug in done and done[item.slug].passed)
    if items:
        click.echo(f"\n{passed} of {len(items)} passed ({100 * passed // len(items)}%)")
        if passed == len(items):
            click.secho("Everything here is passed.", fg="green")
        elif not done:
            click.echo(f"Start with: kit start {items[0].slug}")


@click.command()
@click.argument("name")
def show(name: str) -> None:
    """The statement of the exercise NAME: formula, signatures, conventions, parts, a worked example."""
    from grader.catalogue import Catalogue, read_prompt
    from grader.cli.common import find, print_markdown

    exercise = find(Catalogue(), name).exercise
    text = read_prompt(exercise)
    title = f"{exercise.title} ({exercise.slug})"
    facts = f"{'★' * exercise.stars} · part 1 in {exercise.minutes} minutes · {exercise.max_points} points"
    ladder = "\n".join(
        f"- Part {part.number} ({counted(part.points, 'point')}): {part.title}: {', '.join(part.symbols)}"
        for part in exercise.parts
    )
    body = text if text.lstrip().startswith("# ") else f"# {title}\n\n{text}"
    print_markdown(f"{body.rstrip()}\n\n## To do\n\n{facts}\n\n{ladder}\n\nStart: `kit start {exercise.slug}`\n")


def _line(item: Headline, width: int, done: Progress | None) -> str:
    stars = "★" * item.stars + " " * (3 - item.stars)
    text = f"  {item.slug:<{width}}  {stars}  {item.minutes:>3} min  {item.title}"
    if done is None:
        return text
    if done.passed:
        return text + click.style(f"  ✓ {done.max_points}/{done.max_points}", fg="green")
    return text + click.style(f"  {done.points}/{done.max_points}", fg="yellow")


def _why_unavailable(track: str) -> str:
    if track == "kernels" and sys.platform != "linux":
        return f" (unavailable here: Triton has no wheel for {sys.platform})"
    return ""
