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
from dataclasses import dataclass
from typing import Any

import torch

from grader.judge import compare
from grader.judge.pack import HiddenTest, Pack
from grader.judge.trial import SPEAKING, Ended, run_own_test
from grader.model import Diagnosis, Mistake, Outcome

PROBES = 8
MANY = 3
LEAST_SHARE = 0.1
SINGLE_BUDGET_SECONDS = 12.0
PAIR_BUDGET_SECONDS = 3.0


class VariantRuns:
    """How each variant ends each test under one seed, run when first asked and then remembered."""

    def __init__(self, pack: Pack, run_seed: int, device: str = "cpu") -> None:
        self._pack, self.seed, self._device = pack, run_seed, device
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
            self._ended[key] = run_own_test(self._pack, source, test, self.seed, self._device)
        return self._ended[key]

    def faulty_tests(self) -> dict[str, str]:
        """The tests that were themselves at fault in some run, with what they did wrong."""
        return {end.test.id: end.test_bug for end in self._ended.values() if end.at_fault}

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
    failing = [end for end in ended if _speaks(end)]
    passed = [end for end in ended if end.outcome is Outcome.PASSED and not end.undecided]
    singles = [(mistake,) for mistake in pack.mistakes if _judged(pack, mistake) and runs.exists(mistake)]
    if not failing or not singles:
        return ()
    evidence = _Evidence(failing, passed, runs)
    named = evidence.unique(evidence.explained(singles, SINGLE_BUDGET_SECONDS))
    left = [end for end in failing if not any(end.test.id in tests for tests in named.values())]
    if any(_informative(end) for end in left):
        # Two mistakes in one computation explain nothing alone.  Where only exceptions are left, no two are looked for:
        # that would be most of a grade's time, for evidence that two of hundreds of pairs can share.
        rest = _Evidence(left, passed, runs)
        # Of hundreds of pairs those are worth a run of which one is named, or both fail alone where the rest is seen.
        seen = rest.fail_probe(singles)
        with_named = (pair for pair in itertools.combinations(singles, 2) if any(each in named for each in pair))
        likely = dict.fromkeys([*with_named, *itertools.combinations(seen, 2)])
        pairs = [(a, b) for (a,), (b,) in likely if runs.exists(a, b)]
        for pair, tests in rest.unique(rest.explained(pairs, PAIR_BUDGET_SECONDS, whole_only=True)).items():
            for mistake in pair:
                named[(mistake,)] = named.get((mistake,), ()) + tests
    order = {mistake.id: place for place, mistake in enumerate(pack.mistakes)}
    return tuple(
        Diagnosis(mistake.id, mistake.title, mistake.says, tuple(dict.fromkeys(tests)), mistake.hint)
        for (mistake, *_), tests in sorted(named.items(), key=lambda item: order[item[0][0].id])
    )


def tests_to_name(
    pack: Pack, mistake: Mistake, tests: Iterable[HiddenTest], runs: VariantRuns
) -> list[HiddenTest] | None:
    """Which of the tests, run in their order, it takes to name a mistake's own variant; None if all are too few.

    After them no rival is left that ends them as the variant does, so none explains all that it fails without failing
    what it passes, whatever the other tests say.
    """
    rivals = [other for other in pack.mistakes if other != mistake and _judged(pack, other) and runs.exists(other)]
    spoken = False
    telling: list[HiddenTest] = []
    for test in tests:
        end = runs.ended(test, mistake)
        left = [rival for rival in rivals if _could_be(runs.ended(test, rival), end)]
        if len(left) < len(rivals) or (_speaks(end) and not spoken):
            telling.append(test)
        rivals, spoken = left, spoken or _speaks(end)
        if spoken and not rivals:
            return telling
    return None


def _could_be(variant: Ended, submission: Ended) -> bool:
    """Whether a test does not tell the two apart."""
    if submission.outcome is Outcome.PASSED:
        return submission.undecided or variant.outcome is Outcome.PASSED
    return not _speaks(submission) or explains(variant, submission)


def _speaks(end: Ended) -> bool:
    """Whether a test failed, and saw something of the submission before it did."""
    return end.outcome in SPEAKING and not end.not_started and bool(end.observations)


def _judged(pack: Pack, mistake: Mistake) -> bool:
    """Whether hidden tests can see the mistake: a kernel's cost is one of its tests, elsewhere costs are apart."""
    return mistake.kind == "wrong" or pack.exercise.track == "kernels"


def explains(variant: Ended, submission: Ended) -> bool:
    """Whether a variant failed a test in the same place, having shown the same values."""
    if variant.outcome is Outcome.PASSED or len(variant.observations) != len(submission.observations):
        return False
    return all(
        kind == other and compare.alike(value, seen)
        for (kind, value), (other, seen) in zip(variant.observations, submission.observations, strict=True)
    )


_Set = tuple[Mistake, ...]


@dataclass(frozen=True)
class _Evidence:
    """The failing tests to be explained, the passed ones that may contradict, and how variants end them."""

    failing: Sequence[Ended]
    passed: Sequence[Ended]
    runs: VariantRuns

    def explained(
        self, candidates: Sequence[_Set], budget_seconds: float, whole_only: bool = False
    ) -> dict[_Set, tuple[str, ...]]:
        """Each candidate that nothing contradicts, with the failing tests it explains.

        Every candidate is tried on a few probing tests, quick ones of every part first; only what explains a
        probe is looked at in full.  With `whole_only`, candidates must explain everything, so one probe will do,
        and a scan that the budget cuts short proves nothing.  Otherwise a scan that is cut short proves only what
        explains every failing test: part of them may have rivals that were not reached.
        """
        deadline = time.thread_time() + budget_seconds
        kept: dict[_Set, tuple[str, ...]] = {}
        tried: set[_Set] = set()
        left = self._probes()
        for _ in range(1 if whole_only else PROBES):
            if not left:
                break
            probe, left = left[0], left[1:]
            for candidate in candidates:
                if time.thread_time() > deadline:
                    return {} if whole_only else self._whole(kept)
                if candidate in tried or not explains(self.runs.ended(probe.test, *candidate), probe):
                    continue
                tried.add(candidate)
                tests = self._explains(candidate)
                if (len(tests) == len(self.failing) or not whole_only) and not self._contradicted(candidate):
                    kept[candidate] = tests
            covered = {test for tests in kept.values() for test in tests}
            left = [end for end in left if end.test.id not in covered]
        return kept

    def fail_probe(self, candidates: Sequence[_Set]) -> list[_Set]:
        """The candidates that fail the first probe."""
        probe = self._probes()[0].test
        return [each for each in candidates if self.runs.ended(probe, *each).outcome is not Outcome.PASSED]

    def unique(self, explained: dict[_Set, tuple[str, ...]]) -> dict[_Set, tuple[str, ...]]:
        """The candidates whose evidence no other candidate shares."""
        whole = self._whole(explained)
        if whole:
            return whole if len(whole) == 1 else {}
        speaking = {end.test.id for end in self.failing if _informative(end)}
        named: dict[_Set, tuple[str, ...]] = {}
        for candidate, tests in explained.items():
            rivals = {test for other, theirs in explained.items() if other != candidate for test in theirs}
            alone = [test for test in tests if test not in rivals]
            if not self._common(tests):
                continue
            # What says little once (an exception, a False) says enough when nearly everything is explained by it.
            most = len(alone) >= MANY and len(alone) >= 0.75 * len(self.failing)
            if most or any(test in speaking for test in alone):
                named[candidate] = tests
        return named

    def _common(self, tests: tuple[str, ...]) -> bool:
        """Whether the tests are a fair share of what failed in their parts; one of many may agree by coincidence."""
        parts = {end.test.part for end in self.failing if end.test.id in tests}
        return len(tests) >= LEAST_SHARE * sum(end.test.part in parts for end in self.failing)

    def _whole(self, explained: dict[_Set, tuple[str, ...]]) -> dict[_Set, tuple[str, ...]]:
        """The candidates that explain every failing test."""
        return {candidate: tests for candidate, tests in explained.items() if len(tests) == len(self.failing)}

    def _probes(self) -> list[Ended]:
        """The failing tests, the quickest of each part first."""
        quick = sorted(self.failing, key=lambda end: end.seconds)
        first = {end.test.part: end for end in reversed(quick)}
        heads = sorted(first.values(), key=lambda end: end.test.part)
        return heads + [end for end in quick if end not in heads]

    def _explains(self, candidate: _Set) -> tuple[str, ...]:
        return tuple(end.test.id for end in self.failing if explains(self.runs.ended(end.test, *candidate), end))

    def _contradicted(self, candidate: _Set) -> bool:
        return any(self.runs.ended(end.test, *candidate).outcome is not Outcome.PASSED for end in self.passed)


def _informative(end: Ended) -> bool:
    """Whether what the failing comparison saw is rich enough that agreeing with it is no coincidence."""
    return _rich(end.observations[-1][1])


def _rich(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        finite = value.to(torch.float64).flatten() if value.device.type != "meta" else torch.zeros(0)
        return int(torch.unique(finite[torch.isfinite(finite)]).numel()) >= 3
    if isinstance(value, tuple | list):
        numbers = {item for item in value if isinstance(item, int | float) and not isinstance(item, bool)}
        return len(numbers) >= 3 or any(_rich(item) for item in value if isinstance(item, torch.Tensor | tuple | list))
    return isinstance(value, float) and value not in (0.0, 1.0) and value == value and abs(value) != float("inf")


def _key(mistakes: Sequence[Mistake]) -> tuple[str, ...]:
    return tuple(mistake.id for mistake in mistakes)
