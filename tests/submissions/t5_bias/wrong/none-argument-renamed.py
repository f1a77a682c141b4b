"""Wrong: keyword names differ (rel)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def relative_position_bucket(
    rel_pos: Tensor, bidirectional: bool = True, num_buckets: int = 32, max_distance: int = 128
) -> Tensor:
    rel = rel_pos.long()
    base = torch.zeros_like(rel)
    n = num_buckets
    if bidirectional:
        n //= 2
        base = (rel > 0).long() * n
        dist = rel.abs()
    else:
        dist = (-rel).clamp_min(0)
    exact = n // 2
    far = exact + (torch.log(dist.clamp_min(1).float() / exact) / math.log(max_distance / exact) * (n - exact)).long()
    return base + torch.where(dist < exact, dist, far.clamp_max(n - 1))


class RelativePositionBias(nn.Module):
    def __init__(self, n_heads: int, bidirectional: bool = True, num_buckets: int = 32, max_distance: int = 128):
        super().__init__()
        self.embedding = nn.Embedding(num_buckets, n_heads)
        self.bidirectional, self.num_buckets, self.max_distance = bidirectional, num_buckets, max_distance

    def forward(self, q_len: int, k_len: int) -> Tensor:
        if q_len > k_len:
            raise ValueError(f"q_len {q_len} > k_len {k_len}")
        device = self.embedding.weight.device
        q = torch.arange(k_len - q_len, k_len, device=device)
        k = torch.arange(k_len, device=device)
        bucket = relative_position_bucket(k[None] - q[:, None], self.bidirectional, self.num_buckets, self.max_distance)
        return self.embedding(bucket).permute(2, 0, 1)[None]
