"""Times, dates and commands in words, for the practice commands; loads little."""

from __future__ import annotations

from datetime import datetime

from grader.cli.plurals import counted
from grader.review import hunts
from grader.review.drills import Mode
from grader.review.quiz import CARD_PREFIX
from grader.review.schedule import DAY_NS


def again(card: str) -> str:
    """The command that practises a card."""
    name, part, mode, symbol = [*card.split(":"), "", "", ""][:4]
    if name == CARD_PREFIX:
        return f"kit quiz {mode}"
    if mode in hunts.MODES:
        return f"kit debug {name}" + (" --hard" if mode == hunts.mode(hard=True) else "")
    if symbol:
        return f"kit drill {name}:{symbol}" + (f" --mode {mode}" if mode != Mode.BLANK else "")
    return (
        f"kit drill {name}"
        + (f" --part {part}" if part != "1" else "")
        + (f" --mode {mode}" if mode != Mode.BLANK else "")
    )


def minutes(seconds: float) -> str:
    """A duration as minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def days(duration_ns: int) -> str:
    """A duration in whole days."""
    return counted(max(0, round(duration_ns / DAY_NS)), "day")


def days_until(at_ns: int, now_ns: int) -> str:
    """How many midnights of the learner's time zone lie between."""
    first, last = (datetime.fromtimestamp(ns / 1e9).astimezone().date() for ns in (now_ns, at_ns))
    return days(max(0, (last - first).days) * DAY_NS)


def date(at_ns: int) -> str:
    """A day in the learner's time zone."""
    return datetime.fromtimestamp(at_ns / 1e9).astimezone().date().isoformat()
