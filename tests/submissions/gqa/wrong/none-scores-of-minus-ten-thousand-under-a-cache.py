"""Under a cache hidden scores are -1e4, which a very low score can fall below."""

import math
import torch
import torch.nn.functional as F
from torch import nn


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model {d_model} is not a multiple of n_heads {n_heads}")
        if n_heads % n_kv_heads:
            raise ValueError(f"n_heads {n_heads} is not a multiple of n_kv_heads {n_kv_heads}")
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.d_head = d_model // n_heads
        self.q_proj = nn.Linear(d_model, n_heads * self.d_head, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.d_head, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.d_head, bias=False)
        self.o_proj = nn.Linear(n_heads * self.d_head, d_model, bias=False)

    def forward(self, x, kv_cache=None, use_cache=False):
        B, T, _ = x.shape
        q = self.q_proj(x).reshape(B, T, self.n_heads, self.d_head).transpose(1, 2)
        k = self.k_proj(x).reshape(B, T, self.n_kv_heads, self.d_head).transpose(1, 2)
        v = self.v_proj(x).reshape(B, T, self.n_kv_heads, self.d_head).transpose(1, 2)
        if kv_cache is not None:
            pk, pv = kv_cache
            k = torch.cat((pk, k), dim=2)
            v = torch.cat((pv, v), dim=2)
        S = k.shape[2]
        past = S - T
        new_cache = (k, v) if use_cache else None
        group = self.n_heads // self.n_kv_heads
        ke = k.repeat_interleave(group, dim=1)
        ve = v.repeat_interleave(group, dim=1)
        scores = q @ ke.transpose(-2, -1) / math.sqrt(self.d_head)
        mask = torch.arange(S, device=x.device)[None, :] > torch.arange(past, S, device=x.device)[:, None]
        scores = scores.masked_fill(mask, float("-inf") if not past else -1e4)
        w = torch.softmax(scores, dim=-1)
        y = (w @ ve).transpose(1, 2).reshape(B, T, -1)
        y = self.o_proj(y)
        return y, new_cache

    def kv_bytes_per_token(self, dtype_bytes=2):
        return 2 * self.n_kv_heads * self.d_head * dtype_bytes


def kv_cache_reduction_factor(n_heads, n_kv_heads):
    if n_heads % n_kv_heads:
        raise ValueError(f"n_heads {n_heads}, n_kv_heads {n_kv_heads}")
    return n_heads / n_kv_heads


def mean_pool_kv_heads(weight, n_heads, n_kv_heads):
    if n_heads % n_kv_heads:
        raise ValueError(f"n_heads {n_heads}, n_kv_heads {n_kv_heads}")
    if weight.shape[0] % n_heads:
        raise ValueError(f"rows {weight.shape[0]}, n_heads {n_heads}")
    d_head = weight.shape[0] // n_heads
    w = weight.reshape(n_kv_heads, n_heads // n_kv_heads, d_head, -1).mean(1)
    return w.reshape(n_kv_heads * d_head, -1)
