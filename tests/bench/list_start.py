"""How long `kit list` takes, as a multiple of importing click and rich in a fresh process.

    python tests/bench/list_start.py [--rounds 30]

The two run in turn, so that a busy machine slows both; the ratio is of the medians.  Budget: 1.5.
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
BUDGET = 1.5
COMMANDS = {
    "import click, rich": "import click, rich",
    "kit list": "import sys; sys.argv = ['kit', 'list']; from grader.cli.main import main; main()",
    "kit --help": "import sys; sys.argv = ['kit', '--help']; from grader.cli.main import main; main()",
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KIT_WORKSPACE": f"{folder}/w"}
        for round_number in range(rounds + 2):
            for name, code in COMMANDS.items():
                began = time.perf_counter()
                subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, env=environment)
                if round_number >= 2:  # the first rounds write bytecode and fill the disk cache
                    seconds[name].append(time.perf_counter() - began)
    base = statistics.median(seconds["import click, rich"])
    for name, taken in seconds.items():
        print(f"{name:20} {statistics.median(taken) * 1e3:7.1f} ms  {statistics.median(taken) / base:5.2f}x")
    return 0 if all(statistics.median(taken) / base <= BUDGET for taken in seconds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
