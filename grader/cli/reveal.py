"""``kit reveal``: the annotated solution and how yours differs, after a pass, a real try, or with a code."""

from __future__ import annotations

import difflib
import sys
import time

import click

from grader.catalogue import Catalogue
from grader.cli.common import console, find, note, shown
from grader.errors import RequestError
from grader.journal import drills as journal_drills
from grader.journal.store import Journal
from grader.model import Exercise
from grader.review.cards import interview
from grader.review.schedule import Rating, next_review
from grader.workspace import Workspace

MINUTE_NS = 60 * 10**9


@click.command()
@click.argument("name")
@click.option("--code", help="The code your instructor gave out, for an exercise that is sealed.")
@click.option("--yes", is_flag=True, help="Do not ask again before showing the solution of an exercise not passed.")
def reveal(name: str, code: str | None, yes: bool) -> int:
    """Show the annotated solution of NAME, and the difference to your file.

    Free once you have passed. Before that it takes a real try (some attempts, or some minutes since you
    started), is asked again, and lowers your next reviews of the exercise.
    """
    if code is not None:
        from grader.cli.teach import reveal_with_code

        return reveal_with_code(name, code)
    workspace = Workspace.find()
    exercise = find(Catalogue(), name, workspace).exercise
    if not exercise.solution_path.exists():
        raise RequestError(f"the solution of {exercise.slug} is sealed", f"kit reveal {exercise.slug} --code CODE")
    if not workspace.exists:
        raise RequestError(_refusal(exercise, 0, 0.0), f"kit start {exercise.slug}")
    with Journal.open(workspace.journal_path) as journal:
        for remark in journal.notes:
            note(remark)
        passed = any(
            attempt.passed and attempt.max_points == exercise.max_points for attempt in journal.attempts(exercise.slug)
        )
        if not passed:
            tries = sum(attempt.started and attempt.source != "debug" for attempt in journal.attempts(exercise.slug))
            started_ns = journal.first_start_ns(exercise.slug)
            minutes = 0.0 if started_ns is None else (time.time_ns() - started_ns) / MINUTE_NS
            enough = tries >= exercise.reveal_after_attempts or (tries and minutes >= exercise.reveal_after_minutes)
            if not enough:
                raise RequestError(
                    _refusal(exercise, tries, minutes), f"kit hint {exercise.slug} helps a step at a time"
                )
            if not yes and not click.confirm(
                f"You have not passed {exercise.slug} yet. Show its solution, and have it come up again soon?", err=True
            ):
                click.echo("kept closed")
                return 1
        journal.record_reveal(exercise.slug, "passed" if passed else "tried")
        if not passed:
            _lower_reviews(journal, exercise)
    _show(exercise, workspace)
    return 0


def _refusal(exercise: Exercise, tries: int, minutes: float) -> str:
    return (
        f"the solution of {exercise.slug} opens after a pass, after {exercise.reveal_after_attempts} graded tries"
        f" (you have {tries}), or {exercise.reveal_after_minutes} minutes after you started and one try"
        + (f" (it has been {minutes:.0f})" if minutes else "")
    )


def _lower_reviews(journal: Journal, exercise: Exercise) -> None:
    """What was looked up was not remembered: every card of the exercise comes up again soon."""
    now_ns = time.time_ns()
    for review in journal_drills.latest_reviews(journal):
        if review.card.split(":")[0] == exercise.slug:
            scheduled = next_review(review.memory, Rating.AGAIN, now_ns, interview(journal))
            journal_drills.record_review(
                journal, review.card, int(Rating.AGAIN), scheduled.due_ns, scheduled.memory, now_ns
            )


def _show(exercise: Exercise, workspace: Workspace) -> None:
    from rich.syntax import Syntax
    from rich.text import Text

    out = console()
    solution = exercise.solution_path.read_text(encoding="utf-8")
    out.print(Text(f"{exercise.title}: the solution", "bold"))
    if out.is_terminal:
        out.print(Syntax(solution, "python", theme="ansi_dark", background_color="default", word_wrap=True))
    else:
        click.echo(solution)
    path = workspace.file(exercise.slug)
    if not path.exists():
        return
    mine = path.read_text(encoding="utf-8-sig", errors="replace")
    lines = list(
        difflib.unified_diff(
            mine.splitlines(), solution.splitlines(), shown(path), f"solution of {exercise.slug}", lineterm="", n=2
        )
    )
    if not lines:
        click.echo("your file is the solution, to the letter")
        return
    out.print(Text("\nfrom your file to the solution", "bold"))
    if out.is_terminal:
        out.print(Syntax("\n".join(lines), "diff", theme="ansi_dark", background_color="default", word_wrap=True))
    else:
        click.echo("\n".join(lines))
    sys.stdout.flush()
