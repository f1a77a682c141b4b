"""``kit quiz``: numbers to work out and questions to answer aloud."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable

import click
from rich.text import Text

from grader import paths
from grader.cli.common import console, note
from grader.cli.escape import visible
from grader.cli.words import date, days, minutes
from grader.journal import drills as journal_drills
from grader.journal import sessions
from grader.journal.store import Journal
from grader.review.cards import cards, interview
from grader.review.numbers import Unreadable, readings
from grader.review.quiz import (
    PASS_SHARE,
    Asked,
    Bank,
    Numeric,
    Question,
    Spoken,
    choose,
    how_far,
    rate_numeric,
    rate_spoken,
)
from grader.review.schedule import Rating, next_review
from grader.workspace import Workspace

QUIT_WORDS = frozenset({"q", "quit", "exit"})
MAX_SEED = 2**31
MIXED_SPOKEN = 1
"""Spoken questions in a round of both kinds."""


class Stop(Exception):
    """The learner has had enough."""


@click.command()
@click.argument("topic", required=False)
@click.option("--count", type=click.IntRange(min=1, max=100), default=5, show_default=True, help="How many questions.")
@click.option("--numbers", "kind", flag_value="numbers", help="Only numbers to work out.")
@click.option("--spoken", "kind", flag_value="spoken", help="Only questions to answer aloud.")
@click.option(
    "--seed", type=click.IntRange(min=0, max=MAX_SEED - 1), help="Draw the numbers of an earlier round again."
)
def quiz(topic: str | None, count: int, kind: str | None, seed: int | None) -> int:
    """Answer questions of TOPIC (attention, serving, ...; all if not given): what is due first, then what is new.

    Numbers are drawn anew each time, and a number is taken in any unit that fits: 1.5e9, 1_000, 12.9B, 70 GiB.
    Questions to answer aloud come with a rubric, which you mark yourself. Exit code 0: all answered well.
    """
    bank = Bank(paths.content_root())
    questions = bank.about(topic)
    if kind is not None:
        wanted = Numeric if kind == "numbers" else Spoken
        questions = tuple(question for question in questions if isinstance(question, wanted))
        if not questions:
            raise click.UsageError(f"{topic} has no such questions")
    workspace = Workspace.find()
    workspace.prepare()
    rng = random.Random(secrets.randbits(60) if seed is None else seed)
    with Journal.open(workspace.journal_path) as journal:
        for remark in journal.notes:
            note(remark)
        due = {card.name: card.due_ns for card in cards(journal, time.time_ns())}
        round_ = _round(questions, due, count, rng)
        good = 0
        answered = 0
        try:
            for number, question in enumerate(round_, start=1):
                click.secho(f"\n{number} of {len(round_)}: {question.topic}, {question.minutes:g} min", bold=True)
                rating = ask(journal, bank, question, rng.randrange(MAX_SEED))
                answered += 1
                good += rating is not Rating.AGAIN
        except (Stop, click.Abort, EOFError, KeyboardInterrupt):
            click.echo("\nended here; what you answered is kept")
    if answered:
        click.secho(f"\n{good} of {answered} answered well", bold=True, fg="green" if good == answered else None)
    return 0 if answered and good == answered else 1


def ask(journal: Journal, bank: Bank, question: Question, seed: int) -> Rating:
    """Ask one question, record the answer, schedule its card, and tell both.

    Raises:
        Stop: the learner quits; nothing of this question is recorded.
    """
    if isinstance(question, Numeric):
        asked = bank.ask(question, seed)
        said, right, seconds = ask_number(asked)
        tell_number(asked, said, right, seconds)
        points, max_points, rating = float(right), 1.0, rate_numeric(right, seconds, question.minutes)
    else:
        seconds = speak(question)
        points = float(mark(question))
        max_points = float(question.max_points)
        said, rating = "", rate_spoken(points, question.max_points, seconds, question.minutes)
    due_ns = keep(journal, question, seed, said, points, max_points, seconds, rating)
    click.secho(
        f"{rating.name.capitalize()}; it comes again in {days(due_ns - time.time_ns())}, {date(due_ns)}", dim=True
    )
    return rating


def keep(
    journal: Journal,
    question: Question,
    seed: int,
    said: str,
    points: float,
    max_points: float,
    seconds: float,
    rating: Rating,
) -> int:
    """Record an answer and its review as one fact; when the card is due next."""
    now_ns = time.time_ns()
    with journal.transaction():
        sessions.record_answer(journal, question.card, seed, said, points, max_points, seconds, now_ns)
        earlier = journal_drills.reviews(journal, question.card)
        scheduled = next_review(earlier[-1].memory if earlier else None, rating, now_ns, interview(journal))
        journal_drills.record_review(
            journal, question.card, int(rating), scheduled.due_ns, scheduled.memory, now_ns, None
        )
    return scheduled.due_ns


def ask_number(asked: Asked) -> tuple[str, bool, float]:
    """Show a question and read an answer until it can be read; what was said, whether it is right, the seconds.

    Raises:
        Stop: the learner quits.
    """
    console().print(Text(visible(asked.text)))
    began = time.monotonic()
    prompt = f"answer{f' in {asked.unit}' if asked.unit else ''} (? if you do not know)"
    while True:
        said = _line(prompt)
        if not said:
            continue  # an empty line is no answer
        if said == "?":
            return "", False, time.monotonic() - began
        try:
            return said, asked.accepts(said), time.monotonic() - began
        except Unreadable as error:
            click.secho(visible(str(error)), fg="yellow")


def tell_number(asked: Asked, said: str, right: bool, seconds: float) -> None:
    """The verdict on a number, and how it is worked out."""
    exact = "exactly" if asked.tolerance == 0 else f"give or take {asked.tolerance:.2%}".replace(".00", "")
    out = console()
    if right:
        out.print(Text(f"Right, {minutes(seconds)}.", "bold green"))
    else:
        unit = f"{'' if asked.unit == '%' else ' '}{asked.unit}" if asked.unit else ""
        far = how_far(readings(said, asked.unit), asked.answer) if said else ""
        out.print(Text(f"The answer is {number(asked.answer)}{unit} ({exact}){f'; {far}' if far else ''}.", "bold red"))
    out.print(Text(visible(asked.worked)))


def speak(question: Spoken, pause: Callable[[str], str] | None = None) -> float:
    """Ask a question and its follow-up; the seconds until the learner had spoken.

    Raises:
        Stop: the learner quits.
    """
    wait = pause or _line
    out = console()
    out.print(Text(visible(question.question), "bold"))
    began = time.monotonic()
    wait("answer aloud, then press Enter")
    out.print(Text(visible(question.follow_up), "bold"))
    wait("and this, then press Enter")
    return time.monotonic() - began


def mark(question: Spoken) -> int:
    """Show the model answer and have the learner mark each line of the rubric; the points.

    Raises:
        Stop: the learner quits.
    """
    out = console()
    out.print(Text("\nA good answer", "bold"))
    out.print(Text(visible(" ".join(question.answer.split()))))
    out.print(Text(visible(" ".join(question.follow_up_answer.split()))))
    out.print(Text("\nHonestly, which of these did you say?", "bold"))
    points = 0
    for line in question.rubric:
        while (said := _line(f"  {visible(line.says)} ({line.points}) [y/N]").lower()) not in (
            "y",
            "yes",
            "n",
            "no",
            "",
        ):
            click.secho("  y or n", fg="yellow")
        points += line.points * said.startswith("y")
    style = "bold green" if points >= PASS_SHARE * question.max_points else "bold red"
    out.print(Text(f"{points} of {question.max_points} points", style))
    return points


def number(value: float) -> str:
    """A number as an answer shows it: whole ones whole, others to four digits."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def _round(questions: tuple[Question, ...], due: dict[str, int], count: int, rng: random.Random) -> list[Question]:
    """The round's questions; with both kinds there, mostly numbers and a spoken one at the end."""
    now_ns = time.time_ns()
    numeric = [question for question in questions if isinstance(question, Numeric)]
    spoken = [question for question in questions if isinstance(question, Spoken)]
    share = 0 if not spoken else count if not numeric else max(count // 5, MIXED_SPOKEN) if count > 1 else 0
    chosen = choose(spoken, due, now_ns, share, rng)
    return [*choose(numeric, due, now_ns, count - len(chosen), rng), *chosen]


def _line(prompt: str) -> str:
    said = str(click.prompt(prompt, default="", show_default=False, prompt_suffix=": ")).strip()
    if said.lower() in QUIT_WORDS:
        raise Stop
    return said
