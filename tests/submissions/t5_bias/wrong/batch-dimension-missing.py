"""Wrong: no batch dimension."""

import math

import torch
from torch import nn


def thresholds(n, max_distance):
    e = n // 2
    found = list(range(1, e + 1))  # distance at which bucket 1, 2, ..., e starts
    for step in range(1, n - e):
        exact = e * (max_distance / e) ** (step / (n - e))
        near = round(exact)
        found.append(near if math.isclose(near, exact, rel_tol=1e-9) else math.ceil(exact))
    return found


def relative_position_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    half = num_buckets // 2 if bidirectional else num_buckets
    edges = torch.tensor(thresholds(half, max_distance), device=relative_position.device)
    past = torch.searchsorted(edges, (-relative_position).clamp_min(0).contiguous().long(), right=True)
    if not bidirectional:
        return past
    future = torch.searchsorted(edges, relative_position.clamp_min(0).contiguous().long(), right=True) + half
    return torch.where(relative_position > 0, future, past)


class RelativePositionBias(nn.Module):
    def __init__(self, n_heads, bidirectional=True, num_buckets=32, max_distance=128):
        super().__init__()
        self.embedding = nn.Embedding(num_buckets, n_heads)
        self.args = (bidirectional, num_buckets, max_distance)

    def forward(self, q_len, k_len):
        if q_len - k_len > 0:
            raise ValueError("more queries (%d) than keys (%d)" % (q_len, k_len))
        w = self.embedding.weight
        steps = torch.arange(k_len, device=w.device)
        relative = steps.expand(q_len, k_len) - (steps[:q_len] + (k_len - q_len)).unsqueeze(-1)
        one_hot = nn.functional.one_hot(relative_position_bucket(relative, *self.args), self.args[1]).to(w.dtype)
        return torch.einsum("qkb,bh->hqk", one_hot, w)
