"""What the journal says about a learner: progress by track, drill times, mistakes, answers, readiness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grader.catalogue import Catalogue, read_mistakes
from grader.errors import KitError
from grader.journal import drills
from grader.journal.drills import DrillRow
from grader.journal.progress import Progress
from grader.journal.store import Journal
from grader.listing import TRACKS, Headline
from grader.model import Mistake
from grader.review.cards import Card, Readiness, readiness
from grader.review.quiz import CARD_PREFIX


@dataclass(frozen=True)
class TrackProgress:
    """How far a track is: exercises passed, and points."""

    track: str
    done: int
    total: int
    points: int
    max_points: int

    @property
    def percent(self) -> int:
        """Exercises passed in percent, rounded down so that 100 means all."""
        return 100 * self.done // self.total if self.total else 0


@dataclass(frozen=True)
class DrillSeries:
    """All finished runs of one drill, oldest first; the target is that of the newest."""

    exercise: str
    part: int
    symbol: str
    mode: str
    target_seconds: float
    runs: tuple[DrillRow, ...]

    @property
    def passed(self) -> tuple[DrillRow, ...]:
        """The runs that were not given up."""
        return tuple(run for run in self.runs if run.state == "passed")

    @property
    def best_seconds(self) -> float | None:
        """The quickest passed run."""
        return min((run.elapsed_seconds for run in self.passed), default=None)


@dataclass(frozen=True)
class MistakeMade:
    """A known mistake that grading named; `mended_ns` is when its part first passed after it was last seen."""

    exercise: str
    id: str
    title: str
    says: str
    count: int
    first_ns: int
    last_ns: int
    mended_ns: int | None


def by_track(
    headlines: Sequence[Headline], points: Mapping[str, int], done: Mapping[str, Progress]
) -> list[TrackProgress]:
    """The tracks that have exercises, in their order.

    Args:
        headlines: the exercises.
        points: each exercise's points in all.
        done: what was reached, by slug.
    """
    found = []
    for track in (*TRACKS, *sorted({item.track for item in headlines} - set(TRACKS))):
        slugs = [item.slug for item in headlines if item.track == track]
        if slugs:
            reached = [done[slug] for slug in slugs if slug in done]
            found.append(
                TrackProgress(
                    track,
                    sum(item.passed for item in reached),
                    len(slugs),
                    sum(
                        points.get(slug, 0) if done[slug].passed else done[slug].points
                        for slug in slugs
                        if slug in done
                    ),
                    sum(points.get(slug, 0) for slug in slugs),
                )
            )
    return found


def max_points(catalogue: Catalogue) -> dict[str, int]:
    """Slug to points; an exercise that cannot be read has none."""
    found = {}
    for slug in catalogue.slugs:
        try:
            found[slug] = catalogue.exercise(slug).max_points
        except KitError:
            found[slug] = 0
    return found


def drill_series(journal: Journal) -> list[DrillSeries]:
    """Finished drills and hunts, those of one kind together, the most recently run first."""
    groups: dict[tuple[str, int, str, str], list[DrillRow]] = {}
    for row in drills.history(journal):
        groups.setdefault((row.exercise, row.part, row.symbol, row.mode), []).append(row)
    series = [DrillSeries(*key, runs[-1].target_seconds, tuple(runs)) for key, runs in groups.items()]
    return sorted(series, key=lambda item: -(item.runs[-1].finished_ns or 0))


def mistakes_made(journal: Journal, catalogue: Catalogue) -> list[MistakeMade]:
    """Every known mistake that was named, the newest first; those still unmended before the others."""
    seen = journal.rows(
        "SELECT exercise, mistake, count(*) AS count, min(at_ns) AS first_ns, max(at_ns) AS last_ns"
        " FROM attempt_mistakes JOIN attempts ON attempts.id = attempt_id GROUP BY exercise, mistake"
    )
    known: dict[str, dict[str, Mistake]] = {}
    found = []
    for row in seen:
        slug = row["exercise"]
        if slug not in known:
            known[slug] = _mistakes(catalogue, slug)
        mistake = known[slug].get(row["mistake"])
        mended = journal.rows(
            "SELECT min(at_ns) AS at_ns FROM attempts JOIN attempt_parts ON attempts.id = attempt_id"
            " WHERE exercise = ? AND at_ns > ? AND attempt_parts.part = ? AND attempt_parts.passed",
            slug,
            row["last_ns"],
            mistake.part if mistake else 0,
        )
        found.append(
            MistakeMade(
                slug,
                row["mistake"],
                mistake.title if mistake else row["mistake"],
                mistake.says if mistake else "",
                row["count"],
                row["first_ns"],
                row["last_ns"],
                mended[0]["at_ns"],
            )
        )
    return sorted(found, key=lambda item: (item.mended_ns is not None, -item.last_ns))


def readiness_by_topic(
    found: Sequence[Card], headlines: Sequence[Headline], interview_ns: int, now_ns: int
) -> list[tuple[str, str, Readiness | None]]:
    """(track, or "quiz:" and a quiz topic; how much of it was drilled; forecast); None for a track without cards.

    A forecast is over what was drilled: how much that is has to stand beside it.
    """
    tracks = {item.slug: item.track for item in headlines}
    merged: dict[str, list[Readiness]] = {}
    for topic, forecast in readiness(found, interview_ns, now_ns).items():
        merged.setdefault(tracks.get(topic, topic), []).append(forecast)
    rows: list[tuple[str, str, Readiness | None]] = []
    for track in (track for track in TRACKS if track in tracks.values()):
        parts = merged.get(track, [])
        extent = f"{len(parts)} of {sum(other == track for other in tracks.values())} exercises"
        rows.append((track, extent, _together(parts) if parts else None))
    for topic in sorted(topic for topic in merged if topic.startswith(CARD_PREFIX + ":")):
        (forecast,) = merged[topic]
        rows.append((topic, f"{forecast.cards} question{'s' if forecast.cards != 1 else ''}", forecast))
    return rows


def _together(parts: Sequence[Readiness]) -> Readiness:
    count = sum(part.cards for part in parts)
    return Readiness(
        count,
        sum(part.cards * part.left_alone for part in parts) / count,
        sum(part.cards * part.reviews_kept for part in parts) / count,
        sum(part.reviews for part in parts),
    )


def _mistakes(catalogue: Catalogue, slug: str) -> dict[str, Mistake]:
    try:
        return {mistake.id: mistake for mistake in read_mistakes(catalogue.exercise(slug))}
    except KitError:
        return {}  # an exercise of another version, or of another machine
