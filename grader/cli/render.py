"""An `Attempt` as a learner reads it on a terminal; see `export` for machines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grader.cli.escape import visible
from grader.cli.plurals import counted
from grader.model import Attempt, CostResult, Diagnosis, Mismatch, Outcome, PartResult, SpeedResult, TestResult

if TYPE_CHECKING:
    from grader.model import Exercise

SHOWN_FAILURES = 3
"""Failing tests shown in full; the others get a line each, unless everything was asked for."""

LISTED_FAILURES = 8
"""Failing tests listed by name after those shown in full."""

BAR_WIDTH = 12
BARS_FROM_WIDTH = 64
"""Terminals narrower than this get the numbers without bars."""

PRINTED_LINES = 12

RATIO_UNIT = "x the reference's time"
"""The unit of a speed that is a paired ratio of times; any other is that of a growth."""

WORDS = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "failed",
    Outcome.ERROR: "error",
    Outcome.TIMEOUT: "out of time",
    Outcome.CRASHED: "crashed",
    Outcome.MEMORY: "out of memory",
    Outcome.OUTPUT: "printed too much",
    Outcome.SKIPPED: "not judged",
}
"""Each outcome in a learner's words."""

_STUB_RAISED = "NotImplementedError: "
"""How the message begins that a stub leaves behind."""

_FAILURES = frozenset(Outcome) - {Outcome.PASSED, Outcome.SKIPPED}


def print_attempt(console: Console, attempt: Attempt, exercise: Exercise, verbose: bool = False) -> None:
    """Print all of it: part ladder, named mistakes, failing tests, costs, speed, what to do next."""
    blocks = [
        *_verdict(attempt, exercise, verbose, _has_bars(console)),
        *_closing(attempt, exercise, _has_bars(console)),
    ]
    _print_trimmed(console, blocks)


def print_verdict(console: Console, attempt: Attempt, exercise: Exercise, verbose: bool = False) -> None:
    """Print what is known before any time is measured; `print_timing` prints the rest."""
    _print_trimmed(console, _verdict(attempt, exercise, verbose, _has_bars(console)))


def print_timing(console: Console, attempt: Attempt, exercise: Exercise, shown: Attempt) -> None:
    """Print what `print_verdict` had not got when it printed ``shown``: the times, and what to do next."""
    changed = [] if shown.parts == attempt.parts else [_headline(attempt, exercise), _ladder(attempt)]
    console.print()
    _print_trimmed(console, [*_speed(attempt, _has_bars(console)), *changed, *_closing(attempt, exercise, None)])


def _has_bars(console: Console) -> bool:
    return console.width >= BARS_FROM_WIDTH


def _verdict(attempt: Attempt, exercise: Exercise, verbose: bool, bars: bool) -> list[RenderableType]:
    blocks: list[RenderableType] = [_headline(attempt, exercise), _ladder(attempt)]
    if attempt.load_error:
        blocks.append(_titled("Your file does not load", "red", Text(visible(attempt.load_error))))
        return blocks
    blocks.extend(_unwritten(attempt))
    if not _untouched(attempt):
        blocks.extend(_diagnosis(item) for item in attempt.diagnosis)
        blocks.extend(_failures(attempt, verbose))
        blocks.extend(_costs(attempt, bars))
    return blocks


def _closing(attempt: Attempt, exercise: Exercise, bars: bool | None) -> list[RenderableType]:
    """Speed (unless ``bars`` is None: it was printed), remarks, and what to do next."""
    blocks = [] if bars is None else list(_speed(attempt, bars))
    if attempt.notes:
        blocks.append(Group(*(Text.assemble(("note: ", "yellow"), visible(note)) for note in attempt.notes)))
    blocks.append(_next_step(attempt, exercise))
    return blocks


def _print_trimmed(console: Console, blocks: Sequence[RenderableType]) -> None:
    """The blocks with an empty line between; where no terminal reads them, without the spaces that pad tables."""
    with console.capture() as capture:
        for place, block in enumerate(blocks):
            if place:
                console.print()
            console.print(block)
    text = capture.get()
    if not console.is_terminal:
        text = "\n".join(line.rstrip() for line in text.split("\n"))
    console.file.write(text)
    console.file.flush()


def ladder_block(attempt: Attempt) -> RenderableType:
    """The parts, each with its mark and what was seen."""
    return _ladder(attempt)


def mistake_blocks(attempt: Attempt) -> list[RenderableType]:
    """The named mistakes with their explanation."""
    return [_diagnosis(item) for item in attempt.diagnosis]


def unwritten_blocks(attempt: Attempt) -> list[RenderableType]:
    """What a begun part still lacks, if anything."""
    return list(_unwritten(attempt))


def failure_block(test: TestResult) -> RenderableType:
    """One failing test in full."""
    return _failure(test)


def target_blocks(attempt: Attempt, width: int) -> list[RenderableType]:
    """Costs and speed against their targets, with bars where the terminal has room for them."""
    bars = width >= BARS_FROM_WIDTH
    return [*_costs(attempt, bars), *_speed(attempt, bars)]


def print_summary(console: Console, attempts: Sequence[Attempt]) -> None:
    """One line per attempt, for ``kit grade --all``."""
    table = Table.grid(padding=(0, 2))
    for attempt in attempts:
        if attempt.load_error:
            seen = "does not load"
        elif _untouched(attempt):
            seen = "not started"
        else:
            failed = sum(1 for test in attempt.tests if test.outcome in _FAILURES)
            seen = f"{failed} of {len(attempt.tests)} tests failed" if failed else ""
        names = ", ".join(item.mistake for item in attempt.diagnosis)
        table.add_row(
            _mark(attempt.passed),
            Text(attempt.exercise),
            Text(f"{attempt.points}/{attempt.max_points}"),
            Text(visible(f"{seen}{': ' if names else ''}{names}")),
        )
    passed = sum(attempt.passed for attempt in attempts)
    total = Text(f"{passed} of {len(attempts)} passed", "green" if passed == len(attempts) else "")
    _print_trimmed(console, [table, total])


def test_title(test_id: str) -> str:
    """``test_one_token_decode[bf16]`` as a sentence: ``one token decode [bf16]``."""
    name, bracket, parameters = test_id.partition("[")
    return name.removeprefix("test_").replace("_", " ") + (f" [{parameters}" if bracket else "")


def _headline(attempt: Attempt, exercise: Exercise) -> RenderableType:
    style = "bold green" if attempt.passed else "bold"
    took = f", {attempt.seconds:.1f} s" if attempt.seconds else ""
    where = f"{attempt.device}, {attempt.isolation} isolation, seed {attempt.seed}{took}"
    return Group(
        Text.assemble(
            (f"{exercise.title}  {attempt.points}/{attempt.max_points}", style), ("  " + exercise.slug, "dim")
        ),
        Text(visible(f"{attempt.file}  ({where})"), "dim"),
        *([Text(visible(attempt.ran_on), "dim")] if attempt.ran_on else []),
    )


def _ladder(attempt: Attempt) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=None, overflow="fold")
    for part in attempt.parts:
        mark, seen = _part_state(part, attempt)
        table.add_row(mark, Text(f"part {part.number}"), Text.assemble(visible(part.title), ("  " + seen, "dim")))
    return Padding(table, (0, 0, 0, 2))


def _part_state(part: PartResult, attempt: Attempt) -> tuple[Text, str]:
    tests = [test for test in attempt.tests if test.part == part.number]
    if part.passed:
        return _mark(True), f"{counted(part.points, 'point')}, {counted(len(tests), 'test')}"
    if attempt.load_error:
        return _mark(False), "not judged"
    if not tests:
        return Text("·", "dim"), "not graded"
    if all(test.not_started for test in tests):
        return Text("·", "dim"), "not started"
    missing = sum(1 for test in tests if test.not_started)
    failed = sum(1 for test in tests if test.outcome in _FAILURES) - missing
    if failed or missing:
        unwritten = f"{missing} met code not written yet" if missing else ""
        wrong = f"{failed} of {len(tests)} tests failed" if failed else ""
        return _mark(False), ", ".join(piece for piece in (wrong, unwritten) if piece)
    return _mark(False), "tests pass, but a target is missed"


def _untouched(attempt: Attempt) -> bool:
    """True when no test met anything but the stub."""
    return bool(attempt.tests) and not attempt.load_error and all(test.not_started for test in attempt.tests)


def _unwritten(attempt: Attempt) -> Iterable[RenderableType]:
    """What a begun part still lacks, and the names that the file does not define (misspelled ones, most often)."""
    begun = {test.part for test in attempt.tests if not test.not_started}
    missing = [test for test in attempt.tests if test.not_started]
    said = dict.fromkeys(
        test.message.removeprefix(_STUB_RAISED)
        for test in missing
        if test.part in begun or not test.message.startswith(_STUB_RAISED)
        if test.message != _STUB_RAISED.strip(": ")  # a bare one says nothing
    )
    if said:
        yield _titled("Not written yet", "yellow", *(Text(visible(message)) for message in said))


def _diagnosis(item: Diagnosis) -> RenderableType:
    count = len(item.tests)
    lines = [Text(visible(item.says))]
    if item.hint:
        lines.append(Text.assemble(("Try: ", "bold"), visible(item.hint)))
    lines.append(Text(f"Explains {counted(count, 'failing test')}. ({item.mistake})", "dim"))
    return _titled(f"Mistake: {visible(item.title)}", "magenta", *lines)


def _failures(attempt: Attempt, verbose: bool) -> Iterable[RenderableType]:
    """The failing tests: some in full, then one line each; those of parts not begun are left out."""
    failing = [test for test in attempt.tests if test.outcome in _FAILURES and not test.not_started]
    shown = failing if verbose else _most_telling(failing, attempt)
    yield from (_failure(test) for test in shown)
    rest = [test for test in failing if test not in shown]
    named = {test_id for item in attempt.diagnosis for test_id in item.tests}
    listed = [test for test in rest if test.id not in named] if not verbose else []
    if rest:
        lines = [
            Text.assemble(_mark(False), f" {visible(test_title(test.id))}", (f"  part {test.part}", "dim"))
            for test in listed[:LISTED_FAILURES]
        ]
        if len(listed) > LISTED_FAILURES:
            lines.append(Text(f"... {len(listed) - LISTED_FAILURES} further ones", "dim"))
        if len(rest) > len(listed):
            lines.append(Text(f"... {len(rest) - len(listed)} that a mistake named above explains", "dim"))
        yield _titled(f"{counted(len(rest), 'more failing test')} (-v shows all)", "", *lines)


def _most_telling(failing: Sequence[TestResult], attempt: Attempt) -> list[TestResult]:
    """The first failing tests, at most one of those that a named mistake explains."""
    explained = [set(item.tests) for item in attempt.diagnosis]
    chosen: list[TestResult] = []
    for test in failing:
        same = any(test.id in tests and tests.intersection(item.id for item in chosen) for tests in explained)
        if not same and len(chosen) < SHOWN_FAILURES:
            chosen.append(test)
    return chosen


def _failure(test: TestResult) -> RenderableType:
    word = "" if test.outcome is Outcome.FAILED else f"  {WORDS[test.outcome]}"
    title = Text.assemble(
        _mark(False), f" {visible(test_title(test.id))}", (f"  part {test.part}", "dim"), (word, "red")
    )
    rows = Table.grid(padding=(0, 1))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    if test.call:
        rows.add_row("call", Text(visible(test.call)))
    if test.mismatch is not None:
        for name, value in _mismatch_rows(test.mismatch):
            rows.add_row(name, Text(visible(value)))
    if test.trace:
        rows.add_row("your code", Text("\n".join(visible(line) for line in test.trace)))
    if test.printed:
        rows.add_row("printed", Text(_bounded(visible(test.printed))))
    message = [Padding(Text(visible(test.message)), (0, 0, 0, 2))] if test.message else []
    return Group(title, *message, *([Padding(rows, (0, 0, 0, 2))] if rows.row_count else []))


def _mismatch_rows(mismatch: Mismatch) -> Iterable[tuple[str, str]]:
    if mismatch.what not in ("", "the tensor"):
        yield "what", mismatch.what
    if mismatch.actual_shape or mismatch.expected_shape:
        if mismatch.actual_shape != mismatch.expected_shape:
            yield "shape", f"{mismatch.actual_shape or '?'}, expected {mismatch.expected_shape or '?'}"
        else:
            yield "shape", mismatch.actual_shape
    if mismatch.where:
        size = f"  off by {mismatch.error:.3g}, allowed {mismatch.allowed:.3g}" if mismatch.error else ""
        yield "worst at", mismatch.where + size
    if mismatch.actual:
        yield "yours", mismatch.actual
    if mismatch.expected:
        yield "expected", mismatch.expected


def _costs(attempt: Attempt, bars: bool) -> Iterable[RenderableType]:
    if attempt.costs:
        table = Table.grid(padding=(0, 2))
        for cost in attempt.costs:
            style = "green" if cost.passed else ("red" if cost.required else "yellow")
            table.add_row(
                _cost_mark(cost),
                Text(visible(cost.name)),
                *([_bar(cost.value, cost.limit, style)] if bars else []),
                Text(visible(f"{cost.value:.4g} {cost.unit}")),
                Text(f"{'at most' if cost.required else 'stretch:'} {cost.limit:.4g}", "dim"),
            )
        yield _titled("Cost", "", table, *_causes(cost for cost in attempt.costs if not cost.passed))


def _speed(attempt: Attempt, bars: bool) -> Iterable[RenderableType]:
    times = [item for item in attempt.speed if item.unit == RATIO_UNIT]
    growths = [item for item in attempt.speed if item.unit != RATIO_UNIT]
    if times:
        table = _speed_table(times, bars, "x")
        yield _titled(f"Speed on {times[0].device}, as a multiple of the reference's time", "", table, *_missed(times))
    if growths:
        yield _titled("Growth of the time", "", _speed_table(growths, bars, ""), *_missed(growths))


def _speed_table(items: Sequence[SpeedResult], bars: bool, suffix: str) -> Table:
    table = Table.grid(padding=(0, 2))
    for item in items:
        style = {"pass": "green", "fail": "red"}.get(item.verdict, "yellow")
        unit = "" if suffix else f" {item.unit}"
        table.add_row(
            _speed_mark(item),
            Text(visible(item.name)),
            *([_bar(item.ratio, item.target, style)] if bars else []),
            Text(visible(f"{item.ratio:.2f}{suffix} ({item.low:.2f} to {item.high:.2f}){unit}")),
            Text(f"target {item.target:.3g}{suffix}", "dim"),
        )
    return table


def _missed(items: Sequence[SpeedResult]) -> list[Text]:
    return _causes(item for item in items if item.verdict == "fail")


def _bar(value: float, limit: float, style: str) -> Text:
    """Value against limit: the limit stands at two thirds of the bar."""
    place = BAR_WIDTH * 2 // 3
    measured = limit > 0 and math.isfinite(value)
    filled = max(0, min(BAR_WIDTH, round(place * value / limit))) if measured else BAR_WIDTH
    cells = ["█" if index < filled else "░" for index in range(BAR_WIDTH)]
    return Text("".join(cells[:place]) + "│" + "".join(cells[place:]), style)


def _causes(missed: Iterable[CostResult | SpeedResult]) -> list[Text]:
    return [Text(visible(f"{item.name}: {item.cause}"), "dim") for item in missed if item.cause]


def _cost_mark(cost: CostResult) -> Text:
    return _mark(cost.passed) if cost.required or cost.passed else Text("○", "yellow")


def _speed_mark(speed: SpeedResult) -> Text:
    return Text("?", "yellow") if speed.verdict == "inconclusive" else _mark(speed.verdict == "pass")


def _next_step(attempt: Attempt, exercise: Exercise) -> RenderableType:
    slug = exercise.slug
    if attempt.passed and attempt.max_points < exercise.max_points:
        return Text.assemble(("Passed. ", "bold green"), "The other parts: ", (f"kit grade {slug}", "bold"))
    if attempt.passed:
        return Text.assemble(("Passed. ", "bold green"), "What is next: ", ("kit list", "bold"))
    if attempt.load_error:
        return Text.assemble("Mend the file, then: ", (f"kit grade {slug}", "bold"))
    first = next((part for part in attempt.parts if not part.passed), None)
    if first is None or _untouched(attempt):
        symbols = ", ".join(exercise.parts[0].symbols)
        return Text.assemble(f"Write part 1 ({symbols}), then: ", (f"kit grade {slug}", "bold"))
    tests = [test for test in attempt.tests if test.part == first.number]
    if tests and all(test.not_started for test in tests):
        return Text.assemble(f"Next, part {first.number}: {first.title}. Then: ", (f"kit grade {slug}", "bold"))
    again = f"kit grade {slug} --part {first.number} --seed {attempt.seed}"
    return Text.assemble(
        "Same inputs again: ", (again, "bold"), "\nStuck: ", (f"kit hint {slug} --part {first.number}", "bold")
    )


def _titled(title: str, style: str, *lines: RenderableType) -> RenderableType:
    return Group(Text(title, f"bold {style}".strip()), *(Padding(line, (0, 0, 0, 2)) for line in lines))


def _mark(passed: bool) -> Text:
    return Text("✓", "green") if passed else Text("✗", "red")


def _bounded(text: str) -> str:
    lines = re.sub(r"\n+$", "", text).split("\n")
    if len(lines) > PRINTED_LINES:
        lines = [*lines[:PRINTED_LINES], f"... and {len(lines) - PRINTED_LINES} more lines"]
    return "\n".join(lines)
