"""Tasks on this machine: some lanes, each with a warm judge of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from grader.catalogue import Catalogue
from grader.classroom.work import Done, Task, do_task
from grader.judge.client import JudgeClient

TASK_LIMIT_SECONDS = 1800.0
"""A judge that has not answered for so long is at fault itself: every call in it has a deadline of its own."""


class Lanes:
    """Executor on this machine.

    Args:
        count: how many judges work at once; 1 for a serial lane.
        root: the content folder.
        limit_seconds: how long one task may take before its judge is ended.
    """

    def __init__(self, count: int, root: Path, limit_seconds: float = TASK_LIMIT_SECONDS) -> None:
        self._count = max(1, count)
        self._root = root
        self._limit_seconds = limit_seconds

    def run(self, tasks: Iterable[Task], started: Callable[[Task], None], done: Callable[[Task, Done], None]) -> None:
        """Do every task.  On any exception, Ctrl-C included, every judge is ended before it goes on."""
        waiting: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        news: queue.SimpleQueue[tuple[Task, Done | None] | BaseException] = queue.SimpleQueue()
        stop = threading.Event()
        left = 0
        for task in tasks:
            waiting.put(task)
            left += 1
        lanes = [_Lane(self._root, waiting, news, stop, self._limit_seconds) for _ in range(min(self._count, left))]
        for lane in lanes:
            waiting.put(None)
            lane.start()
        try:
            while left:
                event = news.get()
                if isinstance(event, BaseException):
                    raise event
                task, result = event
                if result is None:
                    started(task)
                else:
                    left -= 1
                    done(task, result)
        finally:
            stop.set()
            for lane in lanes:
                lane.end()
            for lane in lanes:
                lane.join()


class _Lane(threading.Thread):
    """One lane: takes tasks until there are none; its judge is replaced when it fails."""

    def __init__(
        self,
        root: Path,
        waiting: queue.SimpleQueue[Task | None],
        news: queue.SimpleQueue[tuple[Task, Done | None] | BaseException],
        stop: threading.Event,
        limit_seconds: float,
    ) -> None:
        super().__init__(daemon=True)
        self._catalogue = Catalogue(root)
        self._waiting, self._news, self._stop_event = waiting, news, stop
        self._limit_seconds = limit_seconds
        self._client: JudgeClient | None = None
        self._guard = threading.Lock()

    def run(self) -> None:
        try:
            while not self._stop_event.is_set():
                task = self._waiting.get()
                if task is None:
                    return
                self._news.put((task, None))
                result = self._do(task)
                if result.attempt is None:
                    self._drop()  # whatever state it is in, the next task gets a judge without it
                self._news.put((task, result))
        except BaseException as error:
            if not self._stop_event.is_set():
                self._news.put(error)
        finally:
            self._drop()

    def end(self) -> None:
        """End the judge from another thread; the task at hand fails and nobody waits for it."""
        with self._guard:
            if self._client is not None:
                self._client.abort()

    def _do(self, task: Task) -> Done:
        # A judge dies with the thread that started it, so it is started here and not by the pool's owner.
        with self._guard:
            if self._stop_event.is_set():
                return Done(None, "the batch was stopped")
            client = self._client = self._client or JudgeClient(device=task.device, isolation=task.isolation)
        alarm = threading.Timer(self._limit_seconds, client.abort)
        alarm.daemon = True
        alarm.start()
        try:
            return do_task(task, self._catalogue, client)
        finally:
            alarm.cancel()

    def _drop(self) -> None:
        with self._guard:
            client, self._client = self._client, None
        if client is not None:
            client.close()
