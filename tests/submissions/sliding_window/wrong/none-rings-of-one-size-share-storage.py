"""Rings of the same sizes share their storage, kept on the class."""

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
    _store = {}
    def __init__(self, window, n_kv_heads, d_head):
        if window < 1: raise ValueError(f"window = {window}")
        self.window, self.h, self.d = window, n_kv_heads, d_head
        self.n = 0
        self.k = self.v = None

    def append(self, k_t, v_t):
        if self.k is None:
            key = (self.h, self.window, self.d, k_t.dtype, k_t.device)
            if key not in self._store:
                self._store[key] = [torch.zeros(1, self.h, self.window, self.d, dtype=k_t.dtype, device=k_t.device) for _ in range(2)]
            self.k, self.v = self._store[key]
        s = self.n % self.window
        self.k[:, :, s:s+1] = k_t.detach()
        self.v[:, :, s:s+1] = v_t.detach()
        self.n += 1

    def window_kv(self):
        if self.k is None:
            e = torch.zeros(1, self.h, 0, self.d)
            return e, e.clone()
        if self.n <= self.window:
            return self.k[:, :, :self.n].clone(), self.v[:, :, :self.n].clone()
        s = self.n % self.window
        return self.k.roll(-s, 2), self.v.roll(-s, 2)
