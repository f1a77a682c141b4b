"""Right: NamedTuple spans, rejection sampling of separated places, restore by a small state machine."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Span(NamedTuple):
    start: int
    end: int


def corrupt_spans(tokens, spans, first_sentinel):
    last = None
    for start, end in spans:
        if not (0 <= start < end <= len(tokens)) or (last is not None and start <= last):
            raise ValueError(f"span {(start, end)} after {last} in {len(tokens)} tokens")
        last = end
    inputs, targets = list(tokens), [first_sentinel - len(spans)]
    for number in reversed(range(len(spans))):  # from the back, so that places stay valid
        start, end = spans[number]
        targets[:0] = [first_sentinel - number, *tokens[start:end]]
        inputs[start:end] = [first_sentinel - number]
    return inputs, targets


def sample_spans(length, generator, noise_density=0.15, mean_span=3.0):
    if length < 2:
        raise ValueError(f"length {length}")
    noise = sorted((1, round(length * noise_density), length - 1))[1]
    kept = length - noise
    count = min(max(1, round(noise / mean_span)), kept + 1, noise)
    # each noise token beyond the first of its span goes to a span drawn uniformly
    owner = torch.randint(0, count, (noise - count,), generator=generator)
    sizes = (torch.bincount(owner, minlength=count) + 1).tolist()
    places = torch.multinomial(torch.ones(kept + 1), count, generator=generator).sort().values.tolist()
    spans, before = [], 0
    for place, size in zip(places, sizes):
        spans.append(Span(place + before, place + before + size))
        before += size
    return spans


def restore(inputs, targets, first_sentinel, n_sentinels=100):
    def number(token):
        n = first_sentinel - token
        return n if 0 <= n < n_sentinels else None

    text, at = [], 0
    for token in inputs:
        if number(token) is None:
            text.append(token)
            continue
        at = targets.index(token, at) + 1
        while at < len(targets) and number(targets[at]) is None:
            text.append(targets[at])
            at += 1
    return text
