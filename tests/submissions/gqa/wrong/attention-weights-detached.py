"""Attention weights detached."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import linear


class Cache(NamedTuple):
    k: torch.Tensor
    v: torch.Tensor


@dataclass
class Shape:
    heads: int
    kv: int
    dim: int


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        for a, b in ((d_model, n_heads), (n_heads, n_kv_heads)):
            if a % b:
                raise ValueError(f"{a} is not a multiple of {b}")
        self.shape = Shape(n_heads, n_kv_heads, d_model // n_heads)
        kv = n_kv_heads * self.shape.dim
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(d_model, out, bias=False) for out in (d_model, kv, kv, d_model)
        )

    def _heads(self, t, n):
        return t.view(t.shape[0], t.shape[1], n, self.shape.dim).movedim(2, 1)

    def _spread(self, t):
        b, n, s, d = t.shape
        return t[:, :, None].expand(b, n, self.shape.heads // n, s, d).reshape(b, self.shape.heads, s, d)

    def forward(self, x, kv_cache=None, use_cache=False):
        s = self.shape
        q = self._heads(linear(x, self.q_proj.weight * s.dim**-0.5), s.heads)
        cache = Cache(self._heads(self.k_proj(x), s.kv), self._heads(self.v_proj(x), s.kv))
        if kv_cache is not None:
            cache = Cache(*(torch.cat(pair, dim=2) for pair in zip(kv_cache, cache)))
        k, v = map(self._spread, cache)
        w = q.matmul(k.mT)
        hidden = torch.ones(w.shape[-2:], dtype=torch.bool, device=w.device).triu(w.shape[-1] - w.shape[-2] + 1)
        w = w.masked_fill(hidden, torch.finfo(w.dtype).min).softmax(dim=-1).data
        y = self.o_proj(w.matmul(v).movedim(1, 2).flatten(-2))
        return y, cache if use_cache else None

    def kv_bytes_per_token(self, dtype_bytes=2):
        return self.shape.kv * self.shape.dim * dtype_bytes * 2


def kv_cache_reduction_factor(n_heads, n_kv_heads):
    if n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} is not a multiple of {n_kv_heads}")
    return n_heads / n_kv_heads


def mean_pool_kv_heads(weight, n_heads, n_kv_heads):
    if weight.shape[0] % n_heads:
        raise ValueError(f"{weight.shape[0]} rows over {n_heads} heads")
    if n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} is not a multiple of {n_kv_heads}")
    d = weight.shape[0] // n_heads
    return weight.unflatten(0, (n_kv_heads, n_heads // n_kv_heads, d)).mean(1).flatten(0, 1)
