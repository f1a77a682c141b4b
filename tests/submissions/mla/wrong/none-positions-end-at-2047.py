"""Wrong: positions clamped to 2047 (max_position_embeddings)"""

import math

import torch
from torch import nn


def turn(x, start):
    half = x.shape[-1] // 2
    freq = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    pos = torch.arange(start, start + x.shape[1], device=x.device, dtype=torch.float32).clamp(max=2047)
    angle = pos[:, None] * freq
    cos, sin = angle.cos(), angle.sin()
    if x.dim() == 4:
        cos, sin = cos[:, None], sin[:, None]
    a, b = x.float().chunk(2, -1) if x.dtype != torch.float64 else x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)


class MultiHeadLatentAttention(nn.Module):
    def __init__(self, d_model, n_heads, d_head, d_latent, d_rope):
        super().__init__()
        if d_rope % 2:
            raise ValueError(f"d_rope {d_rope} is odd")
        self.h, self.d, self.l, self.r = n_heads, d_head, d_latent, d_rope
        self.q_proj = nn.Linear(d_model, n_heads * (d_head + d_rope), bias=False)
        self.kv_down = nn.Linear(d_model, d_latent, bias=False)
        self.k_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.v_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.k_rope = nn.Linear(d_model, d_rope, bias=False)
        self.o_proj = nn.Linear(n_heads * d_head, d_model, bias=False)
        self.scale = (d_head + d_rope) ** -0.5

    def queries(self, x, past):
        q = self.q_proj(x).unflatten(-1, (self.h, self.d + self.r))
        qc, qr = q.split([self.d, self.r], -1)
        return qc, turn(qr, past)

    def extend(self, x, cache):
        c = self.kv_down(x)
        past = 0 if cache is None else cache[0].shape[1]
        kr = turn(self.k_rope(x), past)
        if cache is not None:
            c = torch.cat([cache[0], c], 1)
            kr = torch.cat([cache[1], kr], 1)
        return c, kr, past

    def forward(self, x, cache=None, use_cache=False):
        B, T, _ = x.shape
        c, kr, past = self.extend(x, cache)
        qc, qr = self.queries(x, past)
        S = c.shape[1]
        k = self.k_up(c).unflatten(-1, (self.h, self.d))
        v = self.v_up(c).unflatten(-1, (self.h, self.d))
        score = (torch.einsum("bthd,bshd->bhts", qc, k) + torch.einsum("bthr,bsr->bhts", qr, kr)) * self.scale
        i = torch.arange(past, S, device=x.device)[:, None]
        j = torch.arange(S, device=x.device)
        score = score.masked_fill(j > i, -torch.inf)
        w = score.softmax(-1)
        y = torch.einsum("bhts,bshd->bthd", w, v)
        return self.o_proj(y.flatten(2)), ((c, kr) if use_cache else None)

    def decode(self, x_t, cache):
        c, kr, past = self.extend(x_t, cache)
        qc, qr = self.queries(x_t, past)
        wk = self.k_up.weight.view(self.h, self.d, self.l)
        wv = self.v_up.weight.view(self.h, self.d, self.l)
        qa = torch.einsum("bthd,hdl->bthl", qc, wk)
        score = (torch.einsum("bthl,bsl->bhts", qa, c) + torch.einsum("bthr,bsr->bhts", qr, kr)) * self.scale
        w = score.softmax(-1)
        z = torch.einsum("bhts,bsl->bthl", w, c)
        y = torch.einsum("bthl,hdl->bthd", z, wv)
        return self.o_proj(y.flatten(2)), (c, kr)

    def cache_numbers_per_token(self):
        return self.l + self.r
