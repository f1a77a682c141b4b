"""Choosing an exercise's public tests and recording the reference for them.

    python -m grader.judge.recording OUT < REQUEST

A test can be public when it gives the same verdicts with a recorded reference as
with the real one: the solution passes, the untouched stub fails, and every known
mistake ends as it did.  Runs on code of our own, in one process.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from grader.catalogue import Catalogue, read_mistakes
from grader.errors import KitError
from grader.judge.faults import TestFault
from grader.judge.pack import HiddenTest, Pack, load_pack
from grader.judge.recorded import Exchange, Player, Recorder, Tape
from grader.judge.trial import InProcess, run_test
from grader.judge.view import Channel, Submission
from grader.judge.wishes import Recorded, Wish
from grader.model import Outcome
from grader.stubs import stub_text


def record(wish: Wish) -> Recorded:
    """Record one exercise.

    Raises:
        KitError: the exercise cannot be loaded.
    """
    exercise = Catalogue(Path(wish.root)).exercise(wish.slug)
    pack = load_pack(exercise, read_mistakes(exercise))
    stub = stub_text(exercise, pack.solution)
    tests: dict[str, list[HiddenTest]] = {}
    for test in pack.tests:
        tests.setdefault(test.function.__name__, []).append(test)
    taken: dict[int, int] = {}
    functions: list[str] = []
    tapes: dict[str, list[Exchange]] = {}
    refused: dict[str, str] = {}
    for name in dict.fromkeys([*wish.required, *wish.candidates]):
        group = tests.get(name, [])
        if not group:
            refused[name] = "there is no such test"
            continue
        if name not in wish.required and taken.get(group[0].part, 0) >= wish.per_part:
            continue
        recorded = {}
        for test in group:
            exchanges, why_not = _record_test(pack, stub, test, wish.seed)
            if why_not:
                refused[name] = f"{test.id}: {why_not}"
                break
            recorded[test.id] = exchanges
        else:
            functions.append(name)
            tapes.update(recorded)
            taken[group[0].part] = taken.get(group[0].part, 0) + 1
    order = list(tests)
    return Recorded(
        wish.slug,
        sorted(functions, key=order.index),
        msgspec.msgpack.encode(Tape(wish.slug, wish.seed, tapes)),
        refused,
    )


def _record_test(pack: Pack, stub: str, test: HiddenTest, seed: int) -> tuple[list[Exchange], str]:
    """The exchanges of one test, and why it cannot be public ("" when it can)."""
    recorder = Recorder(InProcess())
    outcome, message = _run(pack, test, pack.solution, recorder, seed)
    if outcome is not Outcome.PASSED:
        return [], f"the solution does not pass it without the reference at hand ({message})"
    tape = recorder.exchanges
    if _run(pack, test, pack.solution, Player(_copied(tape)), seed)[0] is not Outcome.PASSED:
        return [], "the solution does not pass it with a recorded reference"
    if _run(pack, test, stub, Player(_copied(tape)), seed)[0] is Outcome.PASSED:
        return [], "the untouched stub passes it"
    for mistake in pack.mistakes:
        variant = pack.variant(mistake)
        if variant is None:
            continue
        real = _run(pack, test, variant, None, seed)[0]
        if (_run(pack, test, variant, Player(_copied(tape)), seed)[0] is Outcome.PASSED) != (real is Outcome.PASSED):
            return [], f"the mistake {mistake.id} ends otherwise with a recorded reference"
    return tape, ""


def _run(pack: Pack, test: HiddenTest, source: str, channel: Channel | None, seed: int) -> tuple[Outcome, str]:
    """Run a test on ``source``; the reference answers over ``channel``, or is the real module where that is None."""
    submission = Submission(InProcess(), pack.reference)
    try:
        submission.load(source.encode(), f"{pack.exercise.slug}.py", seed)
    except TestFault as fault:
        return fault.outcome, fault.message
    reference: Any = pack.reference
    if channel is not None:
        view = Submission(channel, pack.reference)
        view.load(pack.solution.encode(), f"{pack.exercise.slug}.py", seed)
        reference = view
    ended = run_test(dataclasses.replace(pack, reference=reference), test, submission, seed)
    return ended.outcome, ended.test_bug or ended.message


def _copied(tape: Sequence[Exchange]) -> list[Exchange]:
    """As it will be read back: encoding must lose nothing."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(list(tape)), type=list[Exchange])


def main(out: Path) -> int:
    """Read wishes as JSON from stdin, write what was recorded to ``out`` as msgpack."""
    torch.set_num_threads(1)
    wishes = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Wish])
    done = []
    for wish in wishes:
        try:
            done.append(record(wish))
        except KitError as error:
            done.append(Recorded(wish.slug, [], b"", {}, error.message))
    out.write_bytes(msgspec.msgpack.encode(done))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
