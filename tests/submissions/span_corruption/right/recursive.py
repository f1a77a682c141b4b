"""Right: recursion; units thrown one at a time; takewhile."""

from __future__ import annotations

import itertools
import random

import numpy as np
import torch


def corrupt_spans(tokens: list[int], spans: list[tuple[int, int]], first_sentinel: int) -> tuple[list[int], list[int]]:
    n = len(tokens)
    bad = [s for s in spans if s[0] < 0 or s[1] > n or s[0] >= s[1]]
    if bad:
        raise ValueError(f"bad spans {bad} for {n} tokens")
    clash = [(a, b) for a, b in zip(spans[:-1], spans[1:]) if b[0] <= a[1]]
    if clash:
        raise ValueError(f"spans without a kept token between them: {clash}")

    def walk(at, rest, number):
        if not rest:
            return tokens[at:], [first_sentinel - number]
        (start, end), *later = rest
        inputs, targets = walk(end, later, number + 1)
        s = first_sentinel - number
        return tokens[at:start] + [s] + inputs, [s] + tokens[start:end] + targets

    return walk(0, list(spans), 0)


def sample_spans(
    length: int, generator: torch.Generator, noise_density: float = 0.15, mean_span: float = 3.0
) -> list[tuple[int, int]]:
    """Stars and bars: extra units are thrown one at a time by a random multinomial, symmetric in the parts."""
    if length <= 1:
        raise ValueError(f"{length} tokens")
    noise = min(max(round(length * noise_density), 1), length - 1)
    kept = length - noise
    n = max(1, round(noise / mean_span))
    n = min(n, noise, kept + 1)
    size = torch.ones(n, dtype=torch.int64)
    for _ in range(noise - n):
        size[int(torch.randint(n, (1,), generator=generator))] += 1
    gap = torch.cat([torch.zeros(1), torch.ones(n - 1), torch.zeros(1)]).long()
    for _ in range(kept - (n - 1)):
        gap[int(torch.randint(n + 1, (1,), generator=generator))] += 1
    starts = torch.cumsum(gap[:-1], 0) + torch.cumsum(size, 0) - size
    return [(int(a), int(a + b)) for a, b in zip(starts, size)]


def restore(inputs: list[int], targets: list[int], first_sentinel: int, n_sentinels: int = 100) -> list[int]:
    sentinels = frozenset(range(first_sentinel, first_sentinel - n_sentinels, -1))
    answers = iter(targets)
    next(answers, None)
    out = []
    for token in inputs:
        if token in sentinels:
            out.extend(itertools.takewhile(lambda t: t not in sentinels, answers))
        else:
            out.append(token)
    return out
