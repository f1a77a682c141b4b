"""One base for every error a user can cause or meet.

Only ``grader.cli`` turns these into text and an exit code.  Each carries a
``hint``: the next thing to do.
"""

from __future__ import annotations

from typing import ClassVar


class KitError(Exception):
    """Something a user can understand and act on.

    Attributes:
        message: one clear sentence saying what is wrong.
        hint: the next step, or an empty string.
        exit_code: 2 for a wrong request, 3 for a fault of the grader or the machine.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class RequestError(KitError):
    """The request was wrong: an unknown exercise, a missing file, a bad option."""


class ContentError(KitError):
    """An exercise on disk breaks the content format."""

    exit_code = 3


class GraderFault(KitError):
    """The grader or the machine failed; never the learner's fault."""

    exit_code = 3
