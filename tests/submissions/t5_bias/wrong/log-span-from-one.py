"""Wrong: the scale over log(max_distance)."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def _table(n, max_distance):
    exact = n // 2
    table = list(range(exact))
    for distance in range(exact, 10000):
        step = math.floor(math.log(distance / exact) / math.log(max_distance) * (n - exact))
        table.append(min(exact + step, n - 1))
    return table + [min(exact + math.floor(math.log(1e4 / exact) / math.log(max_distance) * (n - exact)), n - 1)]


def relative_position_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    n = num_buckets // 2 if bidirectional else num_buckets
    table = torch.tensor(_table(n, max_distance), device=relative_position.device)
    if bidirectional:
        distance, shift = relative_position.abs(), torch.where(relative_position > 0, n, 0)
    else:
        distance, shift = torch.relu(-relative_position), 0
    return table[distance.clamp(max=10000).long()] + shift


class RelativePositionBias(nn.Module):
    def __init__(self, n_heads, bidirectional=True, num_buckets=32, max_distance=128):
        super().__init__()
        self.embedding = nn.Embedding(num_buckets, n_heads)
        self.rule = dict(bidirectional=bidirectional, num_buckets=num_buckets, max_distance=max_distance)
        line = relative_position_bucket(torch.arange(-max_distance, max_distance + 1), **self.rule)
        self.register_buffer("line", line, persistent=False)
        self.reach = max_distance

    def forward(self, q_len, k_len):
        if q_len > k_len:
            raise ValueError(f"q_len={q_len} exceeds k_len={k_len}")
        q = torch.arange(k_len, device=self.line.device)[-q_len:] if q_len else torch.arange(0)
        k = torch.arange(k_len, device=self.line.device)
        offset = (k - q[:, None]).clamp(-self.reach, self.reach) + self.reach
        return F.embedding(self.line[offset], self.embedding.weight).movedim(-1, 0)[None]
