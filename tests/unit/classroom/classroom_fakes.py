"""Attempts made by hand, and an executor that grades without a judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from grader.catalogue import Catalogue
from grader.classroom.work import Done, Task
from grader.model import Attempt, Diagnosis, Exercise, Isolation, Outcome, PartResult, TestResult


def attempt_of(
    exercise: Exercise,
    passed: set[str],
    tests: dict[str, int],
    outcome: Outcome = Outcome.FAILED,
    message: str = "the values agree",
    mistakes: tuple[str, ...] = (),
    **changes: object,
) -> Attempt:
    """An attempt in which exactly ``passed`` of ``tests`` (id to part) passed."""
    results = tuple(
        TestResult(
            name, part, Outcome.PASSED if name in passed else outcome, "" if name in passed else message, 0.1 * part
        )
        for name, part in tests.items()
    )
    parts = tuple(
        PartResult(
            part.number,
            part.title,
            all(r.outcome is Outcome.PASSED for r in results if r.part == part.number),
            part.points,
        )
        for part in exercise.parts
    )
    values: dict[str, object] = {
        "exercise": exercise.slug,
        "file": "answer.py",
        "seed": 7,
        "device": "cpu",
        "isolation": Isolation.PROCESS,
        "seconds": 1.5,
        "passed": all(part.passed for part in parts),
        "points": sum(part.points for part in parts if part.passed),
        "max_points": exercise.max_points,
        "parts": parts,
        "tests": results,
        "diagnosis": tuple(
            Diagnosis(name, f"Title of {name}", f"Says {name}.", tuple(tests), "Try it.") for name in mistakes
        ),
    }
    return Attempt(**(values | changes))  # type: ignore[arg-type]


TESTS = {"test_first": 1, "test_second": 2}


class FakeExecutor:
    """Grades by what the source says: ``right``, ``half``, anything else is wrong; ``fault N`` fails N times."""

    def __init__(self, catalogue: Catalogue, stop_after: int | None = None) -> None:
        self.catalogue, self.stop_after = catalogue, stop_after
        self.graded: list[Task] = []
        self.faults: dict[str, int] = {}

    def run(self, tasks: Iterable[Task], started: Callable[[Task], None], done: Callable[[Task, Done], None]) -> None:
        for task in tasks:
            if self.stop_after is not None and len(self.graded) >= self.stop_after:
                raise KeyboardInterrupt
            started(task)
            self.graded.append(task)
            text = task.source.decode()
            if "fault" in text:
                self.faults[task.key] = self.faults.get(task.key, 0) + 1
                if self.faults[task.key] <= int(text.split("fault")[1].split()[0]):
                    done(task, Done(None, "the machine failed"))
                    continue
            passed = {"test_first", "test_second"} if "right" in text else {"test_first"} if "half" in text else set()
            exercise = self.catalogue.exercise(task.exercise)
            attempt = attempt_of(exercise, passed, TESTS, isolation=task.isolation, seed=task.seed, file=task.file)
            done(task, Done(attempt))
