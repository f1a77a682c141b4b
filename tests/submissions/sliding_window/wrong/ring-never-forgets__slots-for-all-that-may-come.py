"""4096 slots, whatever the window: nothing is ever let go."""

import math, torch
from torch import Tensor
import torch.nn.functional as F

def _chk(T, **kw):
    if T < 0: raise ValueError(f"T = {T} is negative")
    for n, (v, lo) in kw.items():
        if v < lo: raise ValueError(f"{n} = {v} must be at least {lo}")

def sliding_window_mask(T, window):
    _chk(T, window=(window, 1))
    i = torch.arange(T)
    d = i[:, None] - i[None]
    return (d >= 0) & (d < window)

def attention_sink_mask(T, window, n_sink):
    _chk(T, window=(window, 1), n_sink=(n_sink, 0))
    i = torch.arange(T)
    d = i[:, None] - i[None]
    return (d >= 0) & ((d < window) | (i[None] < n_sink))

def block_sparse_mask(T, block, global_tokens=0):
    _chk(T, block=(block, 1), global_tokens=(global_tokens, 0))
    i = torch.arange(T)
    b = i // block
    db = b[:, None] - b[None]
    return (i[:, None] >= i[None]) & ((db <= 1) | (i[None] < global_tokens))

def masked_attention(q, k, v, mask):
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    s = s.masked_fill(~mask, torch.finfo(s.dtype).min)
    w = s.softmax(-1)
    w = w.masked_fill(~mask, 0.0)
    return (w @ v).to(q.dtype)


class RollingKVCache:
    def __init__(self, window, n_kv_heads, d_head):
        if window < 1: raise ValueError(f"window = {window}")
        self.window, self.none = window, (1, n_kv_heads, 0, d_head)
        self.kv, self.seen = None, 0

    def append(self, k_t, v_t):
        if self.kv is None:
            self.kv = k_t.new_zeros(2, *self.none[:2], 4096, self.none[3])
        self.kv[..., self.seen, :] = torch.stack((k_t, v_t))[..., 0, :]
        self.seen += 1

    def window_kv(self):
        if self.kv is None: return torch.empty(self.none), torch.empty(self.none)
        k, v = self.kv[..., max(0, self.seen - self.window) : self.seen, :].clone()
        return k, v
