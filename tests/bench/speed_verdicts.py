"""How often is a speed verdict wrong?  The must-holds of the timing layer, on this machine, in real hosts.

    python tests/bench/speed_verdicts.py [--runs 100] [--exercises gqa,rope] [--cases itself,1.5x,0.7x,other]
        [--how spin,sleep,again] [--budget 10] [--quiet]

With a process that keeps one other core busy (unless --quiet), and for every speed target of the exercises:

* the solution against itself: no `fail`, at most 5% `inconclusive` (growth targets, too);
* the other way of working that a growth target tells apart (`other_ways.py`): at most 1 `pass` in 100;
* the solution slowed to 1.5 times the target, by sleeping, by busy waiting and by doing its work again and again: at
  most 1 `pass` in 100;
* the solution slowed to 0.7 times the target: at most 1 `fail` in 100.

Prints one line per case and exits with 1 when one of them does not hold.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from other_ways import OTHER_WAYS  # noqa: E402

from grader.catalogue import Catalogue  # noqa: E402
from grader.host import wire, zygote  # noqa: E402
from grader.host.process import Zygote  # noqa: E402

# Wraps every public function and method of a solution, once it is loaded, so that a call takes `factor` times as long.
# As long as a call takes that follows others: after a long pause it takes up to half as much again, which the
# reference, called again and again, never does.  So where there is room for more calls, the median of up to five
# later ones is the measure.  Their results are kept meanwhile, as timed calls' are: memory that a call gets back warm
# would make it quicker than the reference's are.
SLOWED = """

def _slowed(function, factor=FACTOR, how="HOW"):
    import functools
    import time

    @functools.wraps(function)
    def run(*args, **kwargs):
        if active[0]:
            return function(*args, **kwargs)
        active[0] = True
        try:
            # The thread's own clock: being kept from running is not work, and slows the reference as well.
            begin = again = time.thread_time()
            result = function(*args, **kwargs)
            times = [time.thread_time() - again]
            kept = [result]
            for _ in range(min(5, int(factor / 1.5) - 1)):
                again = time.thread_time()
                result = function(*args, **kwargs)
                times.append(time.thread_time() - again)
                kept.append(result)
            later = sorted(times[1:] or times)
            spent = later[len(later) // 2]
            if how == "sleep":
                time.sleep(max(0.0, factor * spent - (time.thread_time() - begin)))
            if how == "again":
                # The same work once more and once more; the last call would be a part of one.
                while time.thread_time() - begin < (factor - 1) * spent:
                    result = function(*args, **kwargs)
            while how != "sleep" and time.thread_time() - begin < factor * spent:
                pass
            return result
        finally:
            active[0] = False

    return run


active = [False]
for _name, _value in list(globals().items()):
    if _name.startswith("_") or getattr(_value, "__module__", "") != __name__:
        continue
    if isinstance(_value, type):
        for _method, _function in list(vars(_value).items()):
            if callable(_function) and not _method.startswith("_"):
                setattr(_value, _method, _slowed(_function))
    elif callable(_value):
        globals()[_name] = _slowed(_value)
"""


def main(arguments: list[str]) -> int:
    """Run the cases; 0 when every must-hold holds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--exercises", default="gqa")
    parser.add_argument("--cases", default="itself,1.5x,0.7x,other", help="beginnings of the cases' names")
    parser.add_argument("--how", default="spin,sleep,again", help="how a submission is slowed")
    parser.add_argument("--budget", type=float, default=10.0)
    parser.add_argument("--quiet", action="store_true", help="keep no other core busy")
    options = parser.parse_args(arguments)
    zygote.prepare_torch()
    zygotes = Zygote.forked(), Zygote.forked()
    holds = True
    try:
        with contextlib.nullcontext() if options.quiet else busy_core():
            for slug in options.exercises.split(","):
                holds &= cases(
                    slug, zygotes, options.runs, options.budget, tuple(options.cases.split(",")), options.how.split(",")
                )
    finally:
        for each in zygotes:
            each.close()
    return 0 if holds else 1


@contextlib.contextmanager
def busy_core() -> Iterator[None]:
    """One process that never rests, and that ends with this one."""
    forever = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
    process = subprocess.Popen([sys.executable, "-c", forever])
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def cases(
    slug: str, zygotes: tuple[Zygote, Zygote], runs: int, budget: float, wanted: tuple[str, ...], ways: Sequence[str]
) -> bool:
    """Every case of one exercise, of those that begin as `wanted`, slowed in these ways."""
    from grader.judge.benchmarks import load_benchmarks
    from grader.judge.pack import Pack, module_of
    from grader.judge.speed import SpeedJudge

    exercise = Catalogue(ROOT).exercise(slug)
    text = exercise.solution_path.read_text()
    pack = Pack(exercise, module_of(text, f"reference_{slug}", exercise.solution_path), text, (), ())
    holds = True
    for target, benchmark in load_benchmarks(pack).speeds:
        # A target of 1 compares two functions of one file, of which the solution makes one quick.
        versus_itself = target.target > 1.2
        plans = [("itself", 1.0, "as it is")]
        for how in ways:
            plans += [("1.5x over", 1.5 * target.target, how), ("0.7x under", 0.7 * target.target, how)] * versus_itself
        for name, factor, how in plans:
            if not name.startswith(wanted):
                continue
            source = text if name == "itself" else text + SLOWED.replace("FACTOR", repr(factor)).replace("HOW", how)
            judge = SpeedJudge(pack, *zygotes, wire.Load(source.encode(), f"{slug}.py", 1), budget_seconds=budget)
            begin = time.monotonic()
            found = [judge.speed(target, benchmark) for _ in range(runs)]
            seconds = (time.monotonic() - begin) / runs
            counts = collections.Counter(str(result.verdict) for result in found)
            allowed = {
                "itself": counts["fail"] == 0 and counts["inconclusive"] <= 0.05 * runs,
                "1.5x over": counts["pass"] <= 0.01 * runs,
                "0.7x under": counts["fail"] <= 0.01 * runs,
            }[name]
            holds &= allowed
            middle = sorted(result.ratio for result in found)[runs // 2]
            print(
                f"{'ok ' if allowed else 'BAD'} {slug} / {target.name} / {name} ({how}): {dict(counts)} of {runs}; "
                f"target {target.target:g}, true ratio {factor if versus_itself else middle:.2f}, "
                f"median measured {middle:.2f}, {seconds:.1f} s each, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    sources = {"itself": text, "other way": text + OTHER_WAYS.get(slug, "")}
    for growth, growth_benchmark in load_benchmarks(pack).growths:
        for name in (name for name in sources if name.startswith(wanted)):
            judge = SpeedJudge(
                pack, *zygotes, wire.Load(sources[name].encode(), f"{slug}.py", 1), budget_seconds=budget
            )
            found = [judge.growth(growth, growth_benchmark) for _ in range(runs)]
            counts = collections.Counter(str(result.verdict) for result in found)
            allowed = {
                "itself": counts["fail"] == 0 and counts["inconclusive"] <= 0.05 * runs,
                "other way": counts["pass"] <= 0.01 * runs,
            }[name]
            holds &= allowed
            print(
                f"{'ok ' if allowed else 'BAD'} {slug} / {growth.name} / {name}: {dict(counts)} of {runs}; limit "
                f"{growth.limit:g}, median exponent {sorted(result.ratio for result in found)[runs // 2]:.2f}",
                flush=True,
            )
    return holds


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
