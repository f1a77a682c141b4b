"""Only the last 64 keys are read."""

import math, torch
from torch import nn, Tensor
import torch.nn.functional as F

class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model {d_model} n_heads {n_heads}")
        if n_heads % n_kv_heads:
            raise ValueError(f"n_heads {n_heads} n_kv_heads {n_kv_heads}")
        self.H, self.G, self.d = n_heads, n_kv_heads, d_model // n_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, self.G * self.d, bias=False)
        self.v_proj = nn.Linear(d_model, self.G * self.d, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, kv_cache=None, use_cache=False):
        B, T, D = x.shape
        q = self.q_proj(x).view(B, T, self.G, self.H // self.G, self.d)
        k = self.k_proj(x).view(B, T, self.G, self.d).transpose(1, 2)
        v = self.v_proj(x).view(B, T, self.G, self.d).transpose(1, 2)
        if kv_cache is not None:
            k = torch.cat([kv_cache[0], k], 2)
            v = torch.cat([kv_cache[1], v], 2)
        k, v = k[:, :, -64:], v[:, :, -64:]
        S = k.shape[2]
        s = torch.einsum("btgrd,bgsd->bgrts", q, k) / math.sqrt(self.d)
        mask = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(S - T)
        s = s.masked_fill(~mask, float("-inf"))
        w = s.softmax(-1)
        o = torch.einsum("bgrts,bgsd->btgrd", w, v).reshape(B, T, D)
        return self.o_proj(o), ((k, v) if use_cache else None)

    def kv_bytes_per_token(self, dtype_bytes=2):
        return 2 * self.G * self.d * dtype_bytes

def kv_cache_reduction_factor(n_heads, n_kv_heads):
    if n_kv_heads < 1 or n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} heads do not divide into {n_kv_heads}")
    return n_heads / n_kv_heads

def mean_pool_kv_heads(weight, n_heads, n_kv_heads):
    if n_kv_heads < 1 or n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} heads do not divide into {n_kv_heads}")
    rows, d = weight.shape
    if rows % n_heads:
        raise ValueError(f"{rows} rows do not divide into {n_heads} heads")
    return weight.reshape(n_kv_heads, n_heads // n_kv_heads, rows // n_heads, d).mean(dim=1).reshape(-1, d)
