"""Right: masks by numpy, index_copy ring with explicit order, nan_to_num free softmax in loops over rows"""

import numpy as np
import torch


def _check(**named):
    for name, (value, low) in named.items():
        if value < low:
            raise ValueError(f"{name} must be at least {low}, got {value}")


def sliding_window_mask(T, window):
    _check(T=(T, 0), window=(window, 1))
    return torch.from_numpy(np.tri(T, T, 0, dtype=bool) & ~np.tri(T, T, -window, dtype=bool))


def attention_sink_mask(T, window, n_sink):
    _check(n_sink=(n_sink, 0))
    sink = np.zeros((T if T > 0 else 0,), dtype=bool)
    near = sliding_window_mask(T, window).numpy()
    sink[:n_sink] = True
    return torch.from_numpy((near | sink) & np.tri(T, dtype=bool))


def block_sparse_mask(T, block, global_tokens=0):
    _check(T=(T, 0), block=(block, 1), global_tokens=(global_tokens, 0))
    i = np.arange(T)
    own = i // block
    allowed = (own[:, None] == own) | (own[:, None] == own + 1) | (i < global_tokens)
    return torch.from_numpy(allowed & (i <= i[:, None]))


def masked_attention(q, k, v, mask):
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * (q.size(-1) ** -0.5)
    scores = scores.masked_fill(~mask, -torch.inf)
    dead = ~mask.any(1)
    scores = scores.masked_fill(dead[:, None], 0.0)
    weights = scores.softmax(-1).masked_fill(dead[:, None], 0.0)
    return torch.einsum("bhqk,bhkd->bhqd", weights, v)


class RollingKVCache:
    def __init__(self, window: int, n_kv_heads: int, d_head: int):
        _check(window=(window, 1))
        self.window, self.heads, self.width, self.count = window, n_kv_heads, d_head, 0
        self.k = self.v = None

    def append(self, k_t, v_t):
        if self.k is None:
            self.k = k_t.new_empty(1, self.heads, self.window, self.width)
            self.v = v_t.new_empty(1, self.heads, self.window, self.width)
        slot = self.count % self.window
        self.k.narrow(2, slot, 1).copy_(k_t.detach())
        self.v.narrow(2, slot, 1).copy_(v_t.detach())
        self.count += 1

    def window_kv(self):
        if self.k is None:
            z = torch.zeros(1, self.heads, 0, self.width)
            return z, z.clone()
        n = min(self.count, self.window)
        order = torch.arange(self.count - n, self.count, device=self.k.device) % self.window
        return self.k.index_select(2, order), self.v.index_select(2, order)
