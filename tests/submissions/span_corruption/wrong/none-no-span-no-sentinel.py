"""Wrong, and in no catalogue: without a span the closing sentinel is left out."""

import torch

def corrupt_spans(tokens, spans, first_sentinel):
    prev = -1
    for i, (s, e) in enumerate(spans):
        if not 0 <= s < e <= len(tokens):
            raise ValueError(f"span {s},{e} is empty or outside 0..{len(tokens)}")
        if s <= prev:
            raise ValueError(f"span {s},{e} touches or precedes the one that ends at {prev}")
        prev = e
    inputs, targets, at = [], [], 0
    for i, (s, e) in enumerate(spans):
        inputs += tokens[at:s] + [first_sentinel - i]
        targets += [first_sentinel - i] + tokens[s:e]
        at = e
    inputs += tokens[at:]
    if spans: targets.append(first_sentinel - len(spans))
    return inputs, targets

def _rand(n, g):
    return int(torch.randint(n, (1,), generator=g))

def _compose(total, parts, g):
    cuts = (torch.randperm(total - 1, generator=g)[: parts - 1] + 1).sort().values.tolist()
    edges = [0, *cuts, total]
    return [b - a for a, b in zip(edges, edges[1:])]

def sample_spans(length, generator, noise_density=0.15, mean_span=3.0):
    if length < 2:
        raise ValueError(f"length {length} < 2")
    noise = min(max(round(length * noise_density), 1), length - 1)
    kept = length - noise
    n = min(max(1, round(noise / mean_span)), noise, kept + 1)
    spans_len = _compose(noise, n, generator)
    # kept: n - 1 inner gaps >= 1, outer >= 0: add 2 and take two away
    gaps = _compose(kept + 2, n + 1, generator)
    gaps[0] -= 1
    gaps[-1] -= 1
    out, at = [], 0
    for gap, ln in zip(gaps, spans_len):
        at += gap
        out.append((at, at + ln))
        at += ln
    return out

def restore(inputs, targets, first_sentinel, n_sentinels=100):
    def is_s(t):
        return first_sentinel - n_sentinels < t <= first_sentinel
    spans, cur = {}, None
    for t in targets:
        if is_s(t):
            cur = spans.setdefault(t, [])
        elif cur is not None:
            cur.append(t)
    out = []
    for t in inputs:
        if is_s(t):
            out += spans.get(t, [])
        else:
            out.append(t)
    return out
