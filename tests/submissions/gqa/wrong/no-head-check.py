"""No head check."""

import torch
from torch import nn

ROOM = 16


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model={d_model} is not divisible by n_heads={n_heads}")
        self.n_heads, self.n_kv_heads, self.d_head = n_heads, n_kv_heads, d_model // n_heads
        self.q_proj = nn.Linear(d_model, n_heads * self.d_head, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.d_head, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.d_head, bias=False)
        self.o_proj = nn.Linear(n_heads * self.d_head, d_model, bias=False)

    def _grow(self, past, new):
        length = past.shape[2] if past is not None else 0
        room = new.new_empty(new.shape[0], self.n_kv_heads, length + new.shape[2] + ROOM, self.d_head)
        if past is not None:
            room[:, :, :length] = past
        room[:, :, length : length + new.shape[2]] = new
        return room[:, :, : length + new.shape[2]]

    def forward(self, x, kv_cache=None, use_cache=False):
        B, T, C = x.shape
        q = self.q_proj(x).view(B, T, self.n_heads, self.d_head).transpose(1, 2)
        k = self.k_proj(x).view(B, T, self.n_kv_heads, self.d_head).transpose(1, 2)
        v = self.v_proj(x).view(B, T, self.n_kv_heads, self.d_head).transpose(1, 2)
        past_k, past_v = kv_cache if kv_cache is not None else (None, None)
        k, v = self._grow(past_k, k), self._grow(past_v, v)
        S = k.shape[2]
        g = self.n_heads // self.n_kv_heads
        kk, vv = k.repeat_interleave(g, dim=1), v.repeat_interleave(g, dim=1)
        rows = []
        for i in range(T):
            seen = S - T + i + 1
            s = (q[:, :, i : i + 1] @ kk[:, :, :seen].transpose(-1, -2)) / self.d_head**0.5
            s = s - s.amax(dim=-1, keepdim=True)
            p = s.exp()
            rows.append((p / p.sum(-1, keepdim=True)) @ vv[:, :, :seen])
        y = self.o_proj(torch.cat(rows, dim=2).transpose(1, 2).reshape(B, T, C))
        return y, ((k, v) if use_cache else None)

    def kv_bytes_per_token(self, dtype_bytes=2):
        return int(2 * self.n_kv_heads * self.d_head) * dtype_bytes


def kv_cache_reduction_factor(n_heads, n_kv_heads):
    if n_kv_heads > n_heads or n_heads % n_kv_heads != 0:
        raise ValueError((n_heads, n_kv_heads))
    return n_heads / n_kv_heads


def mean_pool_kv_heads(weight, n_heads, n_kv_heads):
    if weight.shape[0] % n_heads:
        raise ValueError(f"{weight.shape[0]} rows over {n_heads} heads")
    if n_kv_heads > n_heads or n_heads % n_kv_heads != 0:
        raise ValueError((n_heads, n_kv_heads))
    rows, cols = weight.shape
    d = rows // n_heads
    g = n_heads // n_kv_heads
    out = weight.new_zeros(n_kv_heads * d, cols)
    for n in range(n_kv_heads):
        for j in range(g):
            h = n * g + j
            out = out.index_add(0, torch.arange(n * d, (n + 1) * d, device=weight.device), weight[h * d : (h + 1) * d] / g)
    return out
