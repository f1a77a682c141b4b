"""Wrong: the buckets of the first call are kept by the number of keys alone."""

import math
import torch
from torch import nn


def relative_position_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    rp = relative_position.to(torch.int64)
    n = num_buckets
    if bidirectional:
        n = n // 2
        offset = (rp > 0).long() * n
        d = rp.abs()
    else:
        offset = torch.zeros_like(rp)
        d = (-rp).clamp(min=0)
    e = n // 2
    ratio = d.clamp(min=e).double() / e
    far = e + (torch.log(ratio) / math.log(max_distance / e) * (n - e)).long()
    far = far.clamp(max=n - 1)
    return offset + torch.where(d < e, d, far)


class RelativePositionBias(nn.Module):
    def __init__(self, n_heads, bidirectional=True, num_buckets=32, max_distance=128):
        super().__init__()
        self.n_heads = n_heads
        self.bidirectional, self.num_buckets, self.max_distance = bidirectional, num_buckets, max_distance
        self.embedding = nn.Embedding(num_buckets, n_heads)

    def forward(self, q_len, k_len):
        if q_len > k_len:
            raise ValueError(f"q_len {q_len} > k_len {k_len}")
        device = self.embedding.weight.device
        q = torch.arange(k_len - q_len, k_len, device=device)
        k = torch.arange(k_len, device=device)
        rel = k[None, :] - q[:, None]
        memo = self.__dict__.setdefault("_memo", {})
        if k_len not in memo or memo[k_len].device != device:
            memo[k_len] = relative_position_bucket(rel, self.bidirectional, self.num_buckets, self.max_distance)
        bucket = memo[k_len][-q_len:] if q_len else memo[k_len][:0]
        bias = self.embedding(bucket).permute(2, 0, 1)[None]
        return bias
