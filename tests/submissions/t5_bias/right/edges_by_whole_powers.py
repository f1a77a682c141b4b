"""Right: no logarithm: bucket edges by comparing integer powers, d**k >= e**k * (m/e)**j in Python integers; forward gathers from a Toeplitz line by index arithmetic"""

import functools

import torch
from torch import nn


@functools.lru_cache(maxsize=64)
def edges(n, max_distance):
    """The least distance of each bucket after the exact ones."""
    e = n // 2
    span, found, d = n - e, [], e
    for j in range(span):
        # floor(log(d/e) / log(m/e) * span) >= j  <=>  (d/e)**span >= (m/e)**j
        while d**span * e**j < max_distance**j * e**span:
            d += 1
        found.append(d)
    return tuple(found)


def relative_position_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    past = relative_position.to(torch.int64).neg()
    later = past < 0
    if bidirectional:
        n, distance = num_buckets // 2, past.abs()
    else:
        n, distance = num_buckets, torch.relu(past)
    bucket = distance.clamp(max=n // 2)
    for edge in edges(n, max_distance)[1:]:
        bucket = bucket + (distance >= edge)
    return torch.where(later, bucket + n, bucket) if bidirectional else bucket


class RelativePositionBias(nn.Module):
    def __init__(self, n_heads, bidirectional=True, num_buckets=32, max_distance=128):
        super().__init__()
        self.embedding = nn.Embedding(num_buckets, n_heads)
        self.rule = functools.partial(
            relative_position_bucket, bidirectional=bidirectional, num_buckets=num_buckets, max_distance=max_distance
        )

    def forward(self, q_len, k_len):
        if q_len > k_len:
            raise ValueError(f"q_len={q_len} exceeds k_len={k_len}")
        device = self.embedding.weight.device
        line = torch.arange(1 - k_len, q_len, device=device) if k_len else torch.arange(0, device=device)
        bias = self.embedding(self.rule(line)).mT if len(line) else self.embedding.weight.mT[:, :0]
        row = torch.arange(q_len, device=device).unsqueeze(1) + (k_len - q_len)
        column = torch.arange(k_len, device=device)
        return bias[:, column - row + k_len - 1].unsqueeze(0)
