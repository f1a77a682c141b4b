"""The first distance of each bucket, and a binary search."""

import math, torch
from torch import nn

def relative_position_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    n = num_buckets // 2 if bidirectional else num_buckets
    e = n // 2
    edges, i = list(range(1, e + 1)), 0
    # first distance of each log bucket
    first = {}
    for d in range(e, max_distance + 1):
        b = min(n - 1, e + int(math.floor(math.log(d / e) / math.log(max_distance / e) * (n - e) + 1e-12)))
        first.setdefault(b, d)
    edges = list(range(1, e)) + [first[b] for b in sorted(first)]
    names = torch.tensor(list(range(e)) + sorted(first), device=relative_position.device)
    d = relative_position.abs() if bidirectional else (-relative_position).clamp(min=0)
    idx = torch.bucketize(d, torch.tensor(edges, device=d.device, dtype=d.dtype), right=True)
    out = names[idx]
    return out + n * (relative_position > 0) if bidirectional else out

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
