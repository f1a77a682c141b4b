"""Wrong: 100 hard-coded."""

import random

import torch


def corrupt_spans(tokens, spans, first_sentinel):
    spans = [tuple(span) for span in spans]
    previous_end = -1
    for start, end in spans:
        if end - start <= 0:
            raise ValueError(f"empty span [{start}, {end})")
        if start < 0 or end > len(tokens):
            raise ValueError(f"span [{start}, {end}) outside [0, {len(tokens)})")
        if start <= previous_end:
            raise ValueError(f"span [{start}, {end}) starts before {previous_end + 1}")
        previous_end = end
    owner = {i: n for n, (start, end) in enumerate(spans) for i in range(start, end)}
    inputs = []
    for i, token in enumerate(tokens):
        n = owner.get(i)
        if n is None:
            inputs.append(token)
        elif spans[n][0] == i:
            inputs.append(first_sentinel - n)
    targets = [t for n, (a, b) in enumerate(spans) for t in (first_sentinel - n, *tokens[a:b])]
    return inputs, targets + [first_sentinel - len(spans)]


def sample_spans(length, generator, noise_density=0.15, mean_span=3.0):
    if length < 2:
        raise ValueError(f"{length} tokens are too few")
    rnd = random.Random(int(torch.randint(0, 2**62, (), generator=generator)))
    noise = min(max(1, round(length * noise_density)), length - 1)
    kept = length - noise
    count = min(max(1, round(noise / mean_span)), kept + 1, noise)
    # places between kept tokens (and at both ends) where a span goes: kept + 1 of them
    places = sorted(rnd.sample(range(kept + 1), count))
    cuts = [0, *sorted(rnd.sample(range(1, noise), count - 1)), noise]
    spans, used = [], 0
    for place, a, b in zip(places, cuts, cuts[1:]):
        start = place + used
        spans.append((start, start + b - a))
        used += b - a
    return spans


def restore(inputs, targets, first_sentinel, n_sentinels=100):
    low = first_sentinel - 100
    segments, key = {}, None
    for token in targets:
        if low < token <= first_sentinel:
            key = token
            segments[key] = []
        elif key is not None:
            segments[key].append(token)
    out = list(inputs)
    for i in reversed(range(len(out))):
        if low < out[i] <= first_sentinel:
            out[i : i + 1] = segments.get(out[i], [])
    return out
