"""Positions stop at 511."""

import math, torch
import torch.nn.functional as F
from torch import nn

def _rope(x, start):
    T, d = x.shape[-2:]
    th = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float32, device=x.device) / d)
    ang = torch.arange(start, start + T, dtype=torch.float32, device=x.device).clamp(max=511)[:, None] * th
    c, s = ang.cos(), ang.sin()
    a, b = x.chunk(2, -1)
    return torch.cat([a * c - b * s, a * s + b * c], -1).to(x.dtype)

class MultiHeadLatentAttention(nn.Module):
    def __init__(self, d_model, n_heads, d_head, d_latent, d_rope):
        super().__init__()
        if d_rope % 2: raise ValueError(f"d_rope = {d_rope} is odd")
        self.H, self.dh, self.dl, self.dr = n_heads, d_head, d_latent, d_rope
        lin = lambda i, o: nn.Linear(i, o, bias=False)
        self.q_proj = lin(d_model, n_heads * (d_head + d_rope))
        self.kv_down = lin(d_model, d_latent)
        self.k_up = lin(d_latent, n_heads * d_head)
        self.v_up = lin(d_latent, n_heads * d_head)
        self.k_rope = lin(d_model, d_rope)
        self.o_proj = lin(n_heads * d_head, d_model)
        self.scale = (d_head + d_rope) ** -0.5

    def _project(self, x, cache):
        B, T, _ = x.shape
        past = 0 if cache is None else cache[0].shape[1]
        q = self.q_proj(x).view(B, T, self.H, self.dh + self.dr).transpose(1, 2)
        qc, qr = q.split([self.dh, self.dr], -1)
        qr = _rope(qr, past)
        c, r = self.kv_down(x), _rope(self.k_rope(x), past)
        if cache is not None:
            c, r = torch.cat([cache[0], c], 1), torch.cat([cache[1], r], 1)
        return qc, qr, c, r

    def forward(self, x, cache=None, use_cache=False):
        B, T, _ = x.shape
        qc, qr, c, r = self._project(x, cache)
        S = c.shape[1]
        k = self.k_up(c).view(B, S, self.H, self.dh)
        v = self.v_up(c).view(B, S, self.H, self.dh)
        s = torch.einsum("bhtd,bshd->bhts", qc, k) + torch.einsum("bhtr,bsr->bhts", qr, r)
        hide = torch.ones(T, S, dtype=torch.bool, device=x.device).triu(S - T + 1)
        w = (s * self.scale).masked_fill(hide, -torch.inf).softmax(-1)
        y = torch.einsum("bhts,bshd->bthd", w, v).reshape(B, T, -1)
        return self.o_proj(y), ((c, r) if use_cache else None)

    def decode(self, x_t, cache):
        B = x_t.shape[0]
        qc, qr, c, r = self._project(x_t, cache)
        wk = self.k_up.weight.view(self.H, self.dh, self.dl)
        wv = self.v_up.weight.view(self.H, self.dh, self.dl)
        ql = torch.einsum("bhtd,hdl->bhtl", qc, wk)
        s = torch.einsum("bhtl,bsl->bhts", ql, c) + torch.einsum("bhtr,bsr->bhts", qr, r)
        w = (s * self.scale).softmax(-1)
        z = torch.einsum("bhts,bsl->bhtl", w, c)
        y = torch.einsum("bhtl,hdl->bthd", z, wv).reshape(B, 1, -1)
        return self.o_proj(y), (c, r)

    def cache_numbers_per_token(self):
        return self.dl + self.dr
