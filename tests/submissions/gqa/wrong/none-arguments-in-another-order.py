"""Wrong: forward takes use_cache before kv_cache"""

import math
import torch
from torch import Tensor, nn
from torch.nn import functional as F


def _check(n_heads, n_kv_heads):
    if n_kv_heads < 1 or n_heads % n_kv_heads != 0:
        raise ValueError(f"n_heads={n_heads} is not a multiple of n_kv_heads={n_kv_heads}")


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"d_model={d_model} is not a multiple of n_heads={n_heads}")
        _check(n_heads, n_kv_heads)
        self.h, self.m, self.d = n_heads, n_kv_heads, d_model // n_heads
        self.q_proj = nn.Linear(d_model, n_heads * self.d, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.d, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.d, bias=False)
        self.o_proj = nn.Linear(n_heads * self.d, d_model, bias=False)
        # init end

    def forward(self, x, use_cache=False, kv_cache=None):
        B, T, _ = x.shape
        q = self.q_proj(x).reshape(B, T, self.m, self.h // self.m, self.d)
        k = self.k_proj(x).reshape(B, T, self.m, self.d).transpose(1, 2)
        v = self.v_proj(x).reshape(B, T, self.m, self.d).transpose(1, 2)
        past = 0
        if kv_cache is not None:
            past = kv_cache[0].shape[2]
            k = torch.cat((kv_cache[0], k), dim=2)
            v = torch.cat((kv_cache[1], v), dim=2)
        S = k.shape[2]
        scores = torch.einsum("btmgd,bmsd->bmgts", q, k) / math.sqrt(self.d)
        seen = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(past)
        scores = scores.masked_fill(~seen, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        out = torch.einsum("bmgts,bmsd->btmgd", weights, v).reshape(B, T, self.h * self.d)
        y = self.o_proj(out)
        return y, ((k, v) if use_cache else None)

    def kv_bytes_per_token(self, dtype_bytes: int = 2) -> int:
        return 2 * self.m * self.d * dtype_bytes


def kv_cache_reduction_factor(n_heads: int, n_kv_heads: int) -> float:
    _check(n_heads, n_kv_heads)
    return n_heads / n_kv_heads


def mean_pool_kv_heads(weight, n_heads: int, n_kv_heads: int):
    _check(n_heads, n_kv_heads)
    if weight.shape[0] % n_heads:
        raise ValueError(f"{weight.shape[0]} rows are not a multiple of n_heads={n_heads}")
    return weight.reshape(n_kv_heads, n_heads // n_kv_heads, -1, weight.shape[1]).mean(1).flatten(0, 1)
