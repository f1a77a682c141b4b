"""Wrong: the decoder predicts everything."""

import torch


def corrupt_spans(tokens, spans, first_sentinel):
    last = None
    for start, end in spans:
        if not 0 <= start < end <= len(tokens):
            raise ValueError(f"bad span {start}:{end} for {len(tokens)} tokens")
        if last is not None and start <= last:
            raise ValueError(f"span {start}:{end} follows one that ends at {last}")
        last = end
    noise = [False] * len(tokens)
    for start, end in spans:
        noise[start:end] = [True] * (end - start)

    def side(hidden, closing):
        out, count = [], 0
        for i, token in enumerate(tokens):
            starts = noise[i] and (i == 0 or not noise[i - 1])
            if hidden:
                if noise[i]:
                    if starts:
                        out.append(first_sentinel - count)
                    out.append(token)
                elif True in noise[i:]:
                    out.append(token)
            else:
                if not noise[i]:
                    out.append(token)
                elif starts:
                    out.append(first_sentinel - count)
            count += starts
        return out + [first_sentinel - count] * closing

    return side(False, 0), side(True, 1)


def _segments(n_items, n_segments, generator):
    first = torch.zeros(n_items - 1, dtype=torch.long)
    first[: n_segments - 1] = 1
    first = first[torch.randperm(n_items - 1, generator=generator)]
    ids = torch.cat([torch.zeros(1, dtype=torch.long), first]).cumsum(0)
    return torch.bincount(ids, minlength=n_segments).tolist()


def sample_spans(length, generator, noise_density=0.15, mean_span=3.0):
    if length < 2:
        raise ValueError(f"length={length}")
    n_noise = min(max(int(round(length * noise_density)), 1), length - 1)
    n_spans = min(max(int(round(n_noise / mean_span)), 1), n_noise, length - n_noise)
    noise = _segments(n_noise, n_spans, generator)
    kept = _segments(length - n_noise, n_spans, generator)
    spans, at = [], 0
    for k, n in zip(kept, noise):
        spans.append((at + k, at + k + n))
        at += k + n
    return spans


def restore(inputs, targets, first_sentinel, n_sentinels=100):
    def index(token):
        i = first_sentinel - token
        return i if 0 <= i < n_sentinels else None

    pieces = {}
    for token in targets:
        i = index(token)
        if i is not None:
            key = i
            pieces[key] = []
        else:
            pieces[key].append(token)
    return [t for token in inputs for t in (pieces[index(token)] if index(token) is not None else [token])]
