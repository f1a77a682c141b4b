"""Right: one-hot buckets times the table, torch.where, a NamedTuple for the rule"""

import math
from typing import NamedTuple

import torch
from torch import nn


class Rule(NamedTuple):
    both: bool
    total: int
    far: int

    @property
    def n(self):
        return self.total // 2 if self.both else self.total

    def check(self):
        if self.n < 2 or self.far <= self.n // 2:
            raise ValueError(f"buckets {self.total}, max_distance {self.far}")
        return self

    def one_side(self, d):
        e = self.n // 2
        scaled = torch.log(torch.clamp(d, min=e).to(torch.float32) / e) / math.log(self.far / e)
        late = torch.clamp(e + torch.trunc(scaled * (self.n - e)).long(), max=self.n - 1)
        return torch.where(d < e, d, late)


def relative_position_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    rule = Rule(bidirectional, num_buckets, max_distance).check()
    past = rule.one_side((-relative_position).clamp(min=0).long())
    if not bidirectional:
        return past
    return torch.where(relative_position > 0, rule.one_side(relative_position.clamp(min=0).long()) + rule.n, past)


class RelativePositionBias(nn.Module):
    def __init__(self, n_heads, bidirectional=True, num_buckets=32, max_distance=128):
        super().__init__()
        self.rule = Rule(bidirectional, num_buckets, max_distance)
        self.embedding = nn.Embedding(num_buckets, n_heads)

    def forward(self, q_len, k_len):
        if k_len < q_len:
            raise ValueError(f"more queries ({q_len}) than keys ({k_len})")
        w = self.embedding.weight
        at = torch.arange(k_len, device=w.device)
        bucket = relative_position_bucket(at[None, :] - at[k_len - q_len :, None], *self.rule)
        hot = (bucket.unsqueeze(-1) == torch.arange(self.rule.total, device=w.device)).to(w.dtype)
        return torch.einsum("qkn,nh->hqk", hot, w).unsqueeze(0)
