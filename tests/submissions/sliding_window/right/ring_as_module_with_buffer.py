"""The ring is an nn.Module with one buffer for keys and values."""

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

from torch import nn
class RollingKVCache(nn.Module):
    def __init__(self, window, n_kv_heads, d_head):
        super().__init__()
        if window < 1: raise ValueError(f"window must be >= 1, got {window}")
        self.window = window
        self.register_buffer("kv", torch.zeros(2, 1, n_kv_heads, window, d_head), persistent=False)
        self.count = 0
    @torch.no_grad()
    def append(self, k_t, v_t):
        if self.count == 0:
            self.kv = torch.empty(self.kv.shape, dtype=k_t.dtype, device=k_t.device)
        self.kv[:, :, :, self.count % self.window] = torch.stack((k_t, v_t))[:, :, :, 0]
        self.count += 1
    def window_kv(self):
        n = min(self.count, self.window)
        idx = (torch.arange(self.count - n, self.count, device=self.kv.device) % self.window)
        k, v = self.kv.index_select(3, idx).unbind(0)
        return k.clone(), v.clone()
