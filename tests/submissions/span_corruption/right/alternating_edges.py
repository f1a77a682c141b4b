"""Right: alternating edges; slots among kept tokens; python's random seeded from the generator."""

from __future__ import annotations

import itertools
import random

import numpy as np
import torch


def corrupt_spans(tokens: list[int], spans: list[tuple[int, int]], first_sentinel: int) -> tuple[list[int], list[int]]:
    edges = [e for span in spans for e in span]
    if edges and (edges[0] < 0 or edges[-1] > len(tokens)):
        raise ValueError(f"out of range: {edges[0]}..{edges[-1]} of {len(tokens)}")
    for a, b in itertools.pairwise(edges):
        if a >= b:
            raise ValueError(f"not increasing: {a}, {b}")
    pieces = [tokens[a:b] for a, b in itertools.pairwise([0, *edges, len(tokens)])]
    ids = list(range(first_sentinel, first_sentinel - len(spans) - 1, -1))
    inputs = list(pieces[0])
    targets = []
    for i, (hidden, kept) in enumerate(zip(pieces[1::2], pieces[2::2])):
        inputs.append(ids[i])
        inputs.extend(kept)
        targets.append(ids[i])
        targets.extend(hidden)
    targets.append(ids[-1])
    return inputs, targets


def sample_spans(
    length: int, generator: torch.Generator, noise_density: float = 0.15, mean_span: float = 3.0
) -> list[tuple[int, int]]:
    """A random word of letters: `s` spans among kept tokens, sizes by random cuts; python's random from the generator."""
    if length < 2:
        raise ValueError(f"length = {length}")
    rng = random.Random(int(torch.randint(2**40, (1,), generator=generator)))
    noise = round(length * noise_density)
    noise = 1 if noise < 1 else length - 1 if noise > length - 1 else noise
    kept = length - noise
    count = min(max(1, round(noise / mean_span)), noise, kept + 1)
    cuts = sorted(rng.sample(range(1, noise), count - 1))
    sizes = np.diff([0, *cuts, noise]).tolist()
    # span i stands before kept token slots[i]; slots are all different
    slots = sorted(rng.sample(range(kept + 1), count))
    spans, used = [], 0
    for slot, size in zip(slots, sizes):
        spans.append((slot + used, slot + used + size))
        used += size
    return spans


def restore(inputs: list[int], targets: list[int], first_sentinel: int, n_sentinels: int = 100) -> list[int]:
    rank = lambda t: first_sentinel - t
    marks = [i for i, t in enumerate(targets) if rank(t) in range(n_sentinels)]
    hidden = {targets[a]: targets[a + 1 : b] for a, b in zip(marks, marks[1:] + [len(targets)])}
    out = []
    for t in inputs:
        out += hidden.get(t, [t]) if 0 <= rank(t) < n_sentinels else [t]
    return out
