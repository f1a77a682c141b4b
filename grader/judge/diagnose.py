"""Which known mistake does a submission hold?

A mistake's variant is run through the same tests.  It explains a failing test
when every comparison up to the failure saw the same values; it is contradicted
when it fails a test that the submission passed.  A name is given only where
the evidence leaves one mistake (or one pair) standing.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from grader.judge import compare
from grader.judge.pack import HiddenTest, Pack
from grader.judge.trial import Ended, run_own_test
from grader.model import Diagnosis, Mistake, Outcome

PAIR_BUDGET_SECONDS = 4.0
SINGLE_BUDGET_SECONDS = 20.0
_SPEAKING = (Outcome.FAILED, Outcome.ERROR)


class VariantRuns:
    """How each variant ends each test under one seed, run when first asked and then remembered."""

    def __init__(self, pack: Pack, run_seed: int, device: str = "cpu") -> None:
        self._pack, self._run_seed, self._device = pack, run_seed, device
        self._sources: dict[tuple[str, ...], str | None] = {}
        self._ended: dict[tuple[tuple[str, ...], str], Ended] = {}

    def exists(self, *mistakes: Mistake) -> bool:
        """Whether the mistakes can stand in one solution together."""
        return self._source(mistakes) is not None

    def ended(self, test: HiddenTest, *mistakes: Mistake) -> Ended:
        """How the variant with these mistakes ends the test."""
        key = (_key(mistakes), test.id)
        if key not in self._ended:
            source = self._source(mistakes)
            assert source is not None, "a variant that does not exist cannot run"
            self._ended[key] = run_own_test(self._pack, source, test, self._run_seed, self._device)
        return self._ended[key]

    def _source(self, mistakes: Sequence[Mistake]) -> str | None:
        key = _key(mistakes)
        if key not in self._sources:
            self._sources[key] = self._pack.variant(*mistakes)
        return self._sources[key]


def diagnose(pack: Pack, ended: Iterable[Ended], runs: VariantRuns) -> tuple[Diagnosis, ...]:
    """The known mistakes that the endings of a submission's tests prove.

    Args:
        pack: the exercise.
        ended: how each graded test ended for the submission.
        runs: the variants' endings under the same seed.
    """
    ended = list(ended)
    failing = [end for end in ended if end.outcome in _SPEAKING and not end.not_started and end.observations]
    passed = [end for end in ended if end.outcome is Outcome.PASSED]
    if not failing:
        return ()
    deadline = time.monotonic() + SINGLE_BUDGET_SECONDS
    singles = [(mistake,) for mistake in pack.mistakes if mistake.kind == "wrong" and runs.exists(mistake)]
    explained = _explained(singles, failing, passed, runs, deadline)
    named = _unique(explained, failing)
    left = [end for end in failing if not any(end.test.id in tests for tests in named.values())]
    if left and len(pack.mistakes) > 1:
        deadline = time.monotonic() + PAIR_BUDGET_SECONDS
        pairs = [pair for pair in itertools.combinations([m for (m,) in singles], 2) if runs.exists(*pair)]
        found = _unique(_explained(pairs, left, passed, runs, deadline, every=True), left)
        for pair, tests in found.items():
            for mistake in pair:
                named[(mistake,)] = named.get((mistake,), ()) + tests
    order = {mistake.id: place for place, mistake in enumerate(pack.mistakes)}
    return tuple(
        Diagnosis(mistake.id, mistake.title, mistake.says, tuple(dict.fromkeys(tests)), mistake.hint)
        for (mistake, *_), tests in sorted(named.items(), key=lambda item: order[item[0][0].id])
    )


def explains(variant: Ended, submission: Ended) -> bool:
    """Whether a variant failed a test in the same place, having shown the same values."""
    if variant.outcome is Outcome.PASSED or len(variant.observations) != len(submission.observations):
        return False
    return all(
        kind == other and compare.alike(value, seen)
        for (kind, value), (other, seen) in zip(variant.observations, submission.observations, strict=True)
    )


_Set = tuple[Mistake, ...]


def _explained(
    candidates: Sequence[_Set],
    failing: Sequence[Ended],
    passed: Sequence[Ended],
    runs: VariantRuns,
    deadline: float,
    every: bool = False,
) -> dict[_Set, tuple[str, ...]]:
    """Each candidate that nothing contradicts, with the failing tests it explains.

    With `every`, only candidates that explain all of `failing` are kept, which is what makes pairs affordable.
    """
    kept: dict[_Set, tuple[str, ...]] = {}
    for candidate in candidates:
        tests: list[str] = []
        for end in failing:
            if time.monotonic() > deadline:
                return {} if every else kept
            if explains(runs.ended(end.test, *candidate), end):
                tests.append(end.test.id)
            elif every:
                break
        if not tests or (every and len(tests) < len(failing)):
            continue
        if all(runs.ended(end.test, *candidate).outcome is Outcome.PASSED for end in passed):
            kept[candidate] = tuple(tests)
    return kept


def _unique(explained: dict[_Set, tuple[str, ...]], failing: Sequence[Ended]) -> dict[_Set, tuple[str, ...]]:
    """The candidates whose evidence no other candidate shares."""
    whole = [candidate for candidate, tests in explained.items() if len(tests) == len(failing)]
    if len(whole) == 1:
        return {whole[0]: explained[whole[0]]}
    if whole:
        return {}
    speaking = {end.test.id for end in failing if _informative(end)}
    named: dict[_Set, tuple[str, ...]] = {}
    for candidate, tests in explained.items():
        rivals = {test for other, theirs in explained.items() if other != candidate for test in theirs}
        own = [test for test in tests if test not in rivals]
        if any(test in speaking for test in own):
            named[candidate] = tests
    return named


def _informative(end: Ended) -> bool:
    """Whether what the failing comparison saw is rich enough that agreeing with it is no coincidence."""
    return _rich(end.observations[-1][1])


def _rich(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        finite = value.to(torch.float64).flatten() if value.device.type != "meta" else torch.zeros(0)
        return torch.unique(finite[torch.isfinite(finite)]).numel() >= 3
    if isinstance(value, tuple | list):
        numbers = {item for item in value if isinstance(item, int | float) and not isinstance(item, bool)}
        return len(numbers) >= 3 or any(_rich(item) for item in value if isinstance(item, torch.Tensor | tuple | list))
    return isinstance(value, float) and value not in (0.0, 1.0) and value == value and abs(value) != float("inf")


def _key(mistakes: Sequence[Mistake]) -> tuple[str, ...]:
    return tuple(mistake.id for mistake in mistakes)
