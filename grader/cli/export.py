"""An `Attempt` for machines: the JSON of the contract, and JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

from grader.cli.escape import visible
from grader.model import Attempt, Mismatch, Outcome, TestResult

SCHEMA = 1


def attempt_document(attempt: Attempt) -> dict[str, Any]:
    """The result as a JSON-ready dictionary: exactly the keys that scripts rely on."""
    return {
        "schema": SCHEMA,
        "exercise": attempt.exercise,
        "file": attempt.file,
        "seed": attempt.seed,
        "device": attempt.device,
        "isolation": str(attempt.isolation),
        "seconds": round(attempt.seconds, 3),
        "passed": attempt.passed,
        "points": attempt.points,
        "max_points": attempt.max_points,
        "parts": [{"number": part.number, "title": part.title, "passed": part.passed} for part in attempt.parts],
        "tests": [
            {
                "id": test.id,
                "part": test.part,
                "outcome": str(test.outcome),
                "message": whole_message(test),
                "seconds": round(test.seconds, 4),
            }
            for test in attempt.tests
        ],
        "diagnosis": [
            {"mistake": item.mistake, "title": item.title, "says": item.says, "tests": list(item.tests)}
            for item in attempt.diagnosis
        ],
        "costs": [
            {"name": item.name, "value": item.value, "limit": item.limit, "unit": item.unit, "passed": item.passed}
            for item in attempt.costs
        ],
        "speed": [
            {
                "name": item.name,
                "device": item.device,
                "ratio": item.ratio,
                "low": item.low,
                "high": item.high,
                "target": item.target,
                "verdict": str(item.verdict),
            }
            for item in attempt.speed
        ],
    }


def all_document(attempts: Sequence[Attempt]) -> dict[str, Any]:
    """``kit grade --all --json``: the totals, and each attempt's own document."""
    return {
        "schema": SCHEMA,
        "passed": all(attempt.passed for attempt in attempts),
        "points": sum(attempt.points for attempt in attempts),
        "max_points": sum(attempt.max_points for attempt in attempts),
        "attempts": [attempt_document(attempt) for attempt in attempts],
    }


def json_text(document: dict[str, Any]) -> str:
    """The document as strict JSON in ASCII; a number JSON cannot hold (NaN, infinity) becomes null."""
    return json.dumps(_finite(document), indent=2)


def junit_xml(attempts: Sequence[Attempt]) -> bytes:
    """JUnit XML, one suite per attempt; points, seed and the named mistakes are properties."""
    root = ET.Element("testsuites")
    for attempt in attempts:
        bad = [test for test in attempt.tests if test.outcome not in (Outcome.PASSED, Outcome.SKIPPED)]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=visible(attempt.exercise),
            tests=str(len(attempt.tests)),
            failures=str(sum(1 for test in bad if test.outcome is Outcome.FAILED)),
            errors=str(sum(1 for test in bad if test.outcome is not Outcome.FAILED)),
            skipped=str(sum(1 for test in attempt.tests if test.outcome is Outcome.SKIPPED)),
            time=f"{attempt.seconds:.3f}",
        )
        properties = ET.SubElement(suite, "properties")
        facts = {
            "points": attempt.points,
            "max_points": attempt.max_points,
            "seed": attempt.seed,
            "device": attempt.device,
            "isolation": attempt.isolation,
            "file": attempt.file,
        }
        for name, value in facts.items():
            ET.SubElement(properties, "property", name=name, value=visible(str(value)))
        for item in attempt.diagnosis:
            ET.SubElement(properties, "property", name="mistake", value=visible(f"{item.mistake}: {item.says}"))
        for test in attempt.tests:
            _case(suite, attempt, test)
        if attempt.load_error:
            ET.SubElement(suite, "system-err").text = visible(attempt.load_error)
    ET.indent(root)
    body: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return body + b"\n"


def whole_message(test: TestResult) -> str:
    """The message with what differed, where and by how much, as one text."""
    pieces = [test.message] if test.message else []
    if test.mismatch is not None:
        pieces.append(_mismatch_text(test.mismatch))
    return "; ".join(piece for piece in pieces if piece)


def _mismatch_text(mismatch: Mismatch) -> str:
    pieces = []
    if mismatch.what:
        pieces.append(mismatch.what)
    if mismatch.actual_shape != mismatch.expected_shape:
        pieces.append(f"shape {mismatch.actual_shape}, expected {mismatch.expected_shape}")
    if mismatch.where:
        pieces.append(f"worst at {mismatch.where}")
    if mismatch.error:
        pieces.append(f"off by {mismatch.error:.3g}, allowed {mismatch.allowed:.3g}")
    if mismatch.actual:
        pieces.append(f"got {mismatch.actual}")
    if mismatch.expected:
        pieces.append(f"expected {mismatch.expected}")
    return ", ".join(pieces)


def _case(suite: ET.Element, attempt: Attempt, test: TestResult) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        name=visible(test.id),
        classname=visible(f"{attempt.exercise}.part{test.part}"),
        time=f"{test.seconds:.4f}",
    )
    if test.outcome is Outcome.PASSED:
        return
    if test.outcome is Outcome.SKIPPED:
        ET.SubElement(case, "skipped", message=visible(test.message))
        return
    kind = "failure" if test.outcome is Outcome.FAILED else "error"
    entry = ET.SubElement(case, kind, type=str(test.outcome), message=visible(test.message))
    entry.text = visible("\n".join([whole_message(test), *([test.call] if test.call else []), *test.trace]))
    if test.printed:
        ET.SubElement(case, "system-out").text = visible(test.printed)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
