"""Proof of an exercise's cost targets: they hold for right answers and fail for every known costly variant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from grader.errors import ContentError
from grader.judge.benchmarks import Benchmarks, load_benchmarks
from grader.judge.costs import judged, own_cost
from grader.judge.pack import Pack
from grader.judge.targets import costly
from grader.judge.trial import run_own
from grader.model import CostResult, Outcome

Claim = tuple[str, str, bool, str]
"""What was checked: kind, name, whether it holds, what was seen."""


def prove_costs(pack: Pack, submissions: Path, seed: int) -> Iterator[Claim]:
    """Check the cost targets of an exercise whose tests have been proved.

    Args:
        pack: the exercise.
        submissions: the folder with `right/` and `wrong/` files.
        seed: run seed.

    Raises:
        ContentError: a benchmark is at fault.
    """
    variants = [mistake for mistake in pack.mistakes if mistake.kind == "costly"]
    if not pack.exercise.costs:
        for mistake in variants:
            yield "costly", mistake.id, False, "the exercise has no cost target that could see it"
        return
    benchmarks = load_benchmarks(pack)
    missed = _missed(_all_costs(pack, benchmarks, pack.solution, seed))
    yield "costs", "solution", not missed, _list_of(missed) or "within every target"
    for path in sorted(submissions.glob("right/*.py")):
        missed = _missed(_all_costs(pack, benchmarks, path.read_text(encoding="utf-8"), seed))
        yield "costs", path.stem, not missed, _list_of(missed) or "within every required target"
    for mistake in variants:
        source = pack.variant(mistake)
        if source is None:
            yield "costly", mistake.id, False, "its edits do not apply to the solution"
            continue
        yield ("costly", mistake.id, *_proved(pack, benchmarks, mistake.id, mistake.part, source, seed, named=True))
    ids = {mistake.id: mistake.part for mistake in variants}
    for path in sorted(submissions.glob("wrong/*.py")):
        expected = path.stem.split("__")[0]
        if expected in ids:
            source = path.read_text(encoding="utf-8")
            # Written otherwise, it may cost otherwise: it must fail, but need not be recognised.
            yield ("costly", path.stem, *_proved(pack, benchmarks, expected, ids[expected], source, seed, named=False))


def _proved(
    pack: Pack, benchmarks: Benchmarks, mistake_id: str, part: int, source: str, seed: int, named: bool
) -> tuple[bool, str]:
    wrong = [end for end in run_own(pack, source, pack.tests, seed) if end.outcome is not Outcome.PASSED]
    if wrong:
        return False, f"its values are wrong too: {wrong[0].test.id}: {wrong[0].message}"
    costs = _all_costs(pack, benchmarks, source, seed)
    missed = [cost for cost in costs if cost.part == part and not cost.passed]  # a stretch is missed too
    if not missed:
        return False, "within every target of its part"
    names = [diagnosis.mistake for diagnosis in costly(pack, benchmarks, missed, seed)]
    if names != [mistake_id] if named else any(name != mistake_id for name in names):
        return False, f"diagnosed as {', '.join(names) or 'nothing'} ({_list_of(missed)})"
    return True, _list_of(missed)


def _all_costs(pack: Pack, benchmarks: Benchmarks, source: str, seed: int) -> list[CostResult]:
    found = []
    for target, benchmark in benchmarks.costs:
        try:
            found.append(judged(target, own_cost(pack, benchmark, source, seed)))
        except ContentError as error:
            found.append(CostResult(target.name, 0.0, target.limit, error.message, False, target.part, target.required))
    return found


def _missed(costs: Sequence[CostResult]) -> list[CostResult]:
    return [cost for cost in costs if cost.required and not cost.passed]


def _list_of(costs: Sequence[CostResult]) -> str:
    return "; ".join(f"{cost.name}: {cost.value:.3g} {cost.unit}, limit {cost.limit:g}" for cost in costs)
