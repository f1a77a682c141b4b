"""``kit report``: everything the journal knows on one page, and the journal's way to another machine."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from datetime import date as Date
from datetime import datetime, timedelta
from pathlib import Path

import click

from grader.catalogue import Catalogue
from grader.cli.common import note, refuse_code, shown
from grader.cli.status import drill_title, topic_title
from grader.cli.words import again
from grader.errors import RequestError
from grader.journal import sessions
from grader.journal.progress import progress
from grader.journal.store import AttemptRow, Journal
from grader.journal.transfer import export_journal, import_journal
from grader.listing import Headline
from grader.report import practice_page as views
from grader.review import summary
from grader.review.cards import Card, cards, interview
from grader.review.quiz import CARD_PREFIX
from grader.review.schedule import recall
from grader.workspace import Workspace

WEEKS_BACK = 12
WEEKS_AHEAD = 5
FILE = "report.html"


@click.command()
@click.option("--open", "open_", is_flag=True, help="Open the page in the browser.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Where to write the page.")
@click.option("--export", "export_", type=click.Path(path_type=Path, dir_okay=False), help="Write the journal here.")
@click.option("--import", "import_", type=click.Path(path_type=Path, dir_okay=False), help="Merge an exported journal.")
def report(open_: bool, out: Path | None, export_: Path | None, import_: Path | None) -> None:
    """One HTML page of your progress: tracks, drills against targets, mistakes, reviews, every attempt.

    The page needs no network. --export and --import move the journal between machines: importing merges, twice
    changes nothing, and nothing is lost.
    """
    if (export_ or import_) and (open_ or out):
        raise click.UsageError("--export and --import move the journal; they go without --open and --out")
    for path in (out, export_):
        if path is not None:
            refuse_code(path)
    workspace = Workspace.find()
    if import_ is not None or export_ is not None:
        _move(workspace, export_, import_)
        return
    workspace.prepare()
    path = out or workspace.state / FILE
    if not path.parent.is_dir():
        raise RequestError(f"{path.parent} does not exist")
    with Journal.open(workspace.journal_path) as journal:
        for remark in journal.notes:
            note(remark)
        text = views.page(view(journal, workspace, time.time_ns()))
    _write(path, text)
    click.echo(f"wrote {shown(path)}")
    if open_:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            note(f"no browser to open it with: {path.resolve().as_uri()}")


def view(journal: Journal, workspace: Workspace, now_ns: int) -> views.PracticeView:
    """The page's content."""
    catalogue = Catalogue()
    headlines = catalogue.headlines()
    titles = {item.slug: item.title for item in headlines}
    now = datetime.fromtimestamp(now_ns / 1e9).astimezone()
    found = cards(journal, now_ns)
    interview_ns = interview(journal)
    ahead = interview_ns if interview_ns is not None and interview_ns > now_ns else None
    attempts = journal.attempts()
    made = summary.mistakes_made(journal, catalogue)
    names = {(item.exercise, item.id): item.title for item in made}
    tracks = summary.by_track(headlines, summary.max_points(catalogue), progress(workspace.journal_path))
    return views.PracticeView(
        made=now.strftime("%Y-%m-%d %H:%M %Z").strip(),
        tracks=tuple(
            views.TrackView(topic_title(t.track), t.done, t.total, t.percent, t.points, t.max_points) for t in tracks
        ),
        weeks=_weeks(attempts, now.date()),
        drills=tuple(_drill(item) for item in summary.drill_series(journal)),
        mistakes=tuple(
            views.MistakeView(
                titles.get(item.exercise, item.exercise),
                item.title,
                item.says,
                item.count,
                _day(item.first_ns),
                _day(item.last_ns),
                _day(item.mended_ns) if item.mended_ns is not None else "",
            )
            for item in made
        ),
        calendar=_calendar(found, now.date(), _date(ahead) if ahead is not None else None),
        cards=tuple(
            views.CardView(
                card.name,
                again(card.name),
                _day(card.due_ns),
                card.due_ns <= now_ns,
                f"{recall(card.memory, now_ns):.0%}",
            )
            for card in found
        ),
        interview=_day(ahead) if ahead is not None else "",
        readiness=_readiness(found, headlines, ahead, now_ns) if ahead is not None else (),
        quizzes=_quizzes(sessions.answers(journal)),
        interviews=tuple(_interview(row, titles) for row in reversed(sessions.interviews(journal))),
        exercises=_exercises(journal, attempts, titles, names),
    )


def _move(workspace: Workspace, export_: Path | None, import_: Path | None) -> None:
    if import_ is not None and not import_.exists():
        raise RequestError(f"there is no file {import_}")
    if import_ is None and not workspace.journal_path.exists():
        raise RequestError("there is no journal to export yet", "kit start NAME begins one")
    workspace.prepare()
    with Journal.open(workspace.journal_path) as journal:
        for remark in journal.notes:
            note(remark)
        if import_ is not None:
            new = import_journal(journal, import_)
            listed = ", ".join(f"{count} {table}" for table, count in new.items())
            click.echo(f"merged {shown(import_)}: {f'new are {listed}' if new else 'nothing in it was new'}")
        if export_ is not None:
            counts = export_journal(journal, export_)
            total = sum(counts.values())
            click.echo(f"wrote {total} records to {shown(export_)}; there: kit report --import FILE")


def _weeks(attempts: list[AttemptRow], today: Date) -> tuple[views.WeekView, ...]:
    """The attempts of the last weeks; none when there was none in any of them."""
    monday = today - timedelta(days=today.weekday())
    every: Counter[Date] = Counter()
    passed: Counter[Date] = Counter()
    earliest = (monday - timedelta(weeks=WEEKS_BACK)).isoformat()
    for row in attempts:
        if not row.started or (day := _day(row.at_ns)) < earliest:
            continue
        found = Date.fromisoformat(day)
        week = found - timedelta(days=found.weekday())
        every[week] += 1
        passed[week] += row.passed
    starts = [monday - timedelta(weeks=back) for back in reversed(range(WEEKS_BACK))]
    if not any(every[start] for start in starts):
        return ()
    return tuple(views.WeekView(start.isoformat(), every[start], passed[start]) for start in starts)


def _drill(item: summary.DrillSeries) -> views.DrillView:
    runs = tuple(
        views.RunView(
            _day(run.finished_ns or run.started_ns),
            run.elapsed_seconds,
            "given up" if run.state != "passed" else "in time" if run.elapsed_seconds <= run.target_seconds else "over",
        )
        for run in item.runs
    )
    return views.DrillView(drill_title(item), item.target_seconds, runs, item.best_seconds)


def _calendar(found: list[Card], today: Date, interview_day: Date | None) -> tuple[tuple[views.DayView, ...], ...]:
    monday = today - timedelta(days=today.weekday())
    due: dict[Date, list[str]] = {}
    for card in found:
        due.setdefault(max(_date(card.due_ns), today), []).append(card.name)
    weeks = []
    for week in range(WEEKS_AHEAD):
        days = []
        for offset in range(7):
            day = monday + timedelta(days=7 * week + offset)
            kind = "interview" if day == interview_day else "today" if day == today else "past" if day < today else ""
            month = day.strftime("%b") if day.day == 1 or day == monday else ""
            days.append(views.DayView(day.isoformat(), day.day, month, tuple(due.get(day, ())), kind))
        weeks.append(tuple(days))
    return tuple(weeks)


def _readiness(
    found: list[Card], headlines: list[Headline], interview_ns: int, now_ns: int
) -> tuple[views.ReadinessView, ...]:
    rows = []
    for topic, extent, forecast in summary.readiness_by_topic(found, headlines, interview_ns, now_ns):
        if forecast is None:
            rows.append(views.ReadinessView(topic_title(topic), extent, None, None, 0))
        else:
            kept, alone = round(100 * forecast.reviews_kept), round(100 * forecast.left_alone)
            rows.append(views.ReadinessView(topic_title(topic), extent, kept, alone, forecast.reviews))
    return tuple(rows)


def _quizzes(answers: list[sessions.AnswerRow]) -> tuple[views.QuizView, ...]:
    topics: dict[str, list[sessions.AnswerRow]] = {}
    for answer in answers:
        topics.setdefault(answer.card.split(":")[1], []).append(answer)
    return tuple(
        views.QuizView(
            topic_title(f"{CARD_PREFIX}:{topic}").partition(": ")[2],
            len(rows),
            round(100 * sum(row.points / row.max_points for row in rows) / len(rows)),
        )
        for topic, rows in sorted(topics.items())
    )


def _interview(row: sessions.InterviewRow, titles: dict[str, str]) -> views.InterviewView:
    tasks = tuple(
        f"{item.kind}: {titles.get(item.subject, item.subject.split(':')[-1].replace('-', ' '))}, {item.state}"
        for item in row.items
    )
    share = sum(item.points / item.max_points for item in row.items) / max(1, len(row.items))
    score = f"{share:.0%}" if row.state == "finished" else row.state.replace("_", " ")
    time_ = f"{views.clock(row.elapsed_seconds)} of {views.clock(row.limit_seconds)}"
    return views.InterviewView(_day(row.started_ns), time_, score, tasks)


def _exercises(
    journal: Journal, attempts: list[AttemptRow], titles: dict[str, str], names: dict[tuple[str, str], str]
) -> tuple[views.ExerciseAttempts, ...]:
    mistakes: dict[int, list[str]] = {}
    for row in journal.rows("SELECT attempt_id, mistake FROM attempt_mistakes"):
        mistakes.setdefault(row["attempt_id"], []).append(row["mistake"])
    groups: dict[str, list[AttemptRow]] = {}
    for attempt in reversed(attempts):
        groups.setdefault(attempt.exercise, []).append(attempt)
    found = []
    for slug, rows in groups.items():
        whole = [row for row in rows if row.part is None]
        best = max(whole or rows, key=lambda row: row.points)
        found.append(
            views.ExerciseAttempts(
                slug,
                titles.get(slug, slug),
                any(row.passed for row in whole),
                f"best {best.points} of {best.max_points}",
                tuple(_attempt(row, [names.get((slug, m), m) for m in mistakes.get(row.id, ())]) for row in rows),
            )
        )
    return tuple(found)


def _attempt(row: AttemptRow, mistakes: list[str]) -> views.AttemptView:
    if row.passed:
        verdict = "passed"
    elif not row.started:
        verdict = "not started"
    else:
        verdict = "passed in part" if row.points else "failed"
    return views.AttemptView(
        _moment(row.at_ns),
        "all" if row.part is None else str(row.part),
        row.source,
        verdict,
        row.passed,
        f"{row.points} of {row.max_points}",
        tuple(mistakes),
    )


def _moment(at_ns: int) -> str:
    """A time in the learner's time zone; whatever a wrong clock wrote can be shown."""
    try:
        return datetime.fromtimestamp(at_ns / 1e9).isoformat(" ", "minutes")
    except (OverflowError, ValueError, OSError):
        return "a wrong clock"


def _day(at_ns: int) -> str:
    return _date(at_ns).isoformat()


def _date(at_ns: int) -> Date:
    try:
        return datetime.fromtimestamp(at_ns / 1e9).date()
    except (OverflowError, ValueError, OSError):
        return Date.max if at_ns > 0 else Date.min


def _write(path: Path, text: str) -> None:
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}") from error
