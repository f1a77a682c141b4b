"""How long a cold `kit grade gqa --no-speed` takes, against plain pytest running the same tests in one process.

    python tests/bench/cold_grade.py [--exercise gqa] [--rounds 7]

Both grade the solution, with the same seed, in turn; plain pytest runs the hidden test file itself, the submission
being a module of its own process.  The ratio is of the medians.  Budget: 1.3.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUDGET = 1.3

PLUGIN = """
import builtins, sys
import pytest, torch
from pathlib import Path
from grader.catalogue import Catalogue
from grader.judge.pack import module_of
from grader.judge.testing import INJECTED, Rng, Trial, running, test_seed
from grader.judge.trial import InProcess
from grader.judge.view import Submission

for name, value in INJECTED.items():
    setattr(builtins, name, value)
torch.set_num_threads(1)
EXERCISE = Catalogue().exercise({slug!r})
SOLUTION = EXERCISE.solution_path.read_bytes()
REFERENCE = module_of(SOLUTION.decode(), "reference", EXERCISE.solution_path)

@pytest.fixture
def reference():
    return REFERENCE

@pytest.fixture
def submission(request):
    mine = Submission(InProcess(), REFERENCE)
    mine.load(SOLUTION, EXERCISE.slug + ".py", 7)
    with running(Trial(mine, test_seed(7, request.node.name))):
        yield mine

@pytest.fixture
def device():
    return "cpu"

@pytest.fixture
def rng(request):
    return Rng(test_seed(7, request.node.name), "cpu")
"""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--exercise", default="gqa")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    slug = options.exercise
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "plain_plugin.py").write_text(PLUGIN.format(slug=slug))
        solution, tests = ROOT / "solutions" / f"{slug}.py", ROOT / "exercises" / slug / "hidden_tests.py"
        pytest_command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", folder]
        commands = {
            "plain pytest": [*pytest_command, "-p", "no:cacheprovider", "-p", "plain_plugin", str(tests)],
            "kit grade": [
                *(sys.executable, "-c", "from grader.cli.main import main; main()", "grade", slug),
                *("--no-speed", "--seed", "7", "--file", str(solution)),
            ],
        }
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}", "KIT_WORKSPACE": f"{folder}/w"}
        environment |= {"OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for round_number in range(options.rounds + 1):
            for name, command in commands.items():
                began = time.perf_counter()
                done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
                if done.returncode:
                    print(f"{name} failed:\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
                    return 3
                if round_number:  # the first round fills the disk cache
                    seconds[name].append(time.perf_counter() - began)
    base = statistics.median(seconds["plain pytest"])
    for name, taken in seconds.items():
        print(f"{name:14} {statistics.median(taken):6.2f} s  {statistics.median(taken) / base:5.2f}x")
    return 0 if statistics.median(seconds["kit grade"]) / base <= BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())
