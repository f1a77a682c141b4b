"""One piece of a class's work: a file to grade, as data that can go to another process or another machine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from grader.catalogue import Catalogue
from grader.classroom.identity import kit_fingerprint, pack_sha256
from grader.errors import GraderFault, KitError
from grader.judge.client import JudgeClient
from grader.judge.orders import GradeOrder
from grader.model import Attempt, Isolation


class Task(msgspec.Struct, frozen=True):
    """Grade ``source`` as an answer to ``exercise``.

    ``pack`` and ``kit`` say which tests and which grader the grade is of: a machine that has others must not
    grade it.  ``file`` is for display; ``label`` for progress.
    """

    exercise: str
    source: bytes
    file: str
    label: str
    seed: int
    isolation: Isolation
    device: str
    pack: str
    kit: str
    speed: bool = False

    @property
    def key(self) -> str:
        """The hash of all that the verdicts depend on; two tasks with the same key have the same grade."""
        parts = (self.exercise, self.source, str(self.seed), self.isolation.value, self.device, self.pack, self.kit)
        digest = hashlib.sha256()
        for part in parts:
            data = part if isinstance(part, bytes) else part.encode()
            digest.update(len(data).to_bytes(8, "big") + data)
        return digest.hexdigest()


class Done(msgspec.Struct, frozen=True):
    """What became of a task: an attempt, or why the grader could not grade it (never the learner's doing)."""

    attempt: Attempt | None
    fault: str = ""
    seconds: float = 0.0


class Executor(Protocol):
    """Something that does tasks: lanes on this machine, or a cluster."""

    def run(self, tasks: Iterable[Task], started: Callable[[Task], None], done: Callable[[Task, Done], None]) -> None:
        """Do every task, in any order; ``started`` and ``done`` are called in the caller's thread."""


def do_task(task: Task, catalogue: Catalogue, client: JudgeClient) -> Done:
    """Grade one task with a warm judge.  Every failure of the grader's own is an answer too.

    Raises:
        Nothing of the grader's; what else escapes is a bug.
    """
    try:
        exercise = catalogue.exercise(task.exercise)
        if kit_fingerprint() != task.kit:
            raise GraderFault(f"this machine has the kit {kit_fingerprint()}, the class is graded with {task.kit}")
        if pack_sha256(exercise) != task.pack:
            raise GraderFault(
                f"this machine has other tests of {task.exercise} than the class is graded with",
                "(did they change meanwhile? then grade again)",
            )
        order = GradeOrder(
            task.exercise,
            str(catalogue.root),
            task.source,
            f"{task.exercise}.py",
            task.file,
            seed=task.seed,
            device=task.device,
            isolation=task.isolation,
            speed=task.speed,
        )
        attempt = client.grade(order, lambda event: None)
    except KitError as error:
        return Done(None, f"{error.message} {error.hint}".strip())
    except OSError as error:
        return Done(None, f"the machine failed: {error}")
    if attempt.isolation is not task.isolation:
        return Done(None, f"it was graded under {attempt.isolation}, not under {task.isolation}")
    return Done(attempt, seconds=attempt.seconds)
