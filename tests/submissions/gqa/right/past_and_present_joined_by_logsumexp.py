"""Right: past and present scored apart and joined by logsumexp; cache made by new_empty and copy"""

import torch
from torch import nn


class _Heads(nn.Linear):
    def __init__(self, d_model, heads, d_head):
        super().__init__(d_model, heads * d_head, bias=False)
        self.heads = heads

    def forward(self, x):
        return super().forward(x).reshape(*x.shape[:-1], self.heads, -1)


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        if d_model % n_heads or n_heads % n_kv_heads:
            raise ValueError(f"d_model={d_model} n_heads={n_heads} n_kv_heads={n_kv_heads}")
        d = d_model // n_heads
        self.q_proj, self.k_proj, self.v_proj = _Heads(d_model, n_heads, d), _Heads(d_model, n_kv_heads, d), _Heads(d_model, n_kv_heads, d)
        self.o_proj = nn.Linear(n_heads * d, d_model, bias=False)
        self.group = n_heads // n_kv_heads
        self.d = d

    @staticmethod
    def _piece(q, k, v, hidden):
        s = torch.einsum("btgrd,bgsd->bgrts", q, k)
        if hidden is not None:
            s = s.masked_fill(hidden, float("-inf"))
        return s.logsumexp(-1), s.softmax(-1) @ v.unsqueeze(2)

    def forward(self, x, kv_cache=None, use_cache=False):
        B, T, _ = x.shape
        q = self.q_proj(x).unflatten(2, (-1, self.group)) / self.d**0.5
        k, v = self.k_proj(x).transpose(1, 2), self.v_proj(x).transpose(1, 2)
        hidden = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        z, y = self._piece(q, k, v, hidden)
        if kv_cache is not None and kv_cache[0].shape[2] > 0:
            z_past, y_past = self._piece(q, kv_cache[0], kv_cache[1], None)
            share = torch.sigmoid(z - z_past).unsqueeze(-1)
            y = share * y + (1 - share) * y_past
        y = self.o_proj(y.permute(0, 3, 1, 2, 4).reshape(B, T, -1))
        if not use_cache:
            return y, None
        if kv_cache is None:
            return y, (k, v)
        return y, tuple(torch.cat(pair, 2) for pair in zip(kv_cache, (k, v)))

    def kv_bytes_per_token(self, dtype_bytes=2):
        return 2 * dtype_bytes * self.k_proj.heads * self.d


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
