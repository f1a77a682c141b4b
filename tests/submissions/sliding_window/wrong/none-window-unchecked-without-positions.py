"""Wrong: a window below 1 is not refused when there are no positions."""

import math
import torch


def _grid(T):
    i = torch.arange(T)
    return i[:, None], i[None, :]


def sliding_window_mask(T, window):
    if T == 0:
        return torch.zeros(0, 0, dtype=torch.bool)
    if T < 0:
        raise ValueError(f"T = {T}")
    if window < 1:
        raise ValueError(f"window = {window}")
    i, j = _grid(T)
    return (j <= i) & (i - j < window)


def attention_sink_mask(T, window, n_sink):
    if T < 0:
        raise ValueError(f"T = {T}")
    if window < 1:
        raise ValueError(f"window = {window}")
    if n_sink < 0:
        raise ValueError(f"n_sink = {n_sink}")
    i, j = _grid(T)
    return (j <= i) & ((i - j < window) | (j < n_sink))


def block_sparse_mask(T, block, global_tokens=0):
    if T < 0:
        raise ValueError(f"T = {T}")
    if block < 1:
        raise ValueError(f"block = {block}")
    if global_tokens < 0:
        raise ValueError(f"global_tokens = {global_tokens}")
    i, j = _grid(T)
    back = i // block - j // block
    return (j <= i) & ((back <= 1) | (j < global_tokens))


def masked_attention(q, k, v, mask):
    dtype = q.dtype
    qf, kf, vf = (t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in (q, k, v))
    dead = ~mask.any(-1, keepdim=True)
    scores = qf @ kf.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~mask, float("-inf")).masked_fill(dead, 0.0)
    w = torch.softmax(scores, -1).masked_fill(dead, 0.0)
    return (w @ vf).to(dtype)


class RollingKVCache:
    def __init__(self, window, n_kv_heads, d_head):
        if window < 1:
            raise ValueError(f"window = {window}")
        self.window, self.n_kv_heads, self.d_head = window, n_kv_heads, d_head
        self.n = 0
        self.k = self.v = None

    def append(self, k_t, v_t):
        if self.k is None:
            self.k = k_t.new_zeros(1, self.n_kv_heads, self.window, self.d_head)
            self.v = v_t.new_zeros(1, self.n_kv_heads, self.window, self.d_head)
        slot = self.n % self.window
        self.k[:, :, slot] = k_t[:, :, 0].detach()
        self.v[:, :, slot] = v_t[:, :, 0].detach()
        self.n += 1

    def window_kv(self):
        if self.k is None:
            e = torch.zeros(1, self.n_kv_heads, 0, self.d_head)
            return e, e.clone()
        order = [t % self.window for t in range(self.n - min(self.n, self.window), self.n)]
        return self.k[:, :, order], self.v[:, :, order]
