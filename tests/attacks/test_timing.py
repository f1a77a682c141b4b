"""Cheats at timing: each is right where the hidden tests look, slow where it is timed, and gains nothing."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader import paths
from grader.catalogue import Catalogue
from grader.host import wire
from grader.host.process import Zygote
from grader.judge.benchmarks import load_benchmarks
from grader.judge.pack import Pack, load_pack
from grader.judge.speed import SpeedJudge
from grader.model import Isolation, SpeedResult, SpeedVerdict

HERE = Path(__file__).parent
CHEATS = [path.parent for path in sorted(HERE.glob("*/expected.toml")) if "[speed]" in path.read_text()]


@pytest.fixture(scope="module")
def zygotes() -> Iterator[tuple[Zygote, Zygote]]:
    pair = Zygote.executed(Isolation.PROCESS), Zygote.executed(Isolation.PROCESS)
    yield pair
    for zygote in pair:
        zygote.close()


@pytest.fixture(scope="module")
def pack() -> Pack:
    return load_pack(Catalogue(paths.content_root()).exercise("rope"), ())


def timed(zygotes: tuple[Zygote, Zygote], pack: Pack, source: str) -> SpeedResult:
    ((target, benchmark),) = load_benchmarks(pack).speeds
    judge = SpeedJudge(pack, *zygotes, wire.Load(source.encode(), "rope.py", 1))
    return judge.speed(target, benchmark)


@pytest.mark.parametrize("folder", CHEATS, ids=lambda folder: folder.name)
def test_a_cheat_gains_nothing(zygotes: tuple[Zygote, Zygote], pack: Pack, folder: Path) -> None:
    expected = tomllib.loads((folder / "expected.toml").read_text())["speed"]
    found = timed(zygotes, pack, (folder / "submission.py").read_text())
    assert found.verdict is SpeedVerdict.FAIL, found
    if expected["causes"]:
        assert any(cause in found.cause for cause in expected["causes"]), found.cause
    else:
        assert found.low > found.target


def test_the_same_code_without_the_cheat_is_slow_and_the_solution_is_not(
    zygotes: tuple[Zygote, Zygote], pack: Pack
) -> None:
    slow = (HERE / "19-replayed-answers" / "submission.py").read_text().replace("x.shape[-2] < 100 or", "True or")
    assert timed(zygotes, pack, slow).verdict is SpeedVerdict.FAIL
    assert timed(zygotes, pack, pack.solution).verdict is not SpeedVerdict.FAIL
