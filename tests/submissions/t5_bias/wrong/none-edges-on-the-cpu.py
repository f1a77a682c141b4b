"""The edges of the buckets are on the CPU, whatever device the positions are on."""

import math

import torch
from torch import nn


def _edges(n, far):
    """First distance of each bucket 1 .. n - 1, as exact integers."""
    e = n // 2
    if e < 1 or far <= e:
        raise ValueError(f"{n} buckets a direction, max_distance {far}")
    edges, d = list(range(1, e)), e
    for b in range(e, n):
        while min(n - 1, e + int(math.log(d / e) / math.log(far / e) * (n - e))) < b:
            d += 1
        edges.append(d)
    return edges


def relative_position_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    n = num_buckets // 2 if bidirectional else num_buckets
    edges = torch.tensor(_edges(n, max_distance))
    if bidirectional:
        bucket = torch.bucketize(relative_position.abs(), edges, right=True)
        return bucket + n * (relative_position > 0).long()
    return torch.bucketize((-relative_position).clamp(min=0), edges, right=True)


class RelativePositionBias(nn.Module):
    def __init__(self, n_heads, bidirectional=True, num_buckets=32, max_distance=128):
        super().__init__()
        self.embedding = nn.Embedding(num_buckets, n_heads)
        self.rule = dict(bidirectional=bidirectional, num_buckets=num_buckets, max_distance=max_distance)

    def forward(self, q_len, k_len):
        if q_len > k_len:
            raise ValueError(f"{q_len} > {k_len}")
        w = self.embedding.weight
        j = torch.arange(k_len, device=w.device)
        i = j[k_len - q_len :]
        return self.embedding(relative_position_bucket(j - i[:, None], **self.rule)).movedim(-1, 0)[None]
