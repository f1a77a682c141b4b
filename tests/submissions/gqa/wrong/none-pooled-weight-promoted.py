"""Wrong: pooled weight comes back in float32"""

import math
import torch
from torch import nn


def attend(q, k, v, seen):
    """q (group, T, d), k v (S, d), seen (T, S)."""
    logits = (q @ k.mT) / math.sqrt(q.shape[-1])
    logits = torch.where(seen, logits, torch.full_like(logits, float("-inf")))
    w = (logits - logits.amax(-1, keepdim=True).detach()).exp()
    return (w @ v) / w.sum(-1, keepdim=True)


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        if d_model % n_heads or n_heads % n_kv_heads:
            raise ValueError(f"{d_model} {n_heads} {n_kv_heads}")
        self.H, self.G = n_heads, n_kv_heads
        self.dh = d_model // n_heads
        for name, rows in dict(q_proj=n_heads, k_proj=n_kv_heads, v_proj=n_kv_heads).items():
            setattr(self, name, nn.Linear(d_model, rows * self.dh, bias=False))
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, kv_cache=None, use_cache=False):
        B, T, _ = x.shape
        q = self.q_proj(x).unflatten(-1, (self.G, self.H // self.G, self.dh)).permute(0, 2, 3, 1, 4)
        k = self.k_proj(x).unflatten(-1, (self.G, self.dh)).transpose(1, 2)
        v = self.v_proj(x).unflatten(-1, (self.G, self.dh)).transpose(1, 2)
        if kv_cache is not None:
            k = torch.cat([kv_cache[0], k], dim=2)
            v = torch.cat([kv_cache[1], v], dim=2)
        S = k.shape[2]
        t = torch.arange(T, device=x.device) + (S - T)
        seen = torch.arange(S, device=x.device)[None, :] <= t[:, None]
        y = torch.vmap(torch.vmap(attend, in_dims=(0, 0, 0, None)), in_dims=(0, 0, 0, None))(q, k, v, seen)
        y = self.o_proj(y.permute(0, 3, 1, 2, 4).flatten(2))
        return y, ((k, v) if use_cache else None)

    def kv_bytes_per_token(self, dtype_bytes=2):
        return 2 * self.G * self.dh * dtype_bytes


def kv_cache_reduction_factor(n_heads, n_kv_heads):
    if n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} heads over {n_kv_heads}")
    return n_heads / n_kv_heads


def mean_pool_kv_heads(weight, n_heads, n_kv_heads):
    if n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} heads over {n_kv_heads}")
    if weight.shape[0] % n_heads:
        raise ValueError(f"{weight.shape[0]} rows over {n_heads}")
    d_head = weight.shape[0] // n_heads
    pool = torch.kron(torch.eye(n_kv_heads, dtype=weight.dtype, device=weight.device), torch.ones(1, n_heads // n_kv_heads, dtype=weight.dtype, device=weight.device))
    return torch.einsum("nh,hdm->ndm", pool, weight.reshape(n_heads, d_head, -1)).reshape(n_kv_heads * d_head, -1) * torch.full((1, 1), n_kv_heads / n_heads, device=weight.device)
