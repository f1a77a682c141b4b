"""Wrong: scaled by the heads."""

import torch
from torch import nn


def relative_position_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    rp = relative_position.long()
    n = num_buckets // (2 if bidirectional else 1)
    d = rp.abs() if bidirectional else rp.neg().clamp(min=0)
    e = n // 2
    x = d.clamp(min=e).double()
    span = torch.log(torch.tensor(float(max_distance), dtype=torch.float64, device=rp.device) / e)
    large = e + torch.floor(torch.log(x / e) / span * (n - e) + 1e-9).long()
    bucket = torch.where(d < e, d, torch.minimum(large, torch.full_like(large, n - 1)))
    return bucket + n * (rp > 0).long() if bidirectional else bucket


class RelativePositionBias(nn.Module):
    def __init__(self, n_heads, bidirectional=True, num_buckets=32, max_distance=128):
        super().__init__()
        self.n_heads = n_heads
        self.bidirectional = bidirectional
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.embedding = nn.Embedding(num_buckets, n_heads)

    def forward(self, q_len, k_len):
        if q_len > k_len:
            raise ValueError(f"{q_len} > {k_len}")
        offsets = torch.arange(-(k_len - 1), q_len, device=self.embedding.weight.device)
        buckets = relative_position_bucket(offsets, self.bidirectional, self.num_buckets, self.max_distance)
        line = self.embedding(buckets).t() / self.n_heads**0.5  # (H, k_len + q_len - 1)
        rows = line.unfold(1, k_len, 1)  # (H, q_len, k_len): row r starts at offset r - (k_len - 1)
        return rows.flip(1)[None]  # the last query has the lowest offsets
