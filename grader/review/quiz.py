"""The question bank: numeric questions with fresh numbers, spoken questions with a rubric.

The bank is content (`quiz/README.md` describes its files); it is loaded by path, the calculators too.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
import random
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.errors import ContentError, RequestError
from grader.review.numbers import agrees
from grader.review.schedule import EASY_UNDER, Rating

CARD_PREFIX = "quiz"
_NO_BANK = "this kit has no question bank", "a kit made for a class has none; quiz and interview need the whole kit"
PASS_SHARE = 0.5
GOOD_SHARE = 0.8
_FACTORS = {2.0: "2", 0.5: "1/2", 4.0: "4", 0.25: "1/4", 8.0: "8", 0.125: "1/8", 1000.0: "1000", 1e-3: "1/1000"}


@dataclass(frozen=True)
class Numeric:
    """A question whose numbers are drawn anew; `table` is its entry in numeric.toml."""

    id: str
    topic: str
    title: str
    minutes: float
    table: Mapping[str, Any]

    @property
    def card(self) -> str:
        """The name of its card."""
        return f"{CARD_PREFIX}:{self.topic}:{self.id}"


@dataclass(frozen=True)
class RubricLine:
    """One thing a good spoken answer contains."""

    says: str
    points: int


@dataclass(frozen=True)
class Spoken:
    """A question to answer aloud, with what a good answer says."""

    id: str
    topic: str
    minutes: float
    question: str
    answer: str
    follow_up: str
    follow_up_answer: str
    rubric: tuple[RubricLine, ...]

    @property
    def card(self) -> str:
        """The name of its card."""
        return f"{CARD_PREFIX}:{self.topic}:{self.id}"

    @property
    def max_points(self) -> int:
        """The sum of the rubric's points."""
        return sum(line.points for line in self.rubric)


Question = Numeric | Spoken


@dataclass(frozen=True)
class Asked:
    """A numeric question with its numbers."""

    question: Numeric
    seed: int
    text: str
    unit: str
    answer: float
    tolerance: float
    worked: str

    def accepts(self, said: str) -> bool:
        """Whether what was typed is the answer.

        Raises:
            Unreadable: it is no number in any unit of this question.
        """
        return agrees(said, self.unit, self.answer, self.tolerance)


class Bank:
    """All questions of a content folder.

    Raises:
        ContentError: a file of the bank is missing or breaks its format.
    """

    def __init__(self, root: Path) -> None:
        folder = root / "quiz"
        self._geometries = _toml(folder / "geometries.toml")
        self._calculators = _module(folder / "calculators.py")
        try:
            self.numeric = tuple(
                Numeric(row["id"], row["topic"], row["title"], float(row["minutes"]), row)
                for row in _toml(folder / "numeric.toml")["question"]
            )
            self.spoken = tuple(_spoken(row) for row in _toml(folder / "spoken.toml")["question"])
        except (KeyError, TypeError, ValueError) as error:
            raise ContentError(f"{folder}: a question lacks or misstates {error}") from error

    @property
    def questions(self) -> tuple[Question, ...]:
        """Every question."""
        return (*self.numeric, *self.spoken)

    @property
    def topics(self) -> tuple[str, ...]:
        """Every topic, in the order of the bank."""
        return tuple(dict.fromkeys(question.topic for question in self.questions))

    def about(self, topic: str | None) -> tuple[Question, ...]:
        """The questions of a topic (or its beginning), the one question with this id, or all.

        Raises:
            RequestError: there is no such topic or question.
        """
        if topic is None:
            return self.questions
        wanted = topic.strip().lower().replace("_", "-").replace(" ", "-")
        named = tuple(question for question in self.questions if question.id == wanted)
        found = named or tuple(question for question in self.questions if question.topic.startswith(wanted))
        if not found or not wanted:
            raise RequestError(f"there is no topic {topic!r}", f"the topics are {', '.join(self.topics)}")
        return found

    def ask(self, question: Numeric, seed: int) -> Asked:
        """The question with the numbers that a seed draws.

        Raises:
            ContentError: the question's templates or calculator do not fit together.
        """
        table, rng = question.table, random.Random(seed)
        try:
            values: dict[str, Any] = {}
            if "models" in table:
                values |= self._geometries[rng.choice(table["models"])]
            for name, rule in table.get("draw", {}).items():
                values[name] = _drawn(rule, values, rng)
            calculator = getattr(self._calculators, table["calculator"])
            given = {name: values[name] for name in inspect.signature(calculator).parameters}
            answer, steps = calculator(**given)
            text = table["text"].format(**values)
            worked = table["worked"].format(**values, **steps, answer=answer)
        except (KeyError, AttributeError, IndexError, TypeError, ValueError, ArithmeticError) as error:
            raise ContentError(f"quiz question {question.id}: {type(error).__name__}: {error}") from error
        return Asked(question, seed, text, table["unit"], float(answer), float(table["tolerance"]), worked)


def choose(
    questions: Sequence[Question], due_ns: Mapping[str, int], now_ns: int, count: int, rng: random.Random
) -> list[Question]:
    """The questions to ask: those due, the longest overdue first, then unseen ones, then the soonest due.

    Args:
        due_ns: card to the time it is due, for cards seen before.
        rng: draws among unseen questions.
    """
    shuffled = rng.sample(list(questions), len(questions))
    overdue = sorted((q for q in shuffled if due_ns.get(q.card, now_ns + 1) <= now_ns), key=lambda q: due_ns[q.card])
    unseen = [q for q in shuffled if q.card not in due_ns]
    later = sorted((q for q in shuffled if due_ns.get(q.card, now_ns) > now_ns), key=lambda q: due_ns[q.card])
    return [*overdue, *unseen, *later][:count]


def rate_spoken(points: float, max_points: int, seconds: float, minutes: float) -> Rating:
    """The rating of a spoken answer from the rubric: under half Again; over time or under 80% Hard; all of it Easy."""
    share = points / max_points if max_points else 0.0
    if share < PASS_SHARE:
        return Rating.AGAIN
    if share < GOOD_SHARE or seconds > 60 * minutes:
        return Rating.HARD
    return Rating.EASY if share == 1 else Rating.GOOD


def rate_numeric(right: bool, seconds: float, minutes: float) -> Rating:
    """The rating of a number: wrong Again, over the target Hard, in it Good, under 60% of it Easy."""
    if not right:
        return Rating.AGAIN
    if seconds > 60 * minutes:
        return Rating.HARD
    return Rating.EASY if seconds < EASY_UNDER * 60 * minutes else Rating.GOOD


def how_far(said: Iterable[float], answer: float) -> str:
    """What a wrong number's ratio to the answer suggests, or an empty string."""
    ratios = [reading / answer for reading in said if answer and reading]
    if not ratios:
        return ""
    ratio = min(ratios, key=lambda value: abs(math.log(abs(value))))
    for factor, what in _FACTORS.items():
        if abs(ratio / factor - 1) < 0.01:
            return f"yours is {what} times the answer"
    for power in (1, 2, 3):
        unit = 1.024**power
        if min(abs(ratio / unit - 1), abs(ratio * unit - 1)) < 0.004:
            return "yours is off by what separates powers of 1000 from powers of 1024"
    return f"yours is {ratio:.3g} times the answer"


def _drawn(rule: Mapping[str, Any], values: Mapping[str, Any], rng: random.Random) -> Any:
    if "choices" in rule:
        return rng.choice(rule["choices"])
    if "share" in rule:
        return int(rng.uniform(*rule["share"]) * values[rule["of"]])
    return rng.randrange(rule["low"], rule["high"] + 1, rule["step"])


def _spoken(row: Mapping[str, Any]) -> Spoken:
    return Spoken(
        row["id"],
        row["topic"],
        float(row["minutes"]),
        row["question"].strip(),
        row["answer"].strip(),
        row["follow_up"].strip(),
        row["follow_up_answer"].strip(),
        tuple(RubricLine(line["says"], int(line["points"])) for line in row["rubric"]),
    )


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RequestError(*_NO_BANK) from None
    except (OSError, ValueError) as error:
        raise ContentError(f"{path} cannot be read: {error}") from error


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("kit_quiz_calculators", path)
    if spec is None or spec.loader is None or not path.exists():
        raise RequestError(*_NO_BANK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
