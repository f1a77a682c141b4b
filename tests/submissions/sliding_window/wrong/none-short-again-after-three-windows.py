"""Wrong: the clock is stored modulo 3 windows: short again after a wrap"""

import math

import torch


def _check(T, **sizes):
    if T < 0:
        raise ValueError(f"T = {T} < 0")
    for name, (value, least) in sizes.items():
        if value < least:
            raise ValueError(f"{name} = {value} < {least}")


def sliding_window_mask(T, window):
    _check(T, window=(window, 1))
    i, j = torch.arange(T)[:, None], torch.arange(T)[None]
    return (j <= i) & (i - j < window)


def attention_sink_mask(T, window, n_sink):
    _check(T, window=(window, 1), n_sink=(n_sink, 0))
    i, j = torch.arange(T)[:, None], torch.arange(T)[None]
    return (j <= i) & ((i - j < window) | (j < n_sink))


def block_sparse_mask(T, block, global_tokens=0):
    _check(T, block=(block, 1), global_tokens=(global_tokens, 0))
    i, j = torch.arange(T)[:, None], torch.arange(T)[None]
    near = (i // block - j // block) <= 1
    return (j <= i) & (near | (j < global_tokens))


def masked_attention(q, k, v, mask):
    scores = (q.float() if q.dtype.itemsize == 2 else q) @ k.to(torch.promote_types(k.dtype, torch.float32)).mT
    scores = scores / math.sqrt(q.shape[-1])
    dead = ~mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask & ~dead, float("-inf"))
    weights = scores.softmax(-1).masked_fill(dead, 0.0)
    return (weights @ v.to(weights.dtype)).to(q.dtype)


class RollingKVCache:
    def __init__(self, window, n_kv_heads, d_head):
        if window < 1:
            raise ValueError(f"window = {window} < 1")
        self.window, self.shape = window, (1, n_kv_heads, window, d_head)
        self.k = self.v = None
        self.n = 0

    def append(self, k_t, v_t):
        if self.k is None:
            self.k, self.v = k_t.new_zeros(self.shape), v_t.new_zeros(self.shape)
        slot = self.n % self.window
        self.k[:, :, slot : slot + 1] = k_t
        self.v[:, :, slot : slot + 1] = v_t
        self.n += 1
        if self.n == 3 * self.window + 1:
            self.n = 1

    def window_kv(self):
        if self.k is None:
            empty = torch.zeros(1, self.shape[1], 0, self.shape[3])
            return empty, empty.clone()
        order = [t % self.window for t in range(max(0, self.n - self.window), self.n)]
        return self.k[:, :, order], self.v[:, :, order]
