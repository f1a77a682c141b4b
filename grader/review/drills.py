"""What a drill asks for, when it is done, and how it went."""

from __future__ import annotations

import io
import random
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from grader.errors import RequestError
from grader.journal import drills
from grader.journal.drills import DrillRow
from grader.journal.store import Journal
from grader.model import Attempt, Exercise
from grader.retype import cloze_sites, cloze_text, retype_text, symbol_drill_text
from grader.review.schedule import Rating, Scheduled, card_name, next_review, rate
from grader.stubs import stub_text

CLOZE_SHARE = 0.5
"""The share of an exercise's clozeable expressions that one drill blanks, drawn anew each time."""
DEFAULT_SYMBOL_SHARE = 3
_LAYOUT = frozenset(
    getattr(tokenize, name) for name in ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER", "ENCODING")
)


class Mode(StrEnum):
    """How much of the solution a drill leaves on the page."""

    COPY = "copy"
    CLOZE = "cloze"
    BLANK = "blank"


@dataclass(frozen=True)
class Plan:
    """A drill about to begin.

    Attributes:
        part: the part whose tests must pass; for a symbol, the part it belongs to.
        page: what the learner's file holds at first.
        beside: what is shown beside it, "" for nothing.
        target_seconds: the target.
    """

    exercise: Exercise
    part: int
    symbol: str
    mode: Mode
    page: str
    beside: str
    target_seconds: float

    @property
    def file_stem(self) -> str:
        """The stem of the drill's own file, apart from the exercise's."""
        return f"{self.exercise.slug}_drill"


@dataclass(frozen=True)
class Result:
    """A finished drill against its target and the learner's own past."""

    drill: DrillRow
    rating: Rating
    scheduled: Scheduled
    best_seconds: float | None
    previous_seconds: float | None


def plan(exercise: Exercise, solution: str, mode: Mode, symbol: str = "", part: int = 1, seed: int = 0) -> Plan:
    """Lay a drill out.

    Args:
        exercise: the exercise.
        solution: the reference's text.
        mode: copy, cloze or blank.
        symbol: one name to write, the rest given; "" for the whole part.
        part: the part when no symbol is named.
        seed: which expressions a cloze blanks.

    Raises:
        RequestError: no such part or symbol.
    """
    if symbol:
        part = next((p.number for p in exercise.parts if symbol in p.symbols), 0)
        if not part:
            raise RequestError(f"{exercise.slug} asks for no {symbol}", f"it asks for {', '.join(exercise.symbols)}")
    elif part not in {p.number for p in exercise.parts}:
        raise RequestError(f"{exercise.slug} has no part {part}", f"its parts are 1 to {len(exercise.parts)}")
    blank = symbol_drill_text(exercise, solution, symbol) if symbol else stub_text(exercise, solution)
    names = (symbol,) if symbol else exercise.parts[part - 1].symbols
    beside, page = "", blank
    if mode is Mode.COPY:
        beside = retype_text(solution, names)
    elif mode is Mode.CLOZE:
        page = _cloze(solution, names, seed)
    return Plan(exercise, part, symbol, mode, page, beside, target_seconds(exercise, part, symbol))


def solution_of(exercise: Exercise) -> str:
    """The reference's text.

    Raises:
        RequestError: it is sealed (in a student kit), or cannot be read.
    """
    try:
        return exercise.solution_path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RequestError(
            f"the solution of {exercise.slug} is sealed, and practice against it has to wait",
            f"kit reveal {exercise.slug} --code CODE opens it",
        ) from None
    except OSError as error:
        raise RequestError(f"{exercise.solution_path} cannot be read: {error.strerror}") from error


def target_seconds(exercise: Exercise, part: int, symbol: str = "") -> float:
    """The target of a drill: a symbol's own minutes, or the exercise's, which are those of part 1."""
    if symbol in exercise.symbols_minutes:
        return 60.0 * exercise.symbols_minutes[symbol]
    if symbol and len(exercise.symbols) > 1 and part > 1:
        return 60.0 * max(2, exercise.minutes // DEFAULT_SYMBOL_SHARE)
    return 60.0 * exercise.minutes


def done(attempt: Attempt, part: int) -> bool:
    """Whether the attempt ends a drill of this part."""
    return any(result.number == part and result.passed for result in attempt.parts)


def differing_tokens(mine: str, solution: str, names: Sequence[str] | None = None) -> int:
    """How many tokens of two sources differ, layout, comments and docstrings aside.

    Source that does not tokenize counts as all different.
    """
    theirs = _tokens(retype_text(solution, names))
    try:
        ours = _tokens(retype_text(mine, names))
    except Exception:
        try:
            ours = _tokens(mine)
        except (tokenize.TokenError, SyntaxError, IndentationError):
            return len(theirs)
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    return sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in matcher.get_opcodes() if kind != "equal")


def conclude(
    journal: Journal,
    drill: DrillRow,
    passed: bool,
    now_ns: int,
    tokens: int | None = None,
    interview_ns: int | None = None,
    override: Rating | None = None,
) -> Result | None:
    """End a drill: rate it, schedule its card, compare it with the past.  None when it had ended already."""
    card = card_name(drill.exercise, drill.part, drill.mode, drill.symbol)
    earlier = [
        row
        for row in drills.history(journal, drill.exercise)
        if (row.part, row.symbol, row.mode, row.state) == (drill.part, drill.symbol, drill.mode, "passed")
    ]
    hints = drills.hints_since(journal, drill.exercise, drill.part, drill.started_ns)
    revealed = drills.revealed_since(journal, drill.exercise, drill.started_ns)
    found = drills.drill(journal, drill.id)
    rating = override or rate(passed, found.elapsed_seconds, drill.target_seconds, hints, found.attempts <= 1, revealed)
    if not drills.finish(journal, drill.id, passed, now_ns, tokens):
        return None
    reviews = drills.reviews(journal, card)
    scheduled = next_review(reviews[-1].memory if reviews else None, rating, now_ns, interview_ns)
    drills.record_review(journal, card, int(rating), scheduled.due_ns, scheduled.memory, now_ns, drill.id)
    times = [row.elapsed_seconds for row in earlier]
    return Result(
        drills.drill(journal, drill.id), rating, scheduled, min(times, default=None), times[-1] if times else None
    )


def _cloze(solution: str, names: Sequence[str], seed: int) -> str:
    text = retype_text(solution)
    sites = [site for name in names for site in cloze_sites(text, name)]
    drawn = random.Random(seed).sample(sites, max(1, round(CLOZE_SHARE * len(sites)))) if sites else []
    return cloze_text(text, drawn)


def _tokens(source: str) -> list[str]:
    return [
        token.string for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type not in _LAYOUT
    ]
