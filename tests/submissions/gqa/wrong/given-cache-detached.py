"""Given cache detached."""

import math

import torch
from torch import einsum, nn


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int):
        if d_model % n_heads != 0 or n_heads % n_kv_heads != 0:
            raise ValueError(f"bad geometry {d_model} {n_heads} {n_kv_heads}")
        super().__init__()
        self.H, self.K = n_heads, n_kv_heads
        self.G = n_heads // n_kv_heads
        self.D = d_model // n_heads
        for name, out in (("q_proj", n_heads), ("k_proj", n_kv_heads), ("v_proj", n_kv_heads)):
            setattr(self, name, nn.Linear(d_model, out * self.D, bias=False))
        self.o_proj = nn.Linear(d_model, d_model, bias=False)
        self.register_buffer("root", torch.tensor(self.D**-0.25), persistent=False)

    def forward(self, x, kv_cache=None, use_cache=False):
        B, T, _ = x.shape
        q = self.q_proj(x).reshape(B, T, self.K, self.G, self.D) * self.root.to(x.dtype)
        k_new = self.k_proj(x).reshape(B, T, self.K, self.D).permute(0, 2, 1, 3)
        v_new = self.v_proj(x).reshape(B, T, self.K, self.D).permute(0, 2, 1, 3)
        if kv_cache is None:
            k, v = k_new, v_new
        else:
            k = torch.cat([kv_cache[0].detach(), k_new], dim=-2)
            v = torch.cat([kv_cache[1].detach(), v_new], dim=-2)
        S = k.shape[-2]
        bias = torch.full((T, S), -math.inf, device=x.device, dtype=torch.float32).triu(1 + S - T)
        logits = einsum("btkgd,bksd->bkgts", q, k * self.root.to(x.dtype)).float() + bias
        probs = logits.softmax(-1).to(x.dtype)
        out = einsum("bkgts,bksd->btkgd", probs, v)
        y = self.o_proj(out.reshape(B, T, -1))
        if not use_cache:
            return y, None
        return y, (k.clone(), v.clone())

    def kv_bytes_per_token(self, dtype_bytes: int = 2) -> int:
        return sum(p.weight.shape[0] for p in (self.k_proj, self.v_proj)) * dtype_bytes


def kv_cache_reduction_factor(n_heads: int, n_kv_heads: int) -> float:
    q, r = divmod(n_heads, n_kv_heads)
    if r:
        raise ValueError(f"{n_heads} heads over {n_kv_heads}")
    return float(q)


def mean_pool_kv_heads(weight, n_heads, n_kv_heads):
    if weight.shape[0] % n_heads:
        raise ValueError(f"{weight.shape[0]} rows over {n_heads} heads")
    q, r = divmod(n_heads, n_kv_heads)
    if r:
        raise ValueError(f"{n_heads} heads over {n_kv_heads}")
    return einsum("kgdm->kdm", weight.reshape(n_kv_heads, q, -1, weight.shape[-1])).flatten(0, 1) / q
