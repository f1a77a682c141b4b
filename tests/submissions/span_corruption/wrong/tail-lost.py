"""Wrong: the last kept stretch is dropped."""

import itertools

import torch


def corrupt_spans(tokens, spans, first_sentinel):
    flat = [edge for span in spans for edge in span]
    if any(a >= b for a, b in itertools.pairwise(flat)) or (flat and (flat[0] < 0 or flat[-1] > len(tokens))):
        raise ValueError(f"spans {spans} must be increasing inside 0..{len(tokens)}")
    ids = range(first_sentinel, first_sentinel - len(spans) - 1, -1)
    starts, ends = [s for s, _ in spans], [e for _, e in spans]
    inputs = list(tokens[: starts[0]]) if spans else []
    targets = []
    for i, (start, end) in enumerate(spans):
        following = starts[i + 1] if i + 1 < len(spans) else end
        inputs.extend([ids[i], *tokens[end:following]])
        targets.extend([ids[i], *tokens[start:end]])
    return inputs, [*targets, ids[len(spans)]]


def _compose(total, parts, generator):
    picks = torch.multinomial(torch.ones(total - 1), parts - 1, generator=generator) if parts > 1 else torch.tensor([])
    bounds = torch.cat([torch.tensor([0]), picks.long().sort().values + 1, torch.tensor([total])])
    return bounds.diff().tolist()


def sample_spans(length, generator, noise_density=0.15, mean_span=3.0):
    if length <= 1:
        raise ValueError("cannot corrupt %d token(s)" % length)
    noise = max(1, min(length - 1, round(noise_density * length)))
    kept = length - noise
    wanted = max(1, round(noise / mean_span))
    if wanted > kept:
        wanted = kept
    starts_with_span = bool(torch.randint(0, 2, (1,), generator=generator))
    noise_runs, kept_runs = _compose(noise, wanted, generator), _compose(kept, wanted, generator)
    runs = [run for pair in zip(noise_runs, kept_runs) for run in pair]
    if not starts_with_span:
        runs = [run for pair in zip(kept_runs, noise_runs) for run in pair]
    edges = list(itertools.accumulate(runs, initial=0))
    every = list(itertools.pairwise(edges))
    return every[0 if starts_with_span else 1 :: 2]


def restore(inputs, targets, first_sentinel, n_sentinels=100):
    sentinels = set(range(first_sentinel - n_sentinels + 1, first_sentinel + 1))
    text = []
    for token in inputs:
        if token not in sentinels:
            text.append(token)
            continue
        begin = targets.index(token) + 1
        text.extend(itertools.takewhile(lambda t: t not in sentinels, targets[begin:]))
    return text
