"""How long `kit report` takes on a journal of 10,000 attempts, start of the process included.

    python tests/bench/report_many.py [--attempts 10000] [--rounds 5]

Budget: 2 s.  Processor time stands beside it, since a busy machine stretches the one and not the other.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from grader.catalogue import Catalogue, read_mistakes  # noqa: E402
from grader.journal.store import Journal  # noqa: E402
from grader.model import Attempt, Diagnosis, Isolation, Outcome, PartResult, TestResult  # noqa: E402

BUDGET_SECONDS = 2.0
DAY_NS = 86_400 * 10**9


def fill(path: Path, count: int) -> None:
    """Attempts over a year at every exercise, half of them failed, a quarter with a mistake named."""
    rng, now_ns = random.Random(1), time.time_ns()
    exercises = [(exercise, read_mistakes(exercise)) for exercise in Catalogue().exercises()]
    tests = tuple(TestResult(f"test_{number}", 1, Outcome.PASSED) for number in range(20))
    with Journal.open(path) as journal, journal.transaction():
        for number in range(count):
            exercise, mistakes = rng.choice(exercises)
            passed = rng.random() < 0.5
            parts = tuple(PartResult(p.number, p.title, passed, p.points * passed) for p in exercise.parts)
            named = () if passed or not mistakes or rng.random() < 0.5 else (rng.choice(mistakes),)
            attempt = Attempt(
                exercise.slug, "f.py", 1, "cpu", Isolation.PROCESS, 1.0, passed, 10 * passed, 10, parts, tests,
                tuple(Diagnosis(mistake.id, mistake.title, mistake.says, ()) for mistake in named),
            )  # fmt: skip
            journal.record_attempt(attempt, "", at_ns=now_ns - (count - number) * 365 * DAY_NS // count)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--attempts", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    wall, used = [], []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / ".kit").mkdir()
        fill(Path(folder) / ".kit" / "journal.db", options.attempts)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KIT_WORKSPACE": folder}
        command = [sys.executable, "-c", "from grader.cli.main import main; main()", "report"]
        for _ in range(options.rounds):
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            wall.append(time.perf_counter() - began)
            used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        size = (Path(folder) / ".kit" / "report.html").stat().st_size
    print(f"{options.attempts} attempts, a page of {size / 1e6:.1f} MB, load {os.getloadavg()[0]:.1f}")
    print(f"median {statistics.median(wall):.2f} s, of which the processor {statistics.median(used):.2f} s")
    return 0 if statistics.median(wall) <= BUDGET_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
