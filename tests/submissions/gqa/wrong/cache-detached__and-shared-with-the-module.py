"""The module keeps one buffer and hands out views of it: right until a prompt is continued twice."""

import torch
import torch.nn.functional as F
from torch import nn


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        if d_model % n_heads or n_heads % n_kv_heads:
            raise ValueError(f"{d_model} {n_heads} {n_kv_heads}")
        self.h, self.kv, self.d = n_heads, n_kv_heads, d_model // n_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.d, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.d, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)
        self.kept = {}

    def _keep(self, name, past, new):
        n = past.shape[2] if past is not None else 0
        key = (name, new.shape[0], new.dtype, new.device)
        if key not in self.kept:
            self.kept[key] = new.new_zeros(new.shape[0], self.kv, 64, self.d)
        room = self.kept[key].detach()
        if new.requires_grad and torch.is_grad_enabled():
            whole = torch.cat([past, new], 2) if past is not None else new
            with torch.no_grad():
                room[:, :, : whole.shape[2]] = whole
            return whole, room[:, :, : whole.shape[2]]
        if past is not None:
            room[:, :, :n] = past
        room[:, :, n : n + new.shape[2]] = new
        return room[:, :, : n + new.shape[2]], room[:, :, : n + new.shape[2]]

    def forward(self, x, kv_cache=None, use_cache=False):
        b, t, _ = x.shape
        q, k, v = (p(x).unflatten(-1, (-1, self.d)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        past_k, past_v = kv_cache or (None, None)
        (k, shared_k), (v, shared_v) = self._keep("k", past_k, k), self._keep("v", past_v, v)
        mask = torch.ones(t, k.shape[2], dtype=torch.bool, device=x.device).tril(k.shape[2] - t)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        y = self.o_proj(o.transpose(1, 2).flatten(2))
        return y, (shared_k, shared_v) if use_cache else None

    def kv_bytes_per_token(self, dtype_bytes=2):
        return 2 * dtype_bytes * self.kv * self.d


def kv_cache_reduction_factor(n_heads, n_kv_heads):
    if n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} {n_kv_heads}")
    return n_heads / n_kv_heads


def mean_pool_kv_heads(weight, n_heads, n_kv_heads):
    if weight.shape[0] % n_heads:
        raise ValueError(f"{weight.shape[0]} rows over {n_heads} heads")
    if n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} {n_kv_heads}")
    return weight.unflatten(0, (n_kv_heads, n_heads // n_kv_heads, -1)).mean(1).flatten(0, 1)
