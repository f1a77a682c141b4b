"""Wrong: mask kept by the number of keys only"""

import torch
from torch import nn


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"{d_model} % {n_heads}")
        if n_heads % n_kv_heads:
            raise ValueError(f"{n_heads} % {n_kv_heads}")
        self.H, self.K, self.d = n_heads, n_kv_heads, d_model // n_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.d, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.d, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, kv_cache=None, use_cache=False):
        B, T, D = x.shape
        q = self.q_proj(x).reshape(B, T, self.K, self.H // self.K, self.d)
        k = self.k_proj(x).reshape(B, T, self.K, self.d).transpose(1, 2)
        v = self.v_proj(x).reshape(B, T, self.K, self.d).transpose(1, 2)
        past = 0
        if kv_cache is not None:
            past = kv_cache[0].shape[2]
            k = torch.cat([kv_cache[0], k], 2)
            v = torch.cat([kv_cache[1], v], 2)
        S = past + T
        score = torch.einsum("btngd,bnsd->bngts", q, k) * self.d**-0.5
        i = torch.arange(past, S, device=x.device)[:, None]
        j = torch.arange(S, device=x.device)
        key = (S, str(x.device))
        self.kept = getattr(self, "kept", {})
        if key not in self.kept or self.kept[key].shape[0] < T:
            self.kept[key] = j > i
        score = score.masked_fill(self.kept[key][:T], -torch.inf)
        w = score.softmax(-1)
        y = torch.einsum("bngts,bnsd->btngd", w, v).reshape(B, T, D)
        y = self.o_proj(y)
        return y, ((k, v) if use_cache else None)

    def kv_bytes_per_token(self, dtype_bytes=2):
        return 2 * self.K * self.d * dtype_bytes


def kv_cache_reduction_factor(n_heads, n_kv_heads):
    if n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} % {n_kv_heads}")
    return n_heads / n_kv_heads


def mean_pool_kv_heads(weight, n_heads, n_kv_heads):
    if n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} % {n_kv_heads}")
    if weight.shape[0] % n_heads:
        raise ValueError(f"{weight.shape[0]} % {n_heads}")
    d = weight.shape[0] // n_heads
    out = weight.reshape(n_kv_heads, n_heads // n_kv_heads, d, -1).mean(1)
    return out.reshape(n_kv_heads * d, -1)
