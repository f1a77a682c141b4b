"""``kit status``: progress, what is due, drill times against targets, readiness for an interview."""

from __future__ import annotations

import time
from datetime import datetime

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader.catalogue import Catalogue
from grader.cli.browse import TRACK_TITLES
from grader.cli.common import console, note
from grader.cli.plurals import counted
from grader.cli.words import again, date, days_until, minutes
from grader.journal import drills as journal_drills
from grader.journal.progress import progress
from grader.journal.store import Journal
from grader.listing import Headline
from grader.review import summary
from grader.review.cards import Card, cards, interview, set_interview
from grader.review.schedule import DAY_NS, RETENTION
from grader.workspace import Workspace

SHOWN_DUE = 5
SHOWN_DRILLS = 8


@click.command()
@click.option(
    "--interview",
    "day",
    metavar="YYYY-MM-DD",
    help="Your interview's date: reviews are drawn in before it, and readiness is forecast. none forgets it.",
)
def status(day: str | None) -> None:
    """How far you are in each track, what is due, your drill times, and how ready you will be."""
    workspace = Workspace.find()
    catalogue = Catalogue()
    headlines = catalogue.headlines()
    if day is not None:
        workspace.prepare()
    elif not workspace.exists:
        tracks = summary.by_track(headlines, summary.max_points(catalogue), {})
        _print_tracks(console(), tracks)
        click.echo(f"\nnothing yet: kit start {headlines[0].slug} begins" if headlines else "\nno exercises here")
        return
    now_ns = time.time_ns()
    out = console()
    with Journal.open(workspace.journal_path) as journal:
        for remark in journal.notes:
            note(remark)
        if day is not None:
            chosen = set_interview(journal, day, datetime.now().astimezone().date())
            click.echo(f"interview on {chosen}\n" if chosen else "no interview date any more\n")
        done = progress(workspace.journal_path)
        _print_tracks(out, summary.by_track(headlines, summary.max_points(catalogue), done))
        found = cards(journal, now_ns)
        _print_due(out, found, now_ns)
        _print_running(out, journal)
        _print_drills(out, summary.drill_series(journal))
        interview_ns = interview(journal)
        if interview_ns is not None:
            _print_interview(out, found, interview_ns, now_ns, headlines)


def topic_title(topic: str) -> str:
    """A track or quiz topic in words."""
    first, _, rest = topic.partition(":")
    return f"Quiz: {rest.replace('-', ' ')}" if rest else TRACK_TITLES.get(first, first)


def drill_title(series: summary.DrillSeries) -> str:
    """A drill in words: gqa part 1, blank."""
    what = series.symbol or (f"part {series.part}" if series.part else "")
    return f"{series.exercise}{f' {what}' if what else ''}, {series.mode}"


def _print_tracks(out: Console, tracks: list[summary.TrackProgress]) -> None:
    table = Table.grid(padding=(0, 2))
    for track in tracks:
        style = "green" if track.done == track.total else ""
        table.add_row(
            Text(topic_title(track.track), style),
            Text(f"{track.done} of {track.total}"),
            Text(f"{track.percent}%"),
            Text(f"{track.points}/{track.max_points} points", "dim"),
        )
    done, total = sum(track.done for track in tracks), sum(track.total for track in tracks)
    if total:
        table.add_row(Text("All", "bold"), Text(f"{done} of {total}"), Text(f"{100 * done // total}%"))
    out.print(table)
    if total and done == total:
        out.print(Text("Everything is passed. Reviews keep it; kit interview puts it to the test.", "green"))


def _print_due(out: Console, found: list[Card], now_ns: int) -> None:
    now = [card for card in found if card.due_ns <= now_ns]
    week = sum(now_ns < card.due_ns <= now_ns + 7 * DAY_NS for card in found)
    out.print(Text(f"\nReviews: {len(now)} due now, {week} more within a week", "bold"))
    for card in now[:SHOWN_DUE]:
        out.print(Text(f"  {card.name}   {again(card.name)}"))
    if len(now) > SHOWN_DUE:
        out.print(Text(f"  and {len(now) - SHOWN_DUE} more: kit due", "dim"))
    if not now and found:
        out.print(Text(f"  on {date(found[0].due_ns)} comes {again(found[0].name)}", "dim"))


def _print_running(out: Console, journal: Journal) -> None:
    for row in journal_drills.unfinished(journal):
        command = "debug" if row.mode.startswith("debug") else "drill"
        clock = f"{minutes(row.elapsed_seconds)} of {minutes(row.target_seconds)}"
        out.print(Text(f"\nUnfinished: {row.exercise} ({row.mode}), {clock}; kit {command} --resume", "yellow"))


def _print_drills(out: Console, series: list[summary.DrillSeries]) -> None:
    if not series:
        return
    out.print(Text("\nDrills against their targets", "bold"))
    table = Table.grid(padding=(0, 2))
    for item in series[:SHOWN_DRILLS]:
        last, best = item.runs[-1], item.best_seconds
        inside = last.state == "passed" and last.elapsed_seconds <= item.target_seconds
        seen = minutes(last.elapsed_seconds) if last.state == "passed" else "given up"
        table.add_row(
            Text(f"  {drill_title(item)}"),
            Text(f"last {seen}", "green" if inside else "yellow"),
            Text(f"best {minutes(best)}" if best is not None else ""),
            Text(f"target {minutes(item.target_seconds)}"),
            Text(counted(len(item.runs), "run"), "dim"),
        )
    out.print(table)
    if len(series) > SHOWN_DRILLS:
        out.print(Text(f"  and {len(series) - SHOWN_DRILLS} more: kit report", "dim"))


def _print_interview(
    out: Console, found: list[Card], interview_ns: int, now_ns: int, headlines: list[Headline]
) -> None:
    if interview_ns <= now_ns:
        out.print(Text(f"\nThe interview was on {date(interview_ns)}; --interview sets another date", "dim"))
        return
    out.print(Text(f"\nInterview on {date(interview_ns)}, in {days_until(interview_ns, now_ns)}", "bold"))
    table = Table.grid(padding=(0, 2))
    table.add_row("", *(Text(word, "dim") for word in ("drilled", "left alone", "reviews kept")))
    for topic, extent, forecast in summary.readiness_by_topic(found, headlines, interview_ns, now_ns):
        if forecast is None:
            table.add_row(Text(f"  {topic_title(topic)}"), Text(extent), Text("no forecast", "yellow"), "")
        else:
            style = "green" if forecast.left_alone >= RETENTION else "yellow"
            table.add_row(
                Text(f"  {topic_title(topic)}"),
                Text(extent),
                Text(f"{forecast.left_alone:.0%}", style),
                Text(f"{forecast.reviews_kept:.0%}, {counted(forecast.reviews, 'review')}"),
            )
    out.print(table)
    out.print(Text("  the share of what was drilled that you would still know that day, as FSRS predicts", "dim"))
