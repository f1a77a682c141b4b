"""Counts in words; apart, since it loads nothing."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """A number of things: 1 test, 2 tests."""
    return f"{count} {noun}{'s' if count != 1 else ''}"
