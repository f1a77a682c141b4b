"""Wrong: an empty text gives two empty lists, without a closing sentinel"""

import torch


def corrupt_spans(tokens, spans, first_sentinel):
    if not tokens:
        return [], []
    last = -1
    for start, end in spans:
        if not (0 <= start < end <= len(tokens)) or start <= last:
            raise ValueError(f"span ({start}, {end}) is empty, out of range or touches what ends at {last}; {len(tokens)} tokens")
        last = end
    inputs, targets, at = [], [], 0
    for i, (start, end) in enumerate(spans):
        inputs += [*tokens[at:start], first_sentinel - i]
        targets += [first_sentinel - i, *tokens[start:end]]
        at = end
    inputs += tokens[at:]
    targets.append(first_sentinel - len(spans))
    return inputs, targets


def _cuts(total, parts, generator):
    places = sorted((torch.randperm(total - 1, generator=generator)[: parts - 1] + 1).tolist())
    return [b - a for a, b in zip([0] + places, places + [total])]


def sample_spans(length, generator, noise_density=0.15, mean_span=3.0):
    if length < 2:
        raise ValueError(f"length = {length} < 2")
    noise = min(max(round(length * noise_density), 1), length - 1)
    kept = length - noise
    n = min(max(1, round(noise / mean_span)), kept + 1)
    sizes = _cuts(noise, n, generator)
    gaps = _cuts(kept + 2, n + 1, generator)
    gaps[0] -= 1
    gaps[-1] -= 1
    spans, at = [], 0
    for gap, size in zip(gaps, sizes):
        spans.append((at + gap, at + gap + size))
        at += gap + size
    return spans


def restore(inputs, targets, first_sentinel, n_sentinels=100):
    def is_sentinel(t):
        return first_sentinel - n_sentinels < t <= first_sentinel

    hidden, current = {}, None
    for t in targets:
        if is_sentinel(t):
            current = hidden.setdefault(t, [])
        else:
            current.append(t)
    out = []
    for t in inputs:
        out.extend(hidden[t] if is_sentinel(t) else [t])
    return out
