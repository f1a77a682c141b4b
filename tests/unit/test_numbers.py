"""Numbers as people type them."""

from __future__ import annotations

import pytest

from grader.review.numbers import Unreadable, agrees, readings


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1.5e9", "bytes", 1.5e9),
        ("1_000", "tokens", 1000),
        ("1,000", "tokens", 1000),
        ("1 000 000", "tokens", 1e6),
        ("1,200,300.5", "tokens", 1200300.5),
        ("1,5", "days", 1.5),
        ("12.9B", "billion", 12.9),
        ("12.9 billion parameters", "billion parameters", 12.9),
        ("12.9e9", "billion parameters", 12.9),
        ("70 GiB", "GiB", 70),
        ("70gib", "GiB", 70),
        ("71680 MiB", "GiB", 70),
        ("75161927680 bytes", "GiB", 70),
        ("12 G", "GiB", 12),
        ("140 billion bytes", "GB", 140),
        ("256 B", "bytes", 256),
        ("45%", "%", 45),
        ("45 percent", "%", 45),
        ("3.2e23 FLOPs", "10^21 FLOPs", 320),
        ("3.2 x 10^23", "10^21 FLOPs", 320),
        ("320", "10^21 FLOPs", 320),
        ("2^30", "bytes", 2**30),
        ("2**20", "bytes", 2**20),
        ("1/8", "", 0.125),
        ("8x", "times", 8),
        ("48 hours", "days", 2),
        ("120 tokens/s", "tokens/s", 120),
        ("1 token", "tokens", 1),
        ("131k", "positions", 131000),
        ("~ 12", "days", 12),
        ("-5", "", -5),
        (".5", "GB", 0.5),
    ],
)
def test_a_number_is_read_in_the_questions_unit(text: str, unit: str, value: float) -> None:
    assert any(abs(reading - value) <= 1e-9 * abs(value) for reading in readings(text, unit))


@pytest.mark.parametrize(
    ("text", "unit"),
    [("", "GiB"), ("many", "tokens"), ("5 apples", "tokens"), ("3 GiB", "tokens"), ("3 days", "GiB"), ("1e999", ""),
     ("1/0", ""), ("nan", ""), ("inf", ""), ("5 k m", "tokens")],
)  # fmt: skip
def test_what_is_no_number_of_this_unit_is_refused_in_words(text: str, unit: str) -> None:
    with pytest.raises(Unreadable):
        readings(text, unit)


@pytest.mark.parametrize(
    ("text", "unit", "answer", "tolerance"),
    [
        ("70 GB", "GiB", 70, 0.03),  # 65 GiB
        ("70 GiB", "GB", 70, 0.03),
        ("0.45", "%", 45, 0.02),
        ("0.45%", "%", 45, 0.02),
        ("12.9", "billion", 12900, 0.05),
        ("12.9M", "billion", 12.9, 0.05),
        ("4097", "bytes", 4096, 0.0),
        ("104", "GiB", 100, 0.03),
        ("-100", "GiB", 100, 0.03),
        ("48", "days", 2, 0.05),
        ("0", "tokens", 12, 0.05),
    ],
)
def test_a_wrong_number_does_not_agree(text: str, unit: str, answer: float, tolerance: float) -> None:
    assert not agrees(text, unit, answer, tolerance)


def test_the_tolerance_is_relative_and_zero_is_exact() -> None:
    assert agrees("102.9", "GiB", 100, 0.03) and agrees("97.1", "GiB", 100, 0.03)
    assert agrees("4096", "bytes", 4096, 0) and agrees("4 KiB", "bytes", 4096, 0)
    assert agrees("0", "sequences", 0, 0.03) and not agrees("1", "sequences", 0, 0.03)
