"""Right: prefix scan with a triangular loop over query tiles, out= buffers when no gradient is asked, cumulative products by baddbmm; cache copied into new storage of twice the size and narrowed"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    width: int
    heads: int
    kv: int

    def __post_init__(self):
        if self.width % self.heads != 0:
            raise ValueError(f"d_model={self.width}, n_heads={self.heads}")
        if self.heads % self.kv != 0:
            raise ValueError(f"n_heads={self.heads}, n_kv_heads={self.kv}")

    @property
    def head(self):
        return self.width // self.heads

    @property
    def group(self):
        return self.heads // self.kv


def roomy(old, new):
    """Old and new keys in fresh memory with room behind."""
    P, T = old.shape[2], new.shape[2]
    slab = new.new_zeros(*new.shape[:2], 2 * (P + T), new.shape[3])
    slab = slab.slice_scatter(old, 2, 0, P).slice_scatter(new, 2, P, P + T)
    return slab.narrow(2, 0, P + T)


class GroupedQueryAttention(nn.Module):
    TILE = 4

    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        self.shape = s = Shape(d_model, n_heads, n_kv_heads)
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, s.kv * s.head, bias=False)
        self.v_proj = nn.Linear(d_model, s.kv * s.head, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor, kv_cache=None, use_cache: bool = False):
        B, T, _ = x.shape
        s = self.shape
        q = self.q_proj(x).view(B, T, s.kv, s.group, s.head).permute(0, 2, 3, 1, 4)
        k = self.k_proj(x).view(B, T, s.kv, s.head).transpose(1, 2)
        v = self.v_proj(x).view(B, T, s.kv, s.head).transpose(1, 2)
        past = 0
        if kv_cache is not None:
            past = kv_cache[0].shape[2]
            k, v = roomy(kv_cache[0], k), roomy(kv_cache[1], v)
        tiles = []
        for a in range(0, T, self.TILE):
            b = min(T, a + self.TILE)
            rows = q[:, :, :, a:b].reshape(B * s.kv, -1, s.head)
            keys = k[:, :, : past + b].reshape(B * s.kv, past + b, s.head)
            bias = torch.zeros(b - a, past + b, dtype=x.dtype, device=x.device)
            bias[:, past + a :] = torch.full((b - a, b - a), -math.inf, dtype=x.dtype, device=x.device).triu(1)
            scores = torch.baddbmm(bias.repeat(s.group, 1), rows, keys.mT, alpha=1 / math.sqrt(s.head))
            tile = scores.softmax(2) @ v[:, :, : past + b].reshape(B * s.kv, past + b, s.head)
            tiles.append(tile.view(B, s.kv, s.group, b - a, s.head))
        y = torch.cat(tiles, 3) if tiles else q
        y = self.o_proj(y.permute(0, 3, 1, 2, 4).reshape(B, T, s.width))
        return y, ((k, v) if use_cache else None)

    def kv_bytes_per_token(self, dtype_bytes: int = 2) -> int:
        return sum(p.out_features * dtype_bytes for p in (self.k_proj, self.v_proj))


def kv_cache_reduction_factor(n_heads, n_kv_heads):
    return float(Shape(n_heads, n_heads, n_kv_heads).group)


def mean_pool_kv_heads(weight, n_heads, n_kv_heads):
    s = Shape(weight.shape[0], n_heads, n_kv_heads)
    heads = weight.split(s.head)
    pooled = []
    for n in range(s.kv):
        total = heads[n * s.group].to(torch.float64)
        for w in heads[n * s.group + 1 : (n + 1) * s.group]:
            total = total + w
        pooled.append((total / s.group).to(weight.dtype))
    return torch.vstack(pooled)
