"""Does a returned value have the type that the solution's return annotation names?

The annotations of the reference are the contract of `exercises.md`; checking
every call against them gives one clear sentence for a forward that returns
None, a list, a float where a tensor is due, before any test trips over it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Any

import torch

from grader.host.wire import BigInt, Foreign, Items, Pairs, Ref, TensorData, Value

TENSOR_ALIASES = {"Tensor", "BoolTensor", "LongTensor", "FloatTensor", "IntTensor"}


def return_annotation(function: Callable[..., Any] | None) -> Any:
    """The return annotation of a reference function, or Any where it has none."""
    if function is None:
        return Any
    try:
        return typing.get_type_hints(function).get("return", Any)
    except (NameError, TypeError):
        return Any


def complaint(value: Value, annotation: Any) -> str:
    """What is wrong with the type of `value`, as the end of a sentence ("returned None; ..."), or ""."""
    if fits(value, annotation):
        return ""
    return f"returned {describe(value)}; it must return {spell(annotation)}"


def fits(value: Value, annotation: Any) -> bool:
    """Whether a wire value is of an annotated type."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return not isinstance(value, Foreign)
    if annotation is None or annotation is type(None):
        return value is None
    if origin in (types.UnionType, typing.Union):
        return any(fits(value, option) for option in arguments)
    if origin is tuple:
        if not isinstance(value, Items) or value.kind != "tuple":
            return False
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return all(fits(item, arguments[0]) for item in value.items)
        return len(value.items) == len(arguments) and all(map(fits, value.items, arguments))
    if origin is list:
        return (
            isinstance(value, Items) and value.kind == "list" and all(fits(item, arguments[0]) for item in value.items)
        )
    if origin is dict or annotation is dict:
        return isinstance(value, Pairs)
    if annotation is float:
        return isinstance(value, float | int | BigInt) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int | BigInt) and not isinstance(value, bool)
    if annotation in (bool, str):
        return isinstance(value, annotation)
    if annotation in (tuple, list):
        return isinstance(value, Items) and value.kind == annotation.__name__
    is_tensor = isinstance(annotation, type) and issubclass(annotation, torch.Tensor)
    if is_tensor or spell(annotation) in TENSOR_ALIASES:
        return isinstance(value, TensorData)
    return not isinstance(value, Foreign) or isinstance(value, Ref)


def describe(value: Value, depth: int = 0) -> str:
    """A wire value as a noun ("None", "a list of 2", "a float32 tensor of shape (2, 3)")."""
    match value:
        case None:
            return "None"
        case bool() | int() | float():
            return f"the {type(value).__name__} {value!r}"
        case BigInt():
            return "a large int"
        case str():
            return f"a {type(value).__name__}"
        case TensorData():
            return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
        case Items():
            inside = ", ".join(describe(item, depth + 1) for item in value.items[:4]) if depth < 2 else "…"
            return f"a {value.kind} of {len(value.items)}" + (f" ({inside})" if value.items else "")
        case Pairs():
            return "a dict"
        case Ref():
            return f"a {value.kind} ({value.type_name})" if value.kind != "class" else "a class"
        case Foreign():
            return f"an object of type {value.type_name}"
    return f"an object of type {type(value).__name__}"


def spell(annotation: Any) -> str:
    """An annotation as a reader writes it: `tuple[Tensor, Tensor | None]`."""
    if annotation is None or annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("torch.", "").replace("typing.", "").replace("NoneType", "None")
