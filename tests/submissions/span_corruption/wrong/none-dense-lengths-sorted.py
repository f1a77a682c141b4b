"""Wrong: where most tokens are noise the shortest spans come first."""

from __future__ import annotations

import torch


def corrupt_spans(tokens, spans, first_sentinel):
    inputs, targets, end, sentinel = [], [], 0, first_sentinel
    for number, (a, b) in enumerate(spans):
        if not 0 <= a < b <= len(tokens):
            raise ValueError(f"span [{a}, {b}) is empty or outside {len(tokens)} tokens")
        if number > 0 and a <= end:
            raise ValueError(f"span [{a}, {b}) touches or precedes the end {end} of the one before")
        inputs += tokens[end:a] + [sentinel]
        targets += [sentinel] + tokens[a:b]
        sentinel -= 1
        end = b
    return inputs + tokens[end:], targets + [sentinel]


def _cut(n, k, generator):
    cuts = (torch.randperm(n - 1, generator=generator)[: k - 1] + 1).sort().values.tolist()
    edges = [0] + cuts + [n]
    return [q - p for p, q in zip(edges, edges[1:])]


def sample_spans(length, generator, noise_density=0.15, mean_span=3.0):
    if length < 2:
        raise ValueError(f"length must be at least 2, got {length}")
    noise = min(max(round(length * noise_density), 1), length - 1)
    kept = length - noise
    count = min(max(1, round(noise / mean_span)), noise, kept + 1)
    lengths = _cut(noise, count, generator)
    if noise_density > 0.5:
        lengths.sort()
    gaps = _cut(kept + 2, count + 1, generator)
    gaps[0] -= 1
    spans, at = [], 0
    for g, s in zip(gaps, lengths):
        spans.append((at + g, at + g + s))
        at += g + s
    return spans


def restore(inputs, targets, first_sentinel, n_sentinels=100):
    low = first_sentinel - n_sentinels
    table, current = {}, None
    for t in targets:
        if low < t <= first_sentinel:
            current = table.setdefault(t, [])
        else:
            current.append(t)
    out = []
    for t in inputs:
        if low < t <= first_sentinel:
            out += table[t]
        else:
            out.append(t)
    return out
