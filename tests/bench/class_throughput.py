"""How fast `kit class grade` is, against one plain pytest process per submission, on a class of every kind of answer.

    python tests/bench/class_throughput.py [--count 100] [--kill] [--jobs 2] [--baseline-only-once]

The class: right answers, known mistakes, endless loops, crashes, forks, floods of output, empty and broken files.
The baseline runs the same hidden tests in one pytest process per submission, one after another, with pytest-timeout
ending a process at its first test that hangs (so a hang costs it one timeout, and the other verdicts).  It is measured
on `--sample` submissions of each kind and counted up.  Every verdict of the class is checked; with `--kill` the batch
is killed with SIGKILL half-way and run again, and must give the same grades.  Budget: 5 times the throughput.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from grader.catalogue import Catalogue, read_mistakes
from grader.host import sandbox

ROOT = Path(__file__).resolve().parents[2]
BUDGET = 5.0
SHARES = {"right": 34, "wrong": 36, "hang": 5, "crash": 6, "fork": 5, "flood": 5, "empty": 4, "broken": 5}
SLUG = "gqa"
KIT = [sys.executable, "-c", "from grader.cli.main import main; main()"]

HARM = {
    "hang": "        while True:\n            pass\n",
    "crash": "        import os\n        os._exit(3)\n",
    "fork": "        import os, time\n        for _ in range(8):\n            if os.fork() == 0:\n"
    "                time.sleep(3)\n                os._exit(0)\n        raise SystemError('forked')\n",
    "flood": "        print('x' * 3_000_000)\n",
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sample", type=int, default=1)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--isolation", default="process" if sandbox.why_not() else "bwrap")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kit-bench-") as name:
        folder = Path(name)
        for part in ("exercises", "kernels", "solutions"):  # a copy, which nobody edits meanwhile
            shutil.copytree(ROOT / part, folder / "content" / part)
        os.environ["KIT_CONTENT"] = str(folder / "content")
        kinds = write_class(folder / "class", options.count)
        seconds, grades = grade(folder / "class", folder / "out", options, kill_after=None)
        print(
            f"class: {options.count} submissions in {seconds:.0f} s on {options.jobs} lanes under {options.isolation}"
        )
        lost = check(grades, kinds)
        if options.kill:
            _, again = grade(folder / "class", folder / "again", options, kill_after=seconds / 2)
            same = {key: row["points"] for key, row in again.items()} == {
                key: row["points"] for key, row in grades.items()
            }
            print(f"killed with SIGKILL half-way and run again: {'the same grades' if same else 'OTHER GRADES'}")
            lost += not same
        baseline = plain_pytest(folder, kinds, options.sample)
        print(f"plain pytest, one process per submission: {baseline:.0f} s")
        print(f"ratio {baseline / seconds:.2f} (budget {BUDGET})")
    return 0 if not lost and baseline / seconds >= BUDGET else 1


def write_class(folder: Path, count: int) -> dict[str, tuple[str, str]]:
    """Write the class; student to (kind, the mistake it holds)."""
    exercise = Catalogue().exercise(SLUG)
    solution = exercise.solution_path.read_text(encoding="utf-8")
    mistakes = [item for item in read_mistakes(exercise) if item.kind == "wrong"]
    rights = [
        solution,
        *(path.read_text() for path in sorted((ROOT / "tests/submissions" / SLUG / "right").glob("*.py"))),
    ]
    place = re.search(r"    def forward\(.*?\) -> [^\n]*:\n", solution, re.S)
    assert place, "the solution has no forward"
    head, body = solution[: place.end()], solution[place.end() :]
    rng = random.Random(1)
    kinds: dict[str, tuple[str, str]] = {}
    total = sum(SHARES.values())
    plan = [kind for kind, share in SHARES.items() for _ in range(max(1, round(share * count / total)))]
    plan = (plan + ["right"] * count)[:count]
    rng.shuffle(plan)
    for number, kind in enumerate(plan):
        student, mistake = f"student {number:03d}", ""
        if kind == "right":
            text = rng.choice(rights)
        elif kind == "wrong":
            chosen = rng.choice(mistakes)
            mistake, text = chosen.id, solution
            for edit in chosen.edits:
                text = text.replace(edit.find, edit.replace)
        elif kind in HARM:
            text = f"{head}{HARM[kind]}{body}"
        else:
            text = "" if kind == "empty" else "def broken(:\n"
        kinds[student] = (kind, mistake)
        (folder / student).mkdir(parents=True)
        (folder / student / f"{SLUG}.py").write_text(text and f"{text}\n# {student}\n", encoding="utf-8")
    return kinds


def grade(
    folder: Path, out: Path, options: argparse.Namespace, kill_after: float | None
) -> tuple[float, dict[str, dict[str, object]]]:
    """Grade the class; seconds and each student's row.  With ``kill_after`` it is killed once on the way."""
    command = [*KIT, "class", "grade", str(folder), "--out", str(out), "-e", SLUG, "--no-speed", "--json"]
    command += ["--isolation", options.isolation, "--jobs", str(options.jobs), "--seed", "7"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if kill_after is not None:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        time.sleep(kill_after)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        time.sleep(1.0)
    started = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    seconds = time.monotonic() - started
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    return seconds, {row["student"]: row for row in json.loads(done.stdout)["grades"]}


def check(grades: dict[str, dict[str, object]], kinds: dict[str, tuple[str, str]]) -> int:
    """Compare every verdict with what was put in; the number that is wrong, each printed."""
    wrong = 0
    for student, (kind, mistake) in kinds.items():
        row = grades.get(student, {"status": "lost"})
        fine = row["status"] == "graded" and (row["passed"] if kind == "right" else not row["passed"])
        if kind == "wrong":
            fine = fine and row["mistakes"] == [mistake]
        if kind in ("empty", "broken"):
            fine = fine and row["points"] == 0
        if not fine:
            wrong += 1
            shown = {name: row.get(name) for name in ("status", "points", "mistakes", "note")}
            print(f"WRONG VERDICT: {student}, {kind} {mistake}: {shown}")
    print(f"verdicts: {len(kinds) - wrong} of {len(kinds)} right")
    return wrong


def plain_pytest(folder: Path, kinds: dict[str, tuple[str, str]], sample: int) -> float:
    """Seconds that one pytest process per submission would take for the class, one after another."""
    from cold_grade import PLUGIN

    plugin = PLUGIN.replace(
        "SOLUTION = EXERCISE.solution_path.read_bytes()",
        "SOLUTION = EXERCISE.solution_path.read_bytes()\nANSWER = Path({answer!r}).read_bytes()",
    )
    plugin = plugin.replace("mine.load(SOLUTION,", "mine.load(ANSWER,")
    assert plugin.count("ANSWER") == 2
    tests = folder / "content" / "exercises" / SLUG / "hidden_tests.py"
    seconds_of: dict[str, float] = {}
    counts: dict[str, int] = {}
    for student, (kind, _) in kinds.items():
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] > sample:
            continue
        answer = folder / "class" / student / f"{SLUG}.py"
        (folder / "plain_plugin.py").write_text(
            plugin.replace("{slug!r}", repr(SLUG)).replace("{answer!r}", repr(str(answer)))
        )
        command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(folder)]
        command += ["-p", "no:cacheprovider", "-p", "plain_plugin", "-p", "pytest_timeout", str(tests)]
        if kind == "hang":
            command += ["--timeout", "10", "--timeout-method", "thread"]
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{folder}",
            "OMP_NUM_THREADS": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        started = time.monotonic()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, start_new_session=True)
        seconds_of[kind] = seconds_of.get(kind, 0.0) + (time.monotonic() - started) / sample
        if kind == "right":
            assert done.returncode == 0, done.stdout[-2000:]
    for kind, seconds in seconds_of.items():
        print(f"  plain pytest, {kind}: {seconds:.1f} s each, {counts[kind]} of them")
    return sum(seconds_of[kind] * counts[kind] for kind in counts)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    sys.exit(main())
