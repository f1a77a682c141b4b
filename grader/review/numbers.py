"""Numbers as people type them, read in a question's unit: 1.5e9, 1_000, 12.9B, 70 GiB, 3.2 x 10^23, 45%."""

from __future__ import annotations

import math
import re

_COUNTS = {
    **dict.fromkeys(("k", "thousand"), 1e3),
    **dict.fromkeys(("m", "mn", "million", "millions"), 1e6),
    **dict.fromkeys(("b", "bn", "g", "billion", "billions"), 1e9),
    **dict.fromkeys(("t", "tn", "trillion", "trillions"), 1e12),
    "p": 1e15,
}
_LETTERS = "kmgtp"
_BYTES = {
    **dict.fromkeys(("b", "byte", "bytes"), 1.0),
    **{f"{letter}b": 1000.0**power for power, letter in enumerate(_LETTERS, start=1)},
    **{f"{letter}ib": 1024.0**power for power, letter in enumerate(_LETTERS, start=1)},
}
_FLOPS = {
    f"{letter}{word}": 1000.0**power
    for power, letter in enumerate(("", *_LETTERS, "e", "z", "y"))
    for word in ("flop", "flops")
}
_SECONDS = {
    **dict.fromkeys(("s", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("week", "weeks"), 7 * 86400.0),
    **dict.fromkeys(("year", "years"), 365.25 * 86400.0),
}
_FILLERS = frozenset({"about", "approximately", "around", "roughly", "x", "times", "of", "per"})

_PLAIN = r"\d{1,3}(?:[,_' ]\d{3})+(?!\d)(?:\.\d*)?|\d+,\d+(?![\d,])|\d[\d_]*(?:\.\d*)?|\.\d+"
_NUMBER = re.compile(rf"([-+]?(?:{_PLAIN}))(?:e([-+]?\d+))?")
_POWER = re.compile(r"(?:\^|\*\*)\s*([-+]?\d+)")
_TIMES_POWER = re.compile(r"(?:\s*[x*·×]\s*|\s+)(\d+)\s*(?:\^|\*\*)\s*([-+]?\d+)")
_OVER = re.compile(rf"\s*/\s*({_PLAIN})(?![\w/])")


class Unreadable(ValueError):
    """The text is no number, or names a unit that the question does not have."""


def readings(text: str, unit: str) -> frozenset[float]:
    """What the text can mean, as numbers in `unit`.

    Several readings exist only where people write both: 12.9B is billions and bytes, and a bare 7e10 may be given
    for a question in billions.

    Args:
        text: what was typed.
        unit: the question's unit, as a question bank writes it: "GiB", "billion parameters", "10^21 FLOPs", "%".

    Raises:
        Unreadable: it cannot be read; the message says why.
    """
    value, words = _value(text)
    family, scale = _unit(unit)
    own = {word for word in re.split(r"[^a-z%]+", unit.lower()) if word}
    rest = [word for word in words if word not in _FILLERS and not _belongs(word, own, family)]
    if family == "bytes" and len(rest) == 2 and rest[1] in ("byte", "bytes"):
        rest = rest[:1]  # billion bytes
    if not rest:
        own_word = any(word in _BYTES or word in _COUNTS or word in _SECONDS for word in words)
        return frozenset({value} if own_word or scale == 1 or family == "seconds" else {value, value / scale})
    if len(rest) > 1:
        raise Unreadable(f"{' '.join(rest)!r} is not understood; the answer is in {unit or 'plain numbers'}")
    factors = _factors(rest[0], family, unit)
    if not factors:
        raise Unreadable(f"{rest[0]!r} is no unit of this answer, which is in {unit or 'plain numbers'}")
    return frozenset(value * factor / scale for factor in factors)


def agrees(text: str, unit: str, answer: float, tolerance: float) -> bool:
    """Whether the text means the answer within a relative tolerance; 0 asks for the exact number.

    Raises:
        Unreadable: it cannot be read.
    """
    allowed = max(tolerance, 1e-9) * abs(answer)
    return any(abs(reading - answer) <= allowed for reading in readings(text, unit))


def _value(text: str) -> tuple[float, list[str]]:
    """The number and the words behind it."""
    typed = text.strip().lower().lstrip("=~≈ ").removeprefix("about ").replace("\u00a0", " ").replace("−", "-")
    match = _NUMBER.match(typed)
    if match is None:
        raise Unreadable(f"{text.strip()!r} does not begin with a number")
    value, rest = _plain(match[1]), typed[match.end() :]
    try:
        if match[2] is not None:
            value *= 10.0 ** int(match[2])
        elif (power := _POWER.match(rest)) is not None:
            value, rest = value ** int(power[1]), rest[power.end() :]
        elif (over := _OVER.match(rest)) is not None:
            value, rest = value / _plain(over[1]), rest[over.end() :]
        if (times := _TIMES_POWER.match(rest)) is not None:
            value, rest = value * float(times[1]) ** int(times[2]), rest[times.end() :]
    except (OverflowError, ZeroDivisionError):
        raise Unreadable(f"{text.strip()!r} is no finite number") from None
    if not math.isfinite(value):
        raise Unreadable(f"{text.strip()!r} is no finite number")
    return value, [word for word in re.split(r"[\s/().]+", rest) if word]


def _plain(digits: str) -> float:
    if re.fullmatch(r"[-+]?\d+,\d+", digits) and not re.fullmatch(r"[-+]?\d{1,3},\d{3}", digits):
        return float(digits.replace(",", "."))
    return float(re.sub(r"[,_' ]", "", digits))


def _unit(unit: str) -> tuple[str, float]:
    """What a question's unit measures, and its size in the family's base."""
    first = unit.lower().split()[0] if unit.split() else ""
    if first == "%":
        return "percent", 1.0
    if first in _BYTES:
        return "bytes", _BYTES[first]
    if first in _SECONDS:
        return "seconds", _SECONDS[first]
    if first in ("billion", "million", "thousand", "trillion"):
        return "count", _COUNTS[first]
    if (power := re.fullmatch(r"10\^(\d+)", first)) is not None:
        return "count", 10.0 ** int(power[1])
    return "count", 1.0


def _belongs(word: str, own: set[str], family: str) -> bool:
    """Whether the word only repeats the question's own unit, in the singular or the plural."""
    if family == "percent" and word in ("%", "percent", "pct"):
        return True
    return word in own or f"{word}s" in own or (word.endswith("s") and word[:-1] in own)


def _factors(word: str, family: str, unit: str) -> set[float]:
    """The sizes, in the family's base, that a word can stand for."""
    if family == "bytes":
        found = {_BYTES[word]} if word in _BYTES else set()
        if len(word) == 1 and word in _LETTERS:
            found.add(_BYTES[f"{word}ib" if "ib" in unit.lower() else f"{word}b"])
        if word in ("b", "bn", "billion"):
            found.add(1e9)
        if word in ("million", "trillion"):
            found.add(_COUNTS[word])
        return found
    if family == "seconds":
        return {_SECONDS[word]} if word in _SECONDS else set()
    if family == "percent":
        return set()
    if word in _COUNTS:
        return {_COUNTS[word]}
    return {_FLOPS[word]} if word in _FLOPS and "flop" in unit.lower() else set()
