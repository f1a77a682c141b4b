"""How long `kit watch` takes from a save to its verdict.

    python tests/bench/watch_latency.py [--exercise gqa] [--saves 30]

A warm judge, the real events of the file system, saves that alternate between the solution and a known mistake, as
an editor makes them (another file, renamed).  The verdict is on the values; naming the mistake follows it and is
reported apart.  Budget: a median of 0.5 s, on two cores of which nothing else takes one.
"""

from __future__ import annotations

import argparse
import os
import queue
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from grader.catalogue import Catalogue, read_mistakes  # noqa: E402
from grader.judge.client import JudgeClient  # noqa: E402
from grader.model import Attempt  # noqa: E402
from grader.watch import Event, FileEvents, Key, SyntaxFault, Watching  # noqa: E402

BUDGET_SECONDS = 0.5
SETTLE_SECONDS = 0.3
"""Between a verdict and the next save, as no editor saves at once again."""


class Stopwatch:
    """A view that notes when verdicts came."""

    def __init__(self) -> None:
        self.verdicts: queue.Queue[tuple[float, bool, bool]] = queue.Queue()

    def grading(self) -> None:
        pass

    def verdict(self, attempt: Attempt, shown: int, seconds: float, whole: bool) -> None:
        self.verdicts.put((time.perf_counter(), attempt.passed, whole))

    def unreadable(self, message: str) -> None:
        raise SystemExit(message)

    def broken(self, fault: SyntaxFault) -> None:
        raise SystemExit(fault.message)

    def fault(self, message: str, hint: str) -> None:
        raise SystemExit(f"{message}: {hint}")

    def hint(self, attempt: Attempt | None) -> None:
        pass

    def confirm(self, key: str) -> None:
        pass

    def tick(self) -> None:
        pass


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--exercise", default="gqa")
    parser.add_argument("--saves", type=int, default=30)
    options = parser.parse_args()
    exercise = Catalogue().exercise(options.exercise)
    right = exercise.solution_path.read_text(encoding="utf-8")
    wrong = right
    for edit in read_mistakes(exercise)[0].edits:
        wrong = wrong.replace(edit.find, edit.replace)
    first: dict[bool, list[float]] = {True: [], False: []}
    whole: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{exercise.slug}.py"
        path.write_text(right)
        events: queue.Queue[Event] = queue.Queue()
        view = Stopwatch()
        with JudgeClient() as client, FileEvents(path, events, False):
            watching = Watching(exercise, path, 7, client, view, lambda attempt, source: None)
            thread = threading.Thread(target=watching.run, args=(events,), daemon=True)
            thread.start()
            _both(view)
            for number in range(-2, options.saves):  # the first two warm up what each kind needs
                good = number % 2 == 1
                time.sleep(SETTLE_SECONDS)
                other = path.with_suffix(".new")
                other.write_text(f"{right if good else wrong}\n# save {number}\n")
                began = time.perf_counter()
                os.replace(other, path)
                verdict, passed, named = _both(view)
                if passed != good:
                    print(f"save {number} was judged {'right' if passed else 'wrong'}")
                    return 3
                if number >= 0:
                    first[good].append(verdict - began)
                    whole.append(named - began)
            events.put(Key("q"))
            thread.join(10)
    every = [*first[True], *first[False]]
    median = statistics.median(every)
    print(f"{options.exercise}, {len(every)} saves, load {os.getloadavg()[0]:.1f}")
    print(f"save to verdict   median {median:.3f} s   90% {sorted(every)[int(0.9 * len(every))]:.3f} s")
    for good, name in ((True, "right files"), (False, "wrong files")):
        print(f"  {name:15} median {statistics.median(first[good]):.3f} s")
    print(f"mistake named     median {statistics.median(whole):.3f} s")
    return 0 if median <= BUDGET_SECONDS else 1


def _both(view: Stopwatch) -> tuple[float, bool, float]:
    """When the verdict came, what it was, and when the mistakes were named too."""
    at, passed, whole = view.verdicts.get(timeout=120)
    named = at
    while not whole:
        named, _, whole = view.verdicts.get(timeout=120)
    return at, passed, named


if __name__ == "__main__":
    sys.exit(main())
