"""Comparing what came back with what is right: in float64, under a tolerance made from the dtype.

A comparison that a constant or a copy of an input would pass proves nothing,
so it is refused as a bug of the test.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from grader.host.wire import bounded
from grader.judge.faults import TestBug
from grader.judge.view import Foreign, RemoteObject
from grader.model import Mismatch

# Relative to the scale of the expected values.  float32: sums of a few hundred products in another
# order differ by 1e-6 or so; the mildest real mistakes differ by 1e-3.
TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}
_SHOWN = 6
_GLANCE = 64


def tolerance_of(*tensors: torch.Tensor) -> float:
    """The loosest tolerance among the tensors' dtypes; 0 when none is floating."""
    return max((TOLERANCES.get(tensor.dtype, 0.0) for tensor in tensors), default=0.0)


def mismatch(actual: Any, expected: Any, tol: float | None, dtype: bool, where: str = "") -> Mismatch | None:
    """The first difference between two values, or None.

    Args:
        actual: what the submission returned.
        expected: tensor, number, or a tuple or list of them.
        tol: relative tolerance; None takes it from the expected dtype (numbers: 1e-6 relative).
        dtype: whether tensors' dtypes must agree.
        where: the place inside a nested value, for the message.
    """
    if isinstance(expected, tuple | list):
        kind = type(expected).__name__
        if not isinstance(actual, type(expected)) or len(actual) != len(expected):
            return Mismatch(f"{where or 'the value'} must be a {kind} of {len(expected)}", actual=noun(actual))
        for place, (mine, ref) in enumerate(zip(actual, expected, strict=True)):
            if found := mismatch(mine, ref, tol, dtype, f"{where or 'result'}[{place}]"):
                return found
        return None
    if isinstance(expected, torch.Tensor):
        return _tensor_mismatch(actual, expected, tol, dtype, where)
    if expected is None:
        return None if actual is None else Mismatch(f"{where or 'the value'} must be None", actual=noun(actual))
    if isinstance(actual, torch.Tensor) and actual.numel() == 1 and not dtype:
        actual = actual.item()
    if not isinstance(actual, int | float) or isinstance(actual, bool) != isinstance(expected, bool):
        return Mismatch(f"{where or 'the value'} must be a {type(expected).__name__}", actual=noun(actual))
    allowed = (1e-6 if tol is None else tol) * max(abs(expected), 1e-300)
    error = abs(actual - expected) if actual != expected else 0.0
    if error <= allowed < math.inf or not error:
        return None
    return Mismatch(where or "the number", "", float(error), float(allowed), repr(actual), repr(expected))


def _tensor_mismatch(
    actual: Any, expected: torch.Tensor, tol: float | None, dtype: bool, where: str
) -> Mismatch | None:
    name = where or "the tensor"
    expected = expected.detach()
    if not isinstance(actual, torch.Tensor):
        return Mismatch(f"{name} must be a tensor of shape {_shape(expected)}", actual=noun(actual))
    actual = actual.detach()
    shapes = (_shape(actual), _shape(expected))
    if actual.shape != expected.shape:
        return Mismatch(f"{name} has another shape", actual_shape=shapes[0], expected_shape=shapes[1])
    if dtype and actual.dtype != expected.dtype:
        return Mismatch(f"{name} has another dtype", actual=_dtype(actual), expected=_dtype(expected))
    if actual.device.type != expected.device.type:
        return Mismatch(f"{name} is on another device", actual=actual.device.type, expected=expected.device.type)
    if actual.numel() == 0 or actual.device.type == "meta":
        return None
    relative = (tolerance_of(expected, actual) if tol is None else tol) or 1e-9
    mine, ref = actual.to(torch.float64).cpu(), expected.to(torch.float64).cpu()
    finite = torch.isfinite(ref)
    whole = bool(finite.all())
    usable = ref if whole else ref[finite]
    scale = usable.pow(2).mean().sqrt().item() if usable.numel() else 0.0
    if math.isinf(scale):  # squares of numbers past 1e154 are
        scale = usable.abs().max().item()
    allowed = relative * torch.clamp(ref.abs(), min=scale)
    error = (mine - ref).abs()
    agree = error <= allowed
    if not whole:
        agree = (agree & finite) | (mine == ref) | (mine.isnan() & ref.isnan())
    if bool(agree.all()):
        return None
    error = torch.where(agree, torch.zeros_like(error), torch.nan_to_num(error, nan=torch.inf))
    place = _place(int((error - allowed.nan_to_num(0, 0, 0)).argmax()), error.shape)
    window = _window(place, actual.shape)
    return Mismatch(
        what=name,
        where=f"[{', '.join(map(str, place))}]" if place else "",
        error=float(error[place]),
        allowed=float(allowed[place].nan_to_num(0, 0, 0)),
        actual=numbers(actual[window]),
        expected=numbers(expected[window]),
        actual_shape=shapes[0],
        expected_shape=shapes[1],
    )


def _place(flat: int, shape: torch.Size) -> tuple[int, ...]:
    """The index that a flat index stands for (torch.unravel_index would import sympy, 0.8 s)."""
    found: list[int] = []
    for size in reversed(shape):
        flat, index = divmod(flat, size)
        found.append(index)
    return tuple(reversed(found))


def _window(place: tuple[int, ...], shape: torch.Size) -> tuple[Any, ...]:
    if not place:
        return ()
    start = max(0, min(place[-1] - _SHOWN // 2, shape[-1] - _SHOWN))
    return (*place[:-1], slice(start, start + _SHOWN))


def differs(actual: Any, expected: Any, dtype: bool) -> Mismatch | None:
    """The first exact difference between two values, or None."""
    if isinstance(expected, torch.Tensor):
        if not isinstance(actual, torch.Tensor):
            return Mismatch("must be a tensor", actual=noun(actual), expected=f"shape {_shape(expected)}")
        shapes = (_shape(actual), _shape(expected))
        if actual.shape != expected.shape:
            return Mismatch("another shape", actual_shape=shapes[0], expected_shape=shapes[1])
        if dtype and actual.dtype != expected.dtype:
            return Mismatch("another dtype", actual=_dtype(actual), expected=_dtype(expected))
        unequal = actual.detach().cpu() != expected.detach().cpu()
        if not bool(unequal.any()):
            return None
        place = _place(int(unequal.to(torch.uint8).argmax()), unequal.shape)
        window = _window(place, actual.shape)
        where = f"[{', '.join(map(str, place))}]" if place else ""
        return Mismatch(
            "first difference", where, 0.0, 0.0, numbers(actual[window]), numbers(expected[window]), *shapes
        )
    if isinstance(expected, tuple | list):
        if type(actual) is not type(expected) or len(actual) != len(expected):
            return Mismatch(
                f"must be a {type(expected).__name__} of {len(expected)}", actual=noun(actual), expected=noun(expected)
            )
        for index, (mine, ref) in enumerate(zip(actual, expected, strict=True)):
            if (found := differs(mine, ref, dtype)) is not None:
                return (
                    found
                    if isinstance(ref, tuple | list | torch.Tensor)
                    else Mismatch(
                        "first difference",
                        f"[{index}]",
                        0.0,
                        0.0,
                        bounded(repr(actual), 300),
                        bounded(repr(expected), 300),
                    )
                )
        return None
    alike = type(actual) is type(expected) or (not dtype and isinstance(actual, int | float))
    if alike and actual == expected:
        return None
    return Mismatch("must be equal", actual=noun(actual), expected=noun(expected))


def refuse_trivial(expected: Any, inputs: Iterable[torch.Tensor]) -> None:
    """Raise TestBug when a constant (zeros are one) or a copy of an input would pass for `expected`."""
    if isinstance(expected, tuple | list):
        tensors = [item for item in expected if isinstance(item, torch.Tensor)]
        if tensors and all(_trivial(tensor, inputs) for tensor in tensors):
            raise TestBug("every expected tensor of this comparison is trivial")
        return
    if isinstance(expected, torch.Tensor) and (why := _trivial(expected, inputs)):
        raise TestBug(f"{why} would pass this comparison; compare something else, or say trivial_ok=True")


def _trivial(expected: torch.Tensor, inputs: Iterable[torch.Tensor]) -> str:
    if expected.numel() < 4 or not expected.is_floating_point() or expected.device.type == "meta":
        return ""
    expected = expected.detach()
    if _would_pass(expected.flatten()[:1].expand(expected.numel()).view(expected.shape), expected):
        return "a constant"
    for tensor in inputs:
        if tensor.shape == expected.shape and _would_pass(tensor.detach(), expected):
            return "a copy of an input"
    return ""


def _would_pass(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether a comparison would take `actual` for `expected`; a few elements mostly show that it would not."""
    step = 1 + expected.numel() // _GLANCE
    few, same = (tensor.flatten()[::step].to(torch.float64).cpu() for tensor in (actual, expected))
    # No element may be off by more than this, whatever the scale of the others.
    most = 1.01 * tolerance_of(actual, expected) * float(expected.abs().max())
    if bool(((few - same).abs() > most).any()):
        return False
    return mismatch(actual, expected, None, False) is None


def alike(first: Any, second: Any) -> bool:
    """Whether two observed values are the same to float noise: the question diagnosis asks."""
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        if first.shape != second.shape or first.dtype != second.dtype:
            return False
        if not first.is_floating_point():
            return torch.equal(first, second)
        return mismatch(first, second, None, True) is None
    if isinstance(first, tuple | list) and isinstance(second, tuple | list):
        return type(first) is type(second) and len(first) == len(second) and all(map(alike, first, second))
    if isinstance(first, float) and isinstance(second, float):
        return (
            first == second
            or (first != first and second != second)
            or abs(first - second) <= 1e-6 * max(abs(first), abs(second))
        )
    if isinstance(first, Foreign) and isinstance(second, Foreign):
        return first.type_name == second.type_name
    if isinstance(first, RemoteObject) or isinstance(second, RemoteObject):
        return type(first) is type(second)
    return type(first) is type(second) and bool(first == second)


def noun(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, torch.Tensor):
        return f"a {_dtype(value)} tensor of shape {_shape(value)}"
    if isinstance(value, tuple | list) and any(isinstance(item, torch.Tensor) for item in value):
        return f"a {type(value).__name__} of {len(value)}: " + "; ".join(noun(item) for item in value[:4])
    return bounded(repr(value), 300)


def numbers(tensor: torch.Tensor) -> str:
    """A slice's values in six significant digits."""
    if tensor.dim() == 0:
        return _number(tensor)
    return "[" + ", ".join(_number(item) for item in tensor.flatten()[:_SHOWN]) + "]"


def _number(item: torch.Tensor) -> str:
    value = item.item()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _shape(tensor: torch.Tensor) -> str:
    return f"({', '.join(map(str, tensor.shape))}{',' if tensor.dim() == 1 else ''})"


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
