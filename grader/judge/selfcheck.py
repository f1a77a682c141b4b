"""Proof of an exercise: solution passes, stub fails, every mistake is killed and named, right answers pass.

    python -m grader.judge.selfcheck gqa [--seeds 3] [--file X.py] [--json]

Runs in one process on code of our own, so it is fast; `tests/` runs the same
through the real hosts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch

from grader.catalogue import Catalogue, read_mistakes
from grader.errors import KitError
from grader.judge.costcheck import prove_costs
from grader.judge.diagnose import VariantRuns, diagnose
from grader.judge.pack import Pack, load_pack
from grader.judge.trial import Ended, run_own, run_own_test
from grader.model import Exercise, Mistake, Outcome
from grader.stubs import stub_text


class Finding(msgspec.Struct, frozen=True):
    """One thing that was checked: its kind, its name, whether it holds, and what was seen."""

    kind: str
    name: str
    holds: bool
    seen: str


def prove(exercise: Exercise, submissions: Path, seeds: range) -> list[Finding]:
    """Check everything the content format promises about an exercise.

    The first seed shows all of it.  The others show that solution and right answers pass, that the stub fails and that
    every mistake is killed, whatever the inputs; who is named by what is a matter of the tests and not of their inputs.

    Args:
        exercise: the exercise.
        submissions: the folder that holds `right/` and `wrong/` files, if any.
        seeds: run seeds.

    Raises:
        ContentError: the exercise cannot be loaded.
    """
    pack = load_pack(exercise, read_mistakes(exercise))
    findings: dict[tuple[str, str], Finding] = {}
    killers: dict[str, str] = {}
    for seed in seeds:
        if seed == seeds.start:
            found = _prove_names(pack, submissions, VariantRuns(pack, seed), killers)
        else:
            found = _prove_kills(pack, seed, killers)
        for finding in _prove_passes(pack, submissions, seed) + found:
            key = (finding.kind, finding.name)
            if key not in findings or findings[key].holds:
                seen = finding.seen if finding.holds else f"seed {seed}: {finding.seen}"
                findings[key] = msgspec.structs.replace(finding, seen=seen)
    if exercise.track != "kernels":  # a kernel's cost is one of its tests
        for kind, name, holds, seen in prove_costs(pack, submissions, seeds.start):
            findings[(kind, name)] = Finding(kind, name, holds, seen)
    return list(findings.values())


def _prove_passes(pack: Pack, submissions: Path, seed: int) -> list[Finding]:
    """Solution and right answers pass; the stub fails every test."""
    found: list[Finding] = []
    solution = run_own(pack, pack.solution, pack.tests, seed)
    wrong = [end for end in solution if end.outcome is not Outcome.PASSED]
    found.append(Finding("solution", "passes", not wrong, _list_of(wrong) or f"{len(solution)} tests"))
    stub = run_own(pack, stub_text(pack.exercise, pack.solution), pack.tests, seed)
    passed = [end for end in stub if end.outcome is Outcome.PASSED]
    found.append(Finding("stub", "fails", not passed, _list_of(passed) or "every test"))
    for path in sorted(submissions.glob("right/*.py")):
        ended = run_own(pack, path.read_text(encoding="utf-8"), pack.tests, seed)
        wrong = [end for end in ended if end.outcome is not Outcome.PASSED]
        found.append(Finding("right", path.stem, not wrong, _list_of(wrong) or "passes"))
    return found


def _prove_names(pack: Pack, submissions: Path, runs: VariantRuns, killers: dict[str, str]) -> list[Finding]:
    """Every mistake, and every wrong answer written by hand, is killed and named.  Notes a test that kills each."""
    found: list[Finding] = []
    for mistake in _wrong(pack):
        if not runs.exists(mistake):
            found.append(Finding("mistake", mistake.id, False, "its edits do not apply to the solution"))
            continue
        ended = [runs.ended(test, mistake) for test in pack.tests]
        killing = [end for end in ended if end.outcome is not Outcome.PASSED]
        if killing:
            killers[mistake.id] = min(killing, key=lambda end: end.seconds).test.id
        found.append(_named("mistake", mistake.id, mistake.id, pack, ended, runs))
    for path in sorted(submissions.glob("wrong/*.py")):
        expected = "" if path.stem.startswith("none-") else path.stem.split("__")[0]
        costly = any(mistake.id == expected and mistake.kind == "costly" for mistake in pack.mistakes)
        if costly and pack.exercise.track != "kernels":
            continue  # its values are right; its cost is judged elsewhere
        ended = run_own(pack, path.read_text(encoding="utf-8"), pack.tests, runs.seed)
        found.append(_named("wrong", path.stem, expected, pack, ended, runs))
    return found


def _prove_kills(pack: Pack, seed: int, killers: dict[str, str]) -> list[Finding]:
    """Every mistake is killed: by the test that killed it last, or else by some other."""
    found: list[Finding] = []
    for mistake in _wrong(pack):
        source = pack.variant(mistake)
        if source is None:
            continue  # said under the first seed
        for test in sorted(pack.tests, key=lambda test: test.id != killers.get(mistake.id)):
            if run_own_test(pack, source, test, seed).outcome is not Outcome.PASSED:
                killers[mistake.id] = test.id
                break
        else:
            found.append(Finding("mistake", mistake.id, False, "PASSES every test"))
    return found


def _wrong(pack: Pack) -> list[Mistake]:
    """The mistakes that hidden tests can see: a kernel's cost is one of its tests, elsewhere costs are apart."""
    return [mistake for mistake in pack.mistakes if mistake.kind == "wrong" or pack.exercise.track == "kernels"]


def _named(kind: str, name: str, expected: str, pack: Pack, ended: list[Ended], runs: VariantRuns) -> Finding:
    killers = [end for end in ended if end.outcome is not Outcome.PASSED]
    if not killers:
        return Finding(kind, name, False, "PASSES every test")
    broken = [end for end in ended if end.test_bug and end.outcome is Outcome.ERROR]
    if broken:
        return Finding(kind, name, False, f"the test itself is at fault: {_list_of(broken)}")
    names = [diagnosis.mistake for diagnosis in diagnose(pack, ended, runs)]
    holds = names == [expected] if expected else not names
    seen = f"killed by {len(killers)}" + ("" if holds else f", diagnosed as {', '.join(names) or 'nothing'}")
    return Finding(kind, name, holds, seen if holds else f"{seen} ({_list_of(killers)})")


def _list_of(ended: list[Ended]) -> str:
    shown = [f"{end.test.id}: {end.test_bug or end.message}" + _where(end) for end in ended[:3]]
    return "; ".join(shown) + (f"; and {len(ended) - 3} more" if len(ended) > 3 else "")


def _where(end: Ended) -> str:
    if end.mismatch is None:
        return ""
    m = end.mismatch
    return f" [{m.what} {m.where} got {m.actual or m.actual_shape} expected {m.expected or m.expected_shape}]"


def main(arguments: list[str], write: Callable[[str], object]) -> int:
    """The command; returns 0 when everything holds, 1 when something does not, 3 on broken content."""
    parser = argparse.ArgumentParser(prog="selfcheck")
    parser.add_argument("slug")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--file", type=Path, help="grade this file alone, in this process")
    parser.add_argument("--submissions", type=Path, default=Path("tests/submissions"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        exercise = Catalogue().exercise(options.slug)
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        if options.file:
            return _grade_one(exercise, options.file, options.first_seed, write)
        findings = prove(exercise, options.submissions / options.slug, seeds)
    except KitError as error:
        write(f"{error.message}\n{error.hint}".strip())
        return error.exit_code
    if options.json:
        write(msgspec.json.encode(findings).decode())
    else:
        for finding in findings:
            write(f"{'ok ' if finding.holds else 'BAD'} {finding.kind:8} {finding.name:40} {finding.seen}")
    return 0 if all(finding.holds for finding in findings) else 1


def _grade_one(exercise: Exercise, path: Path, seed: int, write: Callable[[str], object]) -> int:
    pack = load_pack(exercise, read_mistakes(exercise))
    ended = run_own(pack, path.read_text(encoding="utf-8"), pack.tests, seed)
    for end in ended:
        write(f"{end.outcome:8} {end.test.id} ({end.seconds * 1e3:.1f} ms) {end.message}{_where(end)}")
    for diagnosis in diagnose(pack, ended, VariantRuns(pack, seed)):
        write(f"diagnosis: {diagnosis.mistake}: {diagnosis.says}")
    return 0 if all(end.outcome is Outcome.PASSED for end in ended) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], print))
