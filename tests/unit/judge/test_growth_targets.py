"""Growth targets of the exercises, in real hosts: each tells its two ways of working apart."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader import paths
from grader.catalogue import Catalogue
from grader.host import wire
from grader.host.process import Zygote
from grader.judge.benchmarks import load_benchmarks
from grader.judge.pack import load_pack
from grader.judge.speed import SpeedJudge
from grader.model import Isolation, SpeedResult, SpeedVerdict

_PATH = Path(__file__).parents[2] / "bench" / "other_ways.py"


def _other_ways() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("other_ways", _PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.OTHER_WAYS


OTHER_WAYS = _other_ways()


@pytest.fixture(scope="module")
def zygotes() -> Iterator[tuple[Zygote, Zygote]]:
    pair = Zygote.executed(Isolation.PROCESS), Zygote.executed(Isolation.PROCESS)
    yield pair
    for zygote in pair:
        zygote.close()


def grown(zygotes: tuple[Zygote, Zygote], slug: str, more: str = "") -> SpeedResult:
    pack = load_pack(Catalogue(paths.content_root()).exercise(slug), ())
    ((target, benchmark),) = load_benchmarks(pack).growths
    load = wire.Load((pack.solution + more).encode(), f"{slug}.py", 1)
    return SpeedJudge(pack, *zygotes, load, budget_seconds=5.0).growth(target, benchmark)


def test_every_growth_target_is_tried_here() -> None:
    assert {exercise.slug for exercise in Catalogue(paths.content_root()).exercises() if exercise.growths} == {
        *OTHER_WAYS
    }


@pytest.mark.parametrize("slug", OTHER_WAYS)
def test_the_solution_grows_as_it_should(zygotes: tuple[Zygote, Zygote], slug: str) -> None:
    found = grown(zygotes, slug)
    assert found.verdict is not SpeedVerdict.FAIL, found


@pytest.mark.parametrize("slug", OTHER_WAYS)
def test_the_other_way_of_working_does_not(zygotes: tuple[Zygote, Zygote], slug: str) -> None:
    found = grown(zygotes, slug, OTHER_WAYS[slug])
    assert found.verdict is not SpeedVerdict.PASS, found  # on a machine that is busy enough: inconclusive
    assert math.isfinite(found.ratio), found  # nothing else was held against it
