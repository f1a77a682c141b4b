"""Comparisons: what they catch, what they let pass, what they refuse to be."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from grader.judge import compare
from grader.judge.faults import TestBug
from grader.judge.view import Foreign


def found(actual: Any, expected: Any, tol: float | None = None, dtype: bool = True) -> Any:
    return compare.mismatch(actual, expected, tol, dtype)


@pytest.mark.parametrize(
    "dtype, noise, wrong", [(torch.float32, 1e-6, 1e-2), (torch.float64, 1e-8, 1e-4), (torch.bfloat16, 0.0, 0.2)]
)
def test_noise_passes_and_an_error_does_not(dtype: torch.dtype, noise: float, wrong: float) -> None:
    expected = torch.randn(40, 30, dtype=torch.float64)
    assert found((expected + noise * torch.randn_like(expected)).to(dtype), expected.to(dtype)) is None
    spoilt = expected.clone()
    spoilt[7, 11] += wrong * 3
    mismatch = found(spoilt.to(dtype), expected.to(dtype))
    assert mismatch.where == "[7, 11]" and mismatch.error > mismatch.allowed


def test_shape_dtype_and_kind_are_named() -> None:
    expected = torch.randn(2, 3)
    assert found(expected[:1], expected).actual_shape == "(1, 3)"
    assert found(expected.double(), expected).actual == "float64"
    assert "tensor" in found(None, expected).what
    assert "tensor" in found(Foreign("numpy.ndarray"), expected).what
    assert found([expected], (expected,)) is not None


def test_nan_and_infinity_must_stand_where_they_should() -> None:
    expected = torch.tensor([1.0, -math.inf, 2.0, 3.0])
    assert found(expected.clone(), expected) is None
    assert found(torch.tensor([1.0, math.nan, 2.0, 3.0]), expected).where == "[1]"
    assert found(torch.tensor([math.nan] * 4), torch.ones(4)) is not None
    assert found(torch.tensor([1.0, -1e30, 2.0, 3.0]), expected) is not None


def test_a_small_value_beside_large_ones_is_held_to_their_scale() -> None:
    expected = torch.tensor([1000.0, 1000.0, 0.001])
    assert found(expected + torch.tensor([0, 0, 1e-4]), expected) is None
    assert found(expected + torch.tensor([0, 0, 1.0]), expected) is not None


def test_no_number_is_too_large_to_be_compared() -> None:
    expected = torch.tensor([1e200, -3e200, 2e200, 1e160], dtype=torch.float64)
    assert found(expected * (1 + 1e-12), expected) is None
    assert found(expected * 1.01, expected) is not None
    assert found(torch.zeros_like(expected), expected) is not None
    assert found(1.0, math.inf) is not None
    assert found(math.inf, math.inf) is None
    assert found(-math.inf, math.inf) is not None


@pytest.mark.parametrize("expected", [torch.zeros(2, 3), torch.full((5,), 2.5)])
def test_a_comparison_that_a_constant_would_pass_is_a_bug_of_the_test(expected: torch.Tensor) -> None:
    with pytest.raises(TestBug):
        compare.refuse_trivial(expected, [])


def test_a_comparison_that_a_copy_of_the_input_would_pass_is_a_bug_of_the_test() -> None:
    x = torch.randn(3, 4)
    with pytest.raises(TestBug):
        compare.refuse_trivial(x.clone(), [torch.randn(3, 4), x])
    compare.refuse_trivial(x + 1, [x])


def test_exact_comparisons() -> None:
    assert compare.differs(3, 3, True) is None
    assert compare.differs(3.0, 3, True) is not None
    assert compare.differs(True, 1, True) is not None
    assert compare.differs([1, 2], (1, 2), True) is not None
    assert compare.differs([1, 3], [1, 2], True).where == "[1]"
    assert compare.differs(torch.tensor([1, 2]), torch.tensor([1, 3]), True).where == "[1]"
    assert compare.differs(torch.tensor([1]), torch.tensor([1], dtype=torch.int32), True) is not None
    assert compare.differs(torch.tensor([1]), torch.tensor([1], dtype=torch.int32), False) is None
    assert compare.differs(None, None, True) is None


def test_tensors_in_a_tuple_are_described_not_printed() -> None:
    found = compare.differs((torch.zeros(2, 3), torch.zeros(2)), None, True)
    assert found.actual == "a tuple of 2: a float32 tensor of shape (2, 3); a float32 tensor of shape (2,)"


def test_alike_asks_for_equality_to_float_noise() -> None:
    x = torch.randn(5)
    assert compare.alike((x, 3), (x + 1e-7, 3))
    assert not compare.alike(x, x + 1e-2)
    assert not compare.alike(x, x.double())
    assert compare.alike(math.nan, math.nan)
    assert not compare.alike(1, True)
    assert not compare.alike("a", "b")
