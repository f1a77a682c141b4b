"""Regrade a file whenever it is saved: events in, verdicts out, an exit in the end.

The judge and its zygote stay warm, the inputs keep one seed for the session
(so that known mistakes need to be run only once), and the tests that failed
last run first.  Nothing is printed here; a `View` is told.
"""

from __future__ import annotations

import hashlib
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import watchfiles

from grader import grading
from grader.errors import KitError
from grader.judge.client import JudgeClient
from grader.judge.orders import Judged
from grader.model import Attempt, Exercise, Outcome, TestResult
from grader.workspace import read_submission

SETTLE_MS = 20
"""Changes that follow one another within this time are one save."""
POLL_MS = 150
TICK_SECONDS = 1.0
POLLED_FILE_SYSTEMS = frozenset({"9p", "cifs", "drvfs", "nfs", "nfs4", "smb3", "smbfs", "v9fs", "vboxsf", "fuse.sshfs"})
"""File systems that do not report another machine's writes."""


class Exit(StrEnum):
    """Why watching ended."""

    QUIT = "quit"
    REVEAL = "reveal"
    PAUSE = "pause"
    GIVE_UP = "give up"
    TIME = "time"
    DONE = "done"


@dataclass(frozen=True)
class Saved:
    """The file may have changed."""


@dataclass(frozen=True)
class Key:
    """A key was pressed."""

    char: str


Event = Saved | Key


@dataclass(frozen=True)
class SyntaxFault:
    """The file is no Python just now."""

    line: int
    message: str
    text: str


class View(Protocol):
    """What watching shows."""

    def grading(self) -> None:
        """A save is being graded."""

    def verdict(self, attempt: Attempt, shown: int, seconds: float, whole: bool) -> None:
        """An attempt; failure number `shown` is the one in full; `whole` once mistakes are named too."""

    def unreadable(self, message: str) -> None:
        """The file is gone, or no text; watching goes on."""

    def broken(self, fault: SyntaxFault) -> None:
        """The file does not parse; watching goes on."""

    def fault(self, message: str, hint: str) -> None:
        """The grader failed; watching goes on."""

    def hint(self, attempt: Attempt | None) -> None:
        """The next hint was asked for."""

    def confirm(self, key: str) -> None:
        """A key was pressed that ends the work undone; the same once more does it."""

    def tick(self) -> None:
        """About a second has passed with nothing to do."""


Record = Callable[[Attempt, bytes], None]


def must_poll(path: Path, mounts: str | None = None, environment: dict[str, str] | None = None) -> str:
    """Why changes of `path` have to be polled for, or an empty string.

    Args:
        path: the file to watch.
        mounts: the text of /proc/mounts; read when not given.
        environment: the environment; `KIT_POLL` set to anything asks for polling.
    """
    environment = dict(os.environ) if environment is None else environment
    if environment.get("KIT_POLL"):
        return "KIT_POLL is set"
    if mounts is None:
        try:
            mounts = Path("/proc/mounts").read_text()
        except OSError:
            return ""
    best, kind = "", ""
    folder = str(path.resolve().parent)
    for line in mounts.splitlines():
        words = line.split()
        if len(words) >= 3:
            point = words[1].replace("\\040", " ")
            inside = folder == point or folder.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, words[2]
    return f"{best} is {kind}, which does not report every change" if kind in POLLED_FILE_SYSTEMS else ""


class FileEvents:
    """Puts `Saved` into a queue whenever the file may have changed, whatever way an editor writes it.

    Watches the folder, since many editors write another file and rename it into place.
    """

    def __init__(self, path: Path, events: queue.Queue[Event], polling: bool) -> None:
        self._path, self._events, self._polling = path.resolve(), events, polling
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> FileEvents:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2.0)

    def _run(self) -> None:
        if self._polling:
            self._poll()
            return
        changes = watchfiles.watch(
            self._path.parent,
            watch_filter=lambda _, name: Path(name).name == self._path.name,
            debounce=max(1, SETTLE_MS * 5),
            step=SETTLE_MS,
            stop_event=self._stop,
            recursive=False,
            raise_interrupt=False,
            rust_timeout=500,
        )
        for _ in changes:
            self._events.put(Saved())

    def _poll(self) -> None:
        """Read the file again and again: opening it makes a network file system look, and contents cannot be missed.

        Times of change can: some pollers compare whole seconds.
        """
        last = self._content()
        while not self._stop.wait(POLL_MS / 1000):
            content = self._content()
            if content != last:
                last = content
                self._events.put(Saved())

    def _content(self) -> bytes | None:
        try:
            return hashlib.sha256(self._path.read_bytes()).digest()
        except OSError:
            return None


@dataclass
class Watching:
    """One session of watching: what is graded, by whom, and what was seen last.

    `exits` says which keys end it, and how; `until` ends it with an attempt, `expired` with the clock.
    """

    exercise: Exercise
    path: Path
    seed: int
    client: JudgeClient
    view: View
    record: Record
    part: int | None = None
    exits: Mapping[str, Exit] = field(default_factory=lambda: {"q": Exit.QUIT, "r": Exit.REVEAL})
    until: Callable[[Attempt], bool] = lambda attempt: False
    expired: Callable[[], bool] = lambda: False
    hints: bool = True
    diagnose: bool = True
    attempt: Attempt | None = None
    shown: int = 0
    digest: str = ""

    def run(self, events: queue.Queue[Event]) -> Exit:
        """Grade now and at every save; obey keys; return why it ended. Ctrl-C is a way to leave, and loses nothing."""
        try:
            return self._follow(events)
        except KeyboardInterrupt:
            return self._left()

    def _left(self) -> Exit:
        return Exit.PAUSE if Exit.PAUSE in self.exits.values() else Exit.QUIT

    def _follow(self, events: queue.Queue[Event]) -> Exit:
        asked = ""
        self.saved()
        while True:
            if self.attempt is not None and self.until(self.attempt):
                return Exit.DONE
            if self.expired():
                return Exit.TIME
            try:
                event = events.get(timeout=TICK_SECONDS)
            except queue.Empty:
                self.view.tick()
                continue
            if isinstance(event, Saved):
                self.saved()
            elif event.char in ("\x03", "\x04"):
                return self._left()
            elif self.exits.get(event.char) is Exit.GIVE_UP and asked != event.char:
                asked = event.char  # one slip of a finger is no decision
                self.view.confirm(event.char)
                continue
            elif event.char in self.exits:
                return self.exits[event.char]
            elif event.char == "h" and self.hints:
                self.view.hint(self.attempt)
            elif event.char in ("n", " "):
                self.next_failure()
            elif event.char == "t":
                self.grade(speed=True)
            elif event.char in ("g", "\n", "\r"):
                self.grade()
            asked = ""

    def saved(self) -> None:
        """Grade the file if it is another than the one graded last."""
        try:
            source = read_submission(self.path)
        except KitError as error:
            self.digest = ""
            self.view.unreadable(error.message)
            return
        digest = hashlib.sha256(source).hexdigest()
        if digest != self.digest:
            self.digest = digest
            self.grade(source)

    def next_failure(self) -> None:
        """Show the next failing test in full."""
        if self.attempt is None:
            return
        count = len(failures(self.attempt))
        if count:
            self.shown = (self.shown + 1) % count
            self.view.verdict(self.attempt, self.shown, self.attempt.seconds, True)

    def grade(self, source: bytes | None = None, speed: bool = False) -> None:
        """Grade the file as it is, and show what came of it."""
        started = time.monotonic()
        if source is None:
            try:
                source = read_submission(self.path)
            except KitError as error:
                self.view.unreadable(error.message)
                return
        if (broken := syntax_fault(source)) is not None:
            self.view.broken(broken)
            return
        self.view.grading()
        first = tuple(test.id for test in failures(self.attempt)) if self.attempt else ()
        request = grading.GradeRequest(
            self.exercise, source, self.path, self.part, self.seed, speed=speed, first=first, diagnose=self.diagnose
        )

        def follow(event: grading.Progress) -> None:
            if isinstance(event, Judged):
                self.shown = 0
                self.view.verdict(event.attempt, 0, time.monotonic() - started, False)

        try:
            self.attempt = grading.grade(request, follow, self.client)
        except KitError as error:
            self.view.fault(error.message, error.hint)
            return
        self.shown = 0
        self.view.verdict(self.attempt, 0, time.monotonic() - started, True)
        self.record(self.attempt, source)


def failures(attempt: Attempt) -> list[TestResult]:
    """The tests that something written has failed, in the order of the exercise."""
    return [test for test in attempt.tests if test.outcome is not Outcome.PASSED and not test.not_started]


def syntax_fault(source: bytes) -> SyntaxFault | None:
    """Where the source is no Python, or None."""
    try:
        compile(source, "submission.py", "exec", dont_inherit=True)
    except SyntaxError as error:
        return SyntaxFault(error.lineno or 0, str(error.msg), (error.text or "").rstrip("\n"))
    except (ValueError, RecursionError, MemoryError):
        return None  # the judge's own process meets it and says so
    return None
