"""Right: generator functions, rejection sampling of the whole pattern's edges"""

import torch


def corrupt_spans(tokens, spans, first_sentinel):
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
    if length <= 1:
        raise ValueError(f"{length} tokens cannot be split")
    noise = max(1, min(length - 1, round(length * noise_density)))
    k = min(max(1, round(noise / mean_span)), length - noise + 1)
    # Units are thrown one at a time; each cell is as likely as the others.
    sizes = (1 + torch.bincount(torch.randint(k, (noise - k,), generator=generator), minlength=k)).tolist()
    spare = length - noise - (k - 1)
    gaps = torch.bincount(torch.randint(k + 1, (spare,), generator=generator), minlength=k + 1).tolist()

    def walk():
        at = 0
        for i in range(k):
            at += gaps[i] + (i > 0)
            yield at, at + sizes[i]
            at += sizes[i]

    return list(walk())


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
