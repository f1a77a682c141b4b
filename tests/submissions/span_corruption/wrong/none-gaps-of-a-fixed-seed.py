"""Wrong: first sized by reused cuts: sizes and gaps from the same permutation."""

from __future__ import annotations

import itertools
import random

import numpy as np
import torch


def corrupt_spans(tokens, spans, first_sentinel):
    owner = [None] * len(tokens)
    previous = -1
    for number, (start, end) in enumerate(spans):
        if not 0 <= start < end <= len(tokens):
            raise ValueError(f"span {number} is [{start}, {end}) of {len(tokens)} tokens")
        if start <= previous:
            raise ValueError(f"span {number} starts at {start}, the one before ends at {previous}")
        previous = end
        owner[start:end] = [number] * (end - start)
    inputs, targets = [], []
    for number, run in itertools.groupby(range(len(tokens)), key=owner.__getitem__):
        piece = [tokens[i] for i in run]
        if number is None:
            inputs += piece
        else:
            inputs.append(first_sentinel - number)
            targets += [first_sentinel - number, *piece]
    return inputs, targets + [first_sentinel - len(spans)]


def _composition(total, parts, generator):
    """Uniform among the ways to write total as parts positive integers."""
    cuts = torch.randperm(total - 1, generator=generator)[: parts - 1].sort().values + 1
    edges = [0, *cuts.tolist(), total]
    return [b - a for a, b in zip(edges, edges[1:])]


def sample_spans(length, generator, noise_density=0.15, mean_span=3.0):
    if length < 2:
        raise ValueError(f"length {length} < 2")
    noise = max(1, min(length - 1, round(length * noise_density)))
    kept = length - noise
    count = min(max(1, round(noise / mean_span)), kept + 1, noise)
    sizes = _composition(noise, count, generator)
    # the two outer stretches may be empty: two borrowed tokens
    gaps = _composition(kept + 2, count + 1, torch.Generator().manual_seed(noise))
    gaps[0] -= 1
    gaps[-1] -= 1
    spans, at = [], 0
    for gap, size in zip(gaps, sizes):
        at += gap
        spans.append((at, at + size))
        at += size
    return spans


def restore(inputs, targets, first_sentinel, n_sentinels=100):
    sentinel = lambda t: first_sentinel - n_sentinels < t <= first_sentinel
    hidden = {}
    for t in targets:
        if sentinel(t):
            current = hidden.setdefault(t, [])
        else:
            current.append(t)
    return [u for t in inputs for u in (hidden[t] if sentinel(t) else [t])]
