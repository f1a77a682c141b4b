"""Are costs the same to the byte?  Every cost benchmark of every exercise, in two processes that differ.

    python tests/bench/costs_twice.py [--seed 7]

The processes have different hash seeds, thread counts and garbage.  Prints how many metered calls there were and the
digest of all their counts: two machines with the same torch must print the same.  Exits with 1 when the two differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


def main(arguments: list[str]) -> int:
    """Compare two processes, or be one of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--dump", action="store_true", help="measure in this process and print the counts")
    options = parser.parse_args(arguments)
    if options.dump:
        print(json.dumps(measure(options.seed)))
        return 0
    dumps = []
    for hash_seed, threads in (("1", "1"), ("2", "2")):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": threads, "KIT_LITTER": hash_seed}
        command = [sys.executable, __file__, "--dump", "--seed", str(options.seed)]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        dumps.append(json.loads(done.stdout))
    for name in sorted({*dumps[0], *dumps[1]}):
        if dumps[0].get(name) != dumps[1].get(name):
            print(f"DIFFERS {name}: {dumps[0].get(name)} and {dumps[1].get(name)}")
    digest = hashlib.sha256(json.dumps(dumps[0], sort_keys=True).encode()).hexdigest()[:16]
    calls = sum(len(counts) for counts in dumps[0].values())
    import torch

    print(
        f"{len(dumps[0])} cost benchmarks, {calls} metered calls, digest {digest} "
        f"(seed {options.seed}, torch {torch.__version__}, {platform.machine()})"
    )
    return 0 if dumps[0] == dumps[1] else 1


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
