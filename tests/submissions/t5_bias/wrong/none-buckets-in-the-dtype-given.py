"""Buckets have the integer dtype of the positions."""

import math, torch
from torch import nn

def relative_position_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    rp = relative_position.to(torch.int64)
    n = num_buckets
    out = torch.zeros_like(rp)
    if bidirectional:
        n //= 2
        out = (rp > 0).to(torch.int64) * n
        d = rp.abs()
    else:
        d = (-rp).clamp_min(0)
    e = n // 2
    big = e + (torch.log(d.clamp_min(1).double() / e) / math.log(max_distance / e) * (n - e)).long()
    return (out + torch.where(d < e, d, big.clamp_max(n - 1))).to(relative_position.dtype)

class RelativePositionBias(nn.Module):
    def __init__(self, n_heads, bidirectional=True, num_buckets=32, max_distance=128):
        super().__init__()
        self.bidirectional, self.num_buckets, self.max_distance = bidirectional, num_buckets, max_distance
        self.embedding = nn.Embedding(num_buckets, n_heads)
    def forward(self, q_len, k_len):
        if q_len > k_len: raise ValueError(f"q_len {q_len} > k_len {k_len}")
        dev = self.embedding.weight.device
        q = torch.arange(k_len - q_len, k_len, device=dev)[:, None]
        k = torch.arange(k_len, device=dev)[None]
        b = relative_position_bucket(k - q, self.bidirectional, self.num_buckets, self.max_distance)
        return self.embedding(b).permute(2, 0, 1)[None]
