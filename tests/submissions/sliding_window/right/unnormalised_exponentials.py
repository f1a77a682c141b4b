"""Exponentials and their sum, no softmax; masked rows divide by the least number."""

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
    hi = torch.promote_types(q.dtype, torch.float32)
    s = torch.einsum("bhid,bhjd->bhij", q.to(hi), k.to(hi)) * q.size(-1) ** -0.5
    s = torch.where(mask, s, -torch.inf)
    m = s.amax(-1, keepdim=True).detach()
    m = torch.where(m.isinf(), torch.zeros_like(m), m)
    e = (s - m).exp()
    z = e.sum(-1, keepdim=True)
    return torch.einsum("bhij,bhjd->bhid", e / z.clamp_min(torch.finfo(hi).tiny), v.to(hi)).to(q.dtype)

class RollingKVCache:
    def __init__(self, window, n_kv_heads, d_head):
        if window < 1: raise ValueError(f"window = {window}")
        self.window, self.h, self.d = window, n_kv_heads, d_head
        self.n = 0
        self.k = self.v = None

    def append(self, k_t, v_t):
        if self.k is None:
            self.k = torch.zeros(1, self.h, self.window, self.d, dtype=k_t.dtype, device=k_t.device)
            self.v = torch.zeros_like(self.k)
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
