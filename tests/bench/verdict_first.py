"""What the timing lane costs those who do not want it, and how long it keeps the verdict on the values waiting.

    python tests/bench/verdict_first.py [--exercise gqa] [--rounds 15]

Grades the solution in three ways in turn, cold, with one seed:

* A: ``kit grade NAME --no-speed``
* B: ``kit grade NAME`` of a copy of the content in which the exercise has no speed or growth target: a kit without
  a timing lane
* C: ``kit grade NAME``, its output read as it comes

and prints, each as the median over the rounds of the ratio within a round, with a 95% bootstrap interval: A over B
("adds no measurable time": the interval must reach down to 1), and the time until C has shown its points, over A's
whole time until then ("never waits for timing": the same).
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KIT = (sys.executable, "-c", "from grader.cli.main import main; main()")
NO_TIMING = "def speed(*args, **kwargs): return lambda function: function\ngrowth = speed\n"
RESAMPLES = 4000


def main() -> int:
    """Run the rounds; 0 when both ratios hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--exercise", default="gqa")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    slug = options.exercise
    with tempfile.TemporaryDirectory() as scratch:
        untimed = Path(scratch) / "content"
        without_timing(untimed, slug)
        grade = (*KIT, "grade", slug, "--seed", "7", "--file", str(ROOT / "solutions" / f"{slug}.py"))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KIT_WORKSPACE": f"{scratch}/w", "OMP_NUM_THREADS": "1"}
        ways = {
            "A": ((*grade, "--no-speed"), {**environment, "KIT_CONTENT": str(ROOT)}),
            "B": (grade, {**environment, "KIT_CONTENT": str(untimed)}),
            "C": (grade, {**environment, "KIT_CONTENT": str(ROOT)}),
        }
        shown: dict[str, list[float]] = {name: [] for name in ways}
        ended: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(options.rounds + 1):
            for name in random.sample(list(ways), len(ways)):
                points_s, whole_s = until_points(*ways[name])
                if number:  # the first round fills the disk cache
                    shown[name].append(points_s)
                    ended[name].append(whole_s)
    for name in ways:
        print(
            f"{name}: points after {statistics.median(shown[name]):.2f} s, end {statistics.median(ended[name]):.2f} s"
        )
    holds = says("--no-speed over a kit without a timing lane", ended["A"], ended["B"])
    holds &= says("points with timing to follow over points with --no-speed", shown["C"], shown["A"])
    return 0 if holds else 1


def without_timing(target: Path, slug: str) -> None:
    """A copy of the content in which one exercise has nothing to time."""
    for part in ("exercises", "kernels", "solutions", "quiz"):
        shutil.copytree(ROOT / part, target / part, ignore=shutil.ignore_patterns("__pycache__"))
    (folder,) = (path for path in target.glob(f"*/{slug}") if (path / "exercise.toml").exists())
    toml = folder / "exercise.toml"
    tables = re.split(r"^(?=\[)", toml.read_text(), flags=re.MULTILINE)
    kept = [table for table in tables if not table.startswith(("[[speed]]", "[[growth]]"))]
    if kept == tables:
        sys.exit(f"{slug} has no speed target: take another exercise")
    toml.write_text("".join(kept))
    benchmarks = folder / "benchmarks.py"
    benchmarks.write_text(NO_TIMING + benchmarks.read_text())


def until_points(command: tuple[str, ...], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds until the line with the points has come, and until the process has ended."""
    began = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None and run.stderr is not None
        points_s = None
        lines = []
        for line in run.stdout:
            lines.append(line)
            if points_s is None and re.search(r"\b(\d+)/\1\b", line):
                points_s = time.perf_counter() - began
        errors = run.stderr.read()
    if run.returncode or points_s is None:
        sys.exit(f"exit code {run.returncode}:\n{''.join(lines)}{errors}")
    return points_s, time.perf_counter() - began


def says(what: str, mine: list[float], theirs: list[float]) -> bool:
    """Print the ratio of two columns with its interval; True when it is not measurably above 1."""
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    low, high = medians[RESAMPLES // 40], medians[-RESAMPLES // 40]
    print(f"{what}: {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})")
    return low <= 1


if __name__ == "__main__":
    sys.exit(main())
