"""Attributes of other people's classes, replaced for a while."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any


def replacer(stack: ExitStack) -> Callable[[Any, str, Any], None]:
    """A function that replaces an attribute until the stack closes; one that was inherited is removed again."""
    undo: list[tuple[Any, str, bool, Any]] = []

    def restore() -> None:
        while undo:
            owner, name, own, before = undo.pop()
            if own:
                setattr(owner, name, before)
            else:
                delattr(owner, name)

    def replace(owner: Any, name: str, value: Any) -> None:
        undo.append((owner, name, name in vars(owner), vars(owner).get(name)))
        setattr(owner, name, value)

    stack.callback(restore)
    return replace
