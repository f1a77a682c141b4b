"""What a terminal shows while a file is being graded: one line of progress, and the verdict before any timing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType

from rich.status import Status

from grader.cli.common import console
from grader.grading import Diagnosing, Measuring, Progress, Started, Tested
from grader.judge.orders import Judged
from grader.model import Attempt


class Follower:
    """Follows one grading; use it as a context manager around the grading and call it with each event.

    Args:
        name: what stands before each line of progress.
        spinner: whether to keep a line of progress on stderr; only where that is a terminal.
        show: prints a verdict on the values, called once, before the first time is measured.

    Attributes:
        verdict: what `show` was given, once it was.
    """

    def __init__(self, name: str, spinner: bool, show: Callable[[Attempt], None] | None) -> None:
        self.verdict: Attempt | None = None
        self._name = name
        self._show = show
        self._held: Attempt | None = None
        self._total = self._done = 0
        wanted = spinner and sys.stderr.isatty()
        self._status = Status(f"{name}: loading", console=console(stderr=True)) if wanted else None

    def __call__(self, event: Progress) -> None:
        """Take the next event."""
        match event:
            case Judged():
                self._held = event.attempt if event.whole else None
            case Diagnosing():
                self._held = None  # the verdict is not whole before the mistake has its name
                self._say("which mistake is it?")
            case Measuring():
                self._show_held()
                self._say(f"measuring {event.name}")
            case Started():
                self._total = event.total
                self._say(f"{self._total} tests")
            case Tested():
                self._done += 1
                self._say(f"test {min(self._done + 1, self._total)} of {self._total}")

    def __enter__(self) -> Follower:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def _show_held(self) -> None:
        if self._held is None or self._show is None:
            return
        self.verdict, self._held = self._held, None
        if self._status is not None:
            self._status.stop()
        self._show(self.verdict)
        if self._status is not None:
            self._status.start()

    def _say(self, what: str) -> None:
        if self._status is not None:
            self._status.update(f"{self._name}: {what}")
