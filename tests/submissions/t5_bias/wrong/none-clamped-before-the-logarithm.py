"""Wrong: distances are clamped to max_distance before the log, last bucket never in causal mode with n odd"""

import math

import torch
from torch import nn


def relative_position_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    rel = relative_position.long()
    base = torch.zeros_like(rel)
    n = num_buckets
    if bidirectional:
        n = n // 2
        base = (rel > 0).long() * n
        d = rel.abs()
    else:
        d = (-rel).clamp(min=0)
    e = n // 2
    safe = d.clamp(min=1, max=max_distance - 1).double()
    big = e + (torch.log(safe / e) / math.log(max_distance / e) * (n - e)).floor().long()
    big = big.clamp(max=n - 1)
    return base + torch.where(d < e, d, big)


class RelativePositionBias(nn.Module):
    def __init__(self, n_heads, bidirectional=True, num_buckets=32, max_distance=128):
        super().__init__()
        self.args = bidirectional, num_buckets, max_distance
        self.embedding = nn.Embedding(num_buckets, n_heads)

    def forward(self, q_len, k_len):
        if q_len > k_len:
            raise ValueError(f"{q_len} > {k_len}")
        dev = self.embedding.weight.device
        q = torch.arange(k_len - q_len, k_len, device=dev)
        rel = torch.arange(k_len, device=dev) - q[:, None]
        table = self.embedding(relative_position_bucket(rel, *self.args))
        return table.permute(2, 0, 1)[None]
