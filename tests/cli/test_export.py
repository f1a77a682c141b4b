"""The JSON of the contract and JUnit XML."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import attempts
import msgspec
import pytest

from grader.cli.export import all_document, attempt_document, json_text, junit_xml
from grader.model import CostResult

KEYS = {
    "": ["schema", "exercise", "file", "seed", "device", "isolation", "seconds", "passed", "points", "max_points",
         "parts", "tests", "diagnosis", "costs", "speed"],
    "parts": ["number", "title", "passed"],
    "tests": ["id", "part", "outcome", "message", "seconds"],
    "diagnosis": ["mistake", "title", "says", "tests"],
    "costs": ["name", "value", "limit", "unit", "passed"],
    "speed": ["name", "device", "ratio", "low", "high", "target", "verdict"],
}  # fmt: skip
"""The contract; others script against it."""

OUTCOMES = {"passed", "failed", "error", "timeout", "crashed", "memory", "output", "skipped"}


@pytest.mark.parametrize("name", sorted(attempts.ALL))
def test_the_document_has_the_keys_of_the_contract_in_its_order(name: str) -> None:
    document = json.loads(json_text(attempt_document(attempts.ALL[name])))
    assert list(document) == KEYS[""]
    for key in ("parts", "tests", "diagnosis", "costs", "speed"):
        for row in document[key]:
            assert list(row) == KEYS[key]
    assert document["schema"] == 1
    assert {test["outcome"] for test in document["tests"]} <= OUTCOMES


def test_the_values_are_those_of_the_attempt() -> None:
    document = attempt_document(attempts.WRONG)
    assert (document["exercise"], document["seed"], document["isolation"]) == ("gqa", 7, "process")
    assert (document["passed"], document["points"], document["max_points"]) == (False, 4, 10)
    assert document["diagnosis"][0]["mistake"] == "tiled-kv-heads"
    assert document["speed"][0]["verdict"] == "fail"
    assert document["tests"][1]["message"] == (
        "decode step 5 equals the full forward; output 0, worst at [1, 0, 31], off by 0.312, allowed 0.00012, "
        "got [0.51, -0.25, 0.125], expected [0.51, 0.0625, 0.125]"
    )


def test_the_text_is_strict_json_even_for_nan_and_hostile_text() -> None:
    broken = msgspec.structs.replace(
        attempts.NASTY, costs=(CostResult("c", float("nan"), float("inf"), "x", False),), seconds=float("inf")
    )
    text = json_text(attempt_document(broken))
    assert text.isascii()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    document = json.loads(text, parse_constant=refuse)
    assert document["costs"][0]["value"] is None
    assert document["tests"][0]["message"].startswith(attempts.HOSTILE)


def test_all_attempts_are_one_document() -> None:
    document = all_document([attempts.PASSED, attempts.WRONG])
    assert (document["passed"], document["points"], document["max_points"]) == (False, 14, 20)
    assert [list(item) for item in document["attempts"]] == [KEYS[""]] * 2


@pytest.mark.parametrize("name", sorted(attempts.ALL))
def test_junit_parses_and_counts_right(name: str) -> None:
    made = attempts.ALL[name]
    suite = ET.fromstring(junit_xml([made])).find("testsuite")
    assert suite is not None
    assert int(suite.attrib["tests"]) == len(made.tests) == len(suite.findall("testcase"))
    assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure"))
    assert int(suite.attrib["errors"]) == len(suite.findall("testcase/error"))
    bad = sum(1 for test in made.tests if test.outcome not in ("passed", "skipped"))
    assert int(suite.attrib["failures"]) + int(suite.attrib["errors"]) == bad


def test_junit_names_points_seed_and_mistake() -> None:
    properties = ET.fromstring(junit_xml([attempts.WRONG])).findall("testsuite/properties/property")
    facts = {item.attrib["name"]: item.attrib["value"] for item in properties}
    assert (facts["points"], facts["max_points"], facts["seed"]) == ("4", "10", "7")
    assert facts["mistake"].startswith("tiled-kv-heads: Query head h")


def test_junit_spells_out_what_xml_cannot_hold() -> None:
    text = junit_xml([attempts.NASTY]).decode("utf-8")
    assert "\\x00" in text and "\\x1b[31mred" in text and "\\ud800" in text and "\\ufffe" in text
    assert "\0" not in text and "\x1b" not in text
    ET.fromstring(text.encode())
