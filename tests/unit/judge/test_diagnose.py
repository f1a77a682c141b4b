"""Naming what a submission holds when it holds more than one mistake, or none that is known."""

from __future__ import annotations

import itertools
import random

import pytest

from grader import paths
from grader.catalogue import Catalogue, read_mistakes
from grader.judge.diagnose import VariantRuns, diagnose
from grader.judge.pack import HiddenTest, Pack, load_pack
from grader.judge.trial import Ended, run_own
from grader.model import Mistake, Outcome

SEED = 3


def pack_of(slug: str) -> Pack:
    exercise = Catalogue(paths.content_root()).exercise(slug)
    return load_pack(exercise, read_mistakes(exercise))


def test_two_mistakes_at_once_are_never_called_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grader.judge.diagnose.PAIR_BUDGET_SECONDS", 120.0)  # however busy this machine is
    pack = pack_of("ssm")
    wrong = [mistake for mistake in pack.mistakes if mistake.kind == "wrong"]
    pairs = [pair for pair in itertools.combinations(wrong, 2) if pack.variant(*pair) is not None]
    runs = VariantRuns(pack, SEED)
    found = []
    for pair in random.Random(1).sample(pairs, 5):
        source = pack.variant(*pair)
        assert source is not None
        names = {item.mistake for item in diagnose(pack, run_own(pack, source, pack.tests, SEED), runs)}
        assert names <= {mistake.id for mistake in pair}, [mistake.id for mistake in pair]
        found.append(len(names))
    assert 2 in found, found


class SinglesOnly(VariantRuns):
    """Variants' endings, where two mistakes in one solution must not be asked for."""

    def ended(self, test: object, *mistakes: Mistake) -> Ended:
        assert len(mistakes) == 1, "a pair was run"
        return super().ended(test, *mistakes)  # type: ignore[arg-type]


class PairsKept(VariantRuns):
    """Variants' endings, and for which test two mistakes were put in one solution."""

    def __init__(self, pack: Pack, run_seed: int) -> None:
        super().__init__(pack, run_seed)
        self.pairs: list[tuple[HiddenTest, tuple[Mistake, ...]]] = []

    def ended(self, test: HiddenTest, *mistakes: Mistake) -> Ended:
        if len(mistakes) == 2:
            self.pairs.append((test, mistakes))
        return super().ended(test, *mistakes)


def test_pairs_are_looked_for_among_what_fails_there_alone() -> None:
    pack = pack_of("kv_budget")
    source = pack.solution.replace("return mha_numbers_all * dtype_bytes", "return 3 * mha_numbers_all + 7 * d_head")
    runs = PairsKept(pack, SEED)
    assert diagnose(pack, run_own(pack, source, pack.tests, SEED), runs) == ()
    assert runs.pairs
    for test, pair in runs.pairs:
        assert all(runs.ended(test, mistake).outcome is not Outcome.PASSED for mistake in pair), (test.id, pair)


def test_no_pair_is_looked_for_behind_mere_exceptions() -> None:
    pack = pack_of("gqa")
    source = f"{pack.solution}\n\ndef kv_cache_reduction_factor(*a, **k):\n    raise SystemError('mine')\n"
    ended = run_own(pack, source, pack.tests, SEED)
    assert any(end.frames for end in ended)
    assert diagnose(pack, ended, SinglesOnly(pack, SEED)) == ()
