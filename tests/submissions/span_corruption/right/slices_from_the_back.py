"""Right: slice assignment from the back, stars and bars over combinations, a single left-to-right pass with an iterator"""

import torch


def corrupt_spans(tokens, spans, first_sentinel):
    edges = [-1, *(e for span in spans for e in span), len(tokens) + 1]
    if any(b <= a for a, b in zip(edges, edges[1:])):
        raise ValueError(f"spans {spans} of {len(tokens)} tokens: edges must grow, with a token between two spans")
    kept, cut = list(tokens), []
    for i in reversed(range(len(spans))):
        where = slice(*spans[i])
        cut[:0] = [first_sentinel - i] + kept[where]
        kept[where] = [first_sentinel - i]
    return kept, cut + [first_sentinel - len(spans)]


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
    marks = range(first_sentinel, first_sentinel - n_sentinels, -1)
    at = {t: i for i, t in enumerate(targets) if t in marks}

    def after(mark):
        for t in targets[at[mark] + 1:]:
            if t in marks:
                return
            yield t

    return [u for t in inputs for u in (after(t) if t in marks else (t,))]
