"""Proof of an exercise: solution passes, stub fails, every mistake is killed and named, right answers pass.

    python -m grader.judge.selfcheck gqa [--seeds 3] [--jobs 2] [--file X.py] [--json]

Runs in a few processes on code of our own, so it is fast; `tests/` runs the same
through the real hosts.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import torch

from grader.catalogue import Catalogue, read_mistakes
from grader.errors import KitError
from grader.host import limits, zygote
from grader.judge.costcheck import prove_costs
from grader.judge.diagnose import VariantRuns, diagnose, tests_to_name
from grader.judge.pack import Pack, load_pack
from grader.judge.trial import Ended, run_own
from grader.model import Exercise, Mistake, Outcome
from grader.stubs import stub_text


class Finding(msgspec.Struct, frozen=True):
    """One thing that was checked: its kind, its name, whether it holds, and what was seen."""

    kind: str
    name: str
    holds: bool
    seen: str


def prove(exercise: Exercise, submissions: Path, seeds: range, jobs: int = 1) -> list[Finding]:
    """Check everything the content format promises about an exercise.

    A mistake is run on as few tests as it takes to name it, the quickest first: whoever else explains all that it fails
    explains these as well, so who is named by some is named by all.

    Args:
        exercise: the exercise.
        submissions: the folder that holds `right/` and `wrong/` files, if any.
        seeds: run seeds.
        jobs: how many processes work at it.

    Raises:
        ContentError: the exercise cannot be loaded.
    """
    pack = load_pack(exercise, read_mistakes(exercise))
    shares = [slice(share, None, jobs) for share in range(jobs)]
    # Before the others: they need to know what a test takes, and find the solution's kernels compiled.
    solution, seconds = _prove_solution(pack, seeds.start)
    with _workers(pack, jobs) as submit:
        # In one process: what was run for one mistake tells others apart.
        named = submit(_prove_names, seeds.start, seconds, {})
        begun = [submit(_prove_passes, submissions, seed) for seed in seeds]
        begun += [submit(_prove_wrong, submissions, seeds.start, share) for share in shares]
        if exercise.track != "kernels":  # a kernel's cost is one of its tests
            begun.append(submit(_prove_costs, submissions, seeds.start))
        both = [submit(_prove_solution, seed) for seed in seeds[1:]]
        telling = named.result()[1]
        both += [named] + [submit(_prove_names, seed, seconds, telling) for seed in seeds[1:]]
        done = [solution, *(future.result() for future in begun), *(future.result()[0] for future in both)]
    findings: dict[tuple[str, str], Finding] = {}
    for finding in itertools.chain(*done):
        key = (finding.kind, finding.name)
        if key not in findings or findings[key].holds:
            findings[key] = finding
    order = ("solution", "stub", "right", "mistake", "wrong", "test", "costs", "costly")
    return sorted(findings.values(), key=lambda finding: order.index(finding.kind))


@contextlib.contextmanager
def _workers(pack: Pack, jobs: int) -> Iterator[Callable[..., Future[Any]]]:
    """A function that has one of the proof's functions called, with the pack, in one of some processes."""
    if jobs == 1:
        yield lambda function, *arguments: _called(function, pack, *arguments)
        return
    # A fork has torch and the pack already; a pack cannot be sent.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"), _inherit, (pack,)) as pool:
        yield lambda function, *arguments: pool.submit(_with_pack, function, *arguments)


def _called(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(function(*arguments))
    return done


_inherited: list[Pack] = []


def _inherit(pack: Pack) -> None:
    torch.set_num_threads(1)
    zygote.keep_loaded()
    _inherited.append(pack)


def _with_pack(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(_inherited[0], *arguments)


def _prove_solution(pack: Pack, seed: int) -> tuple[list[Finding], dict[str, float]]:
    """The solution passes.

    Returns:
        The finding, and how many seconds each test takes, by id.
    """
    ended = run_own(pack, pack.solution, pack.tests, seed)
    wrong = [end for end in ended if end.outcome is not Outcome.PASSED]
    finding = Finding("solution", "passes", not wrong, _list_of(wrong) or f"{len(ended)} tests")
    return [_under(seed, finding)], {end.test.id: end.seconds for end in ended}


def _prove_passes(pack: Pack, submissions: Path, seed: int) -> list[Finding]:
    """Right answers pass; the stub fails every test."""
    stub = run_own(pack, stub_text(pack.exercise, pack.solution), pack.tests, seed)
    passed = [end for end in stub if end.outcome is Outcome.PASSED]
    found = [Finding("stub", "fails", not passed, _list_of(passed) or "every test")]
    for path in sorted(submissions.glob("right/*.py")):
        ended = run_own(pack, path.read_text(encoding="utf-8"), pack.tests, seed)
        wrong = [end for end in ended if end.outcome is not Outcome.PASSED]
        found.append(Finding("right", path.stem, not wrong, _list_of(wrong) or "passes"))
    return [_under(seed, finding) for finding in found]


def _prove_names(
    pack: Pack, seed: int, seconds: dict[str, float], telling: dict[str, list[str]]
) -> tuple[list[Finding], dict[str, list[str]]]:
    """Every mistake is killed and named.

    Args:
        pack: the exercise.
        seed: the run seed.
        seconds: how long each test takes, by id.
        telling: the tests that named each mistake under another seed, by id.

    Returns:
        The findings, and the tests that named each mistake.
    """
    runs = VariantRuns(pack, seed)
    found: list[Finding] = []
    told: dict[str, list[str]] = {}
    used: set[str] = set()
    for mistake in _wrong(pack):
        if not runs.exists(mistake):
            found.append(Finding("mistake", mistake.id, False, "its edits do not apply to the solution"))
            continue
        # What was run for others tells most rivals apart, for nothing.
        first = [set(telling.get(mistake.id, ())), used]
        tests = sorted(pack.tests, key=lambda test: (*(test.id not in some for some in first), seconds[test.id]))
        named_by = tests_to_name(pack, mistake, tests, runs)
        if named_by is None:
            ended = [runs.ended(test, mistake) for test in pack.tests]
            found.append(_under(seed, _named("mistake", mistake.id, mistake.id, pack, ended, runs)))
            continue
        told[mistake.id] = [test.id for test in named_by]
        used.update(told[mistake.id])
        found.append(Finding("mistake", mistake.id, True, f"named by {', '.join(told[mistake.id])}"))
    found += [Finding("test", test, False, f"is itself at fault: {bug}") for test, bug in runs.faulty_tests().items()]
    return found, told


def _prove_wrong(pack: Pack, submissions: Path, seed: int, share: slice) -> list[Finding]:
    """A share of the wrong answers written by hand is killed and named."""
    runs = VariantRuns(pack, seed)
    found: list[Finding] = []
    for path in sorted(submissions.glob("wrong/*.py"))[share]:
        expected = "" if path.stem.startswith("none-") else path.stem.split("__")[0]
        costly = any(mistake.id == expected and mistake.kind == "costly" for mistake in pack.mistakes)
        if costly and pack.exercise.track != "kernels":
            continue  # its values are right; its cost is judged elsewhere
        ended = run_own(pack, path.read_text(encoding="utf-8"), pack.tests, seed)
        found.append(_named("wrong", path.stem, expected, pack, ended, runs))
    return found


def _prove_costs(pack: Pack, submissions: Path, seed: int) -> list[Finding]:
    return [Finding(*claim) for claim in prove_costs(pack, submissions, seed)]


def _under(seed: int, finding: Finding) -> Finding:
    return finding if finding.holds else msgspec.structs.replace(finding, seen=f"seed {seed}: {finding.seen}")


def _wrong(pack: Pack) -> list[Mistake]:
    """The mistakes that hidden tests can see: a kernel's cost is one of its tests, elsewhere costs are apart."""
    return [mistake for mistake in pack.mistakes if mistake.kind == "wrong" or pack.exercise.track == "kernels"]


def _named(kind: str, name: str, expected: str, pack: Pack, ended: list[Ended], runs: VariantRuns) -> Finding:
    killers = [end for end in ended if end.outcome is not Outcome.PASSED]
    if not killers:
        return Finding(kind, name, False, "PASSES every test")
    broken = [end for end in ended if end.at_fault]
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
    parser.add_argument("--jobs", type=int, default=limits.usable_cores())
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        exercise = Catalogue().exercise(options.slug)
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        if options.file:
            return _grade_one(exercise, options.file, options.first_seed, write)
        findings = prove(exercise, options.submissions / options.slug, seeds, options.jobs)
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
