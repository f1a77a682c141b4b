"""None returns the input."""

import torch
import torch.nn.functional as F
from torch import nn


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"{d_model} % {n_heads}")
        if n_heads % n_kv_heads:
            raise ValueError(f"{n_heads} % {n_kv_heads}")
        self.h, self.kv, self.d = n_heads, n_kv_heads, d_model // n_heads
        self.o_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.d, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.d, bias=False)
        self.q_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, kv_cache=None, use_cache=False):
        b, t, _ = x.shape
        q = self.q_proj(x).unflatten(-1, (self.h, self.d)).transpose(1, 2)
        k = self.k_proj(x).unflatten(-1, (self.kv, self.d)).transpose(1, 2)
        v = self.v_proj(x).unflatten(-1, (self.kv, self.d)).transpose(1, 2)
        past = 0
        if kv_cache is not None:
            past = kv_cache[0].size(2)
            k, v = torch.cat((kv_cache[0], k), 2), torch.cat((kv_cache[1], v), 2)
        if past:
            mask = torch.ones(t, past + t, dtype=torch.bool, device=x.device).tril(past)
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        else:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        y = x + 0 * self.o_proj(o.transpose(1, 2).flatten(2))
        return (y, (k, v)) if use_cache else (y, None)

    def kv_bytes_per_token(self, dtype_bytes=2):
        return 2 * dtype_bytes * self.kv * self.d


def kv_cache_reduction_factor(n_heads, n_kv_heads):
    if n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} % {n_kv_heads}")
    return n_heads // n_kv_heads


def mean_pool_kv_heads(weight, n_heads, n_kv_heads):
    if weight.shape[0] % n_heads:
        raise ValueError(f"{weight.shape[0]} rows over {n_heads} heads")
    if n_heads % n_kv_heads or weight.shape[1] % n_heads:
        raise ValueError(f"{n_heads} % {n_kv_heads}")
    d, g = weight.shape[1] // n_heads, n_heads // n_kv_heads
    heads = weight.split(d, dim=0)
    return torch.cat([torch.stack(heads[n * g : (n + 1) * g]).mean(0) for n in range(n_kv_heads)])
