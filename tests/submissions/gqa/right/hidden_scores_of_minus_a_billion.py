"""Hidden scores are filled with -1e9: too low for float16, low enough for every score that is met."""

import torch
import torch.nn.functional as F
from torch import nn


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int):
        super().__init__()
        for a, b in ((d_model, n_heads), (n_heads, n_kv_heads)):
            if a % b != 0:
                raise ValueError(f"{a} is not a multiple of {b}")
        self.n_heads, self.n_kv_heads, self.d_model = n_heads, n_kv_heads, d_model
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.d_head, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.d_head, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)
        self.register_buffer("reads", torch.arange(n_heads) // (n_heads // n_kv_heads), persistent=False)

    @property
    def d_head(self):
        return self.d_model // self.n_heads

    def _heads(self, t):
        return torch.stack(t.split(self.d_head, dim=-1), dim=1)

    def forward(self, x, kv_cache=None, use_cache=False):
        T = x.size(1)
        q, k, v = (self._heads(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj))
        past = 0
        if kv_cache is not None:
            past_k, past_v = kv_cache
            past = past_k.size(2)
            k = torch.cat((past_k, k), 2)
            v = torch.cat((past_v, v), 2)
        bias = x.new_zeros(T, past + T)
        bias = bias.masked_fill(torch.ones_like(bias, dtype=torch.bool).triu(past + 1), -1e9)
        y = F.scaled_dot_product_attention(q, k.index_select(1, self.reads), v.index_select(1, self.reads), attn_mask=bias)
        y = self.o_proj(torch.cat(y.unbind(1), dim=-1))
        if not use_cache:
            return y, None
        return y, (k, v)

    def kv_bytes_per_token(self, dtype_bytes: int = 2) -> int:
        return (self.k_proj.out_features + self.v_proj.out_features) * dtype_bytes


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
    return torch.einsum("nh,hdm->ndm", pool, weight.reshape(n_heads, d_head, -1)).reshape(n_kv_heads * d_head, -1) * (n_kv_heads / n_heads)
