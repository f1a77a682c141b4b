"""Wrong: argument names."""

from __future__ import annotations

import torch


def corrupt_spans(tokens, spans, first_sentinel):
    last = -1
    inputs, targets = [], []
    pos = 0
    for i, (start, end) in enumerate(spans):
        if not (last < start < end <= len(tokens)):
            raise ValueError(f"span {i} [{start}, {end}) after {last} in {len(tokens)}")
        inputs += tokens[pos:start]
        inputs.append(first_sentinel - i)
        targets.append(first_sentinel - i)
        targets += tokens[start:end]
        pos = last = end
    inputs += tokens[pos:]
    targets.append(first_sentinel - len(spans))
    return inputs, targets


def _split(total, parts, generator):
    cuts = (torch.randperm(total - 1, generator=generator)[: parts - 1] + 1).sort().values.tolist()
    edges = [0, *cuts, total]
    return [b - a for a, b in zip(edges, edges[1:])]


def sample_spans(length: int, generator: torch.Generator, density: float = 0.15, mean_length: float = 3.0):
    if length < 2:
        raise ValueError(f"length {length} < 2")
    noise = min(max(round(length * density), 1), length - 1)
    kept = length - noise
    n = min(max(1, round(noise / mean_length)), kept + 1, noise)
    sizes = _split(noise, n, generator)
    gaps = _split(kept + 2, n + 1, generator)
    gaps[0] -= 1
    out, pos = [], 0
    for gap, size in zip(gaps, sizes):
        pos += gap
        out.append((pos, pos + size))
        pos += size
    return out


def restore(inputs, targets, first_sentinel: int, n_sentinels: int = 100):
    def is_sentinel(t):
        return 0 <= first_sentinel - t < n_sentinels

    hidden, key = {}, None
    for t in targets:
        if is_sentinel(t):
            key = t
            hidden[key] = []
        else:
            hidden[key].append(t)
    out = []
    for t in inputs:
        out += hidden[t] if is_sentinel(t) else [t]
    return out
