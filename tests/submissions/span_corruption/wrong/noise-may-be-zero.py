"""Wrong: short texts stay whole."""

import numpy as np
import torch


def corrupt_spans(tokens, spans, first_sentinel):
    inputs, targets, cursor, sentinel = list(tokens), [], len(tokens) + 1, first_sentinel - len(spans)
    if list(spans) != sorted(spans):
        raise ValueError(f"{spans} is not sorted")
    pieces = [[sentinel]]
    for start, end in reversed(spans):
        if start < 0 or end > len(tokens) or start >= end or end >= cursor:
            raise ValueError(f"({start}, {end}) among {len(tokens)} tokens, next span at {cursor}")
        sentinel += 1
        pieces.append([sentinel, *inputs[start:end]])
        inputs[start:end] = [sentinel]
        cursor = start
    for piece in reversed(pieces):
        targets += piece
    return inputs, targets


def sample_spans(length, generator, noise_density=0.15, mean_span=3.0):
    if length < 2:
        raise ValueError(f"length must be >= 2, not {length}")
    rng = np.random.default_rng(int(torch.randint(2**31, (1,), generator=generator)))
    noise = int(np.clip(np.round(length * noise_density), 0, length - 1))
    if noise == 0:
        return []
    kept = length - noise
    count = int(min(max(np.round(noise / mean_span), 1), kept + 1, noise))
    lengths = 1 + rng.multinomial(noise - count, [1 / count] * count)
    gaps = rng.multinomial(kept - (count - 1), [1 / (count + 1)] * (count + 1))
    gaps[1:-1] += 1
    starts = np.cumsum(gaps[:-1]) + np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return [(int(s), int(s + n)) for s, n in zip(starts, lengths)]


def restore(inputs, targets, first_sentinel, n_sentinels=100):
    tokens = []
    for item in inputs:
        offset = first_sentinel - item
        if offset < 0 or offset >= n_sentinels:
            tokens.append(item)
            continue
        i = targets.index(item) + 1
        while i < len(targets) and not 0 <= first_sentinel - targets[i] < n_sentinels:
            tokens.append(targets[i])
            i += 1
    return tokens
