"""Are costs the same to the byte?  Every cost benchmark of every exercise, in three processes that differ.

    python tests/bench/costs_twice.py [--seed 7] [--record]

The processes have different hash seeds, thread counts and garbage, and the third computes as a machine without any
vector instructions would.  With the torch they were recorded with, the counts must also be those in `costs.json`, which
another machine wrote; `--record` writes it anew.  Exits with 1 when anything differs, and says what.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORD = Path(__file__).with_name("costs.json")
PLAIN_MACHINE = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}
sys.path.insert(0, str(ROOT))


def main(arguments: list[str]) -> int:
    """Compare two processes, or be one of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--record", action="store_true", help="write costs.json")
    parser.add_argument("--dump", action="store_true", help="measure in this process and print the counts")
    options = parser.parse_args(arguments)
    if options.dump:
        print(json.dumps(measure(options.seed)))
        return 0
    import torch

    dumps = []
    for hash_seed, threads, machine in (("1", "1", {}), ("2", "2", {}), ("3", "1", PLAIN_MACHINE)):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": threads, "KIT_LITTER": hash_seed}
        command = [sys.executable, __file__, "--dump", "--seed", str(options.seed)]
        done = subprocess.run(command, env=environment | machine, check=True, capture_output=True, text=True)
        dumps.append(json.loads(done.stdout))
    found = {"seed": options.seed, "torch": torch.__version__.split("+")[0], "counts": dumps[0]}
    others = {"in another process": dumps[1], "without vector instructions": dumps[2]}
    if options.record:
        RECORD.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    recorded = json.loads(RECORD.read_text())
    if all(recorded[key] == found[key] for key in ("seed", "torch")):
        others["recorded"] = recorded["counts"]
    differing = [
        f"DIFFERS {how}: {name}: {dumps[0].get(name)} and {counts.get(name)}"
        for how, counts in others.items()
        for name in sorted({*dumps[0], *counts})
        if dumps[0].get(name) != counts.get(name)
    ]
    print("\n".join(differing), end="\n" * bool(differing))
    calls = sum(len(counts) for counts in dumps[0].values())
    print(
        f"{len(dumps[0])} cost benchmarks, {calls} metered calls, compared {', '.join(others)} "
        f"(seed {options.seed}, torch {torch.__version__}, {platform.machine()})"
    )
    return 1 if differing else 0


def measure(seed: int) -> dict[str, list[list[int]]]:
    """The counts of every metered call, by exercise and cost."""
    import msgspec
    import torch

    from grader.catalogue import Catalogue
    from grader.judge import benchmarks
    from grader.judge.costs import own_cost
    from grader.judge.pack import Pack, module_of

    litter = [[] for _ in range(1000 * int(os.environ.get("KIT_LITTER", "1")))]
    for item in litter:
        item.append(item)
    del litter
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    found: dict[str, list[list[int]]] = {}
    seen: list[list[int]] = []
    plain = benchmarks.metered

    def noted(*args: object, **kwargs: object) -> object:
        value, costs = plain(*args, **kwargs)
        seen.append(list(msgspec.structs.astuple(costs)))
        return value, costs

    benchmarks.metered = noted  # type: ignore[assignment]
    for exercise in Catalogue(ROOT).exercises():
        if not exercise.costs or exercise.track == "kernels":
            continue
        text = exercise.solution_path.read_text(encoding="utf-8")
        module = module_of(text, f"reference_{exercise.slug}", exercise.solution_path)
        pack = Pack(exercise, module, text, (), ())
        for target, benchmark in benchmarks.load_benchmarks(pack).costs:
            seen.clear()
            own_cost(pack, benchmark, text, seed)
            found[f"{exercise.slug} / {target.name}"] = [list(counts) for counts in seen]
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
