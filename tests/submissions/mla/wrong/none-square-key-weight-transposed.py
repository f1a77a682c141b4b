"""The step reads the key weights transposed where d_head equals d_latent."""

import math
import torch
import torch.nn.functional as F
from torch import nn


def rope(x, positions):
    """x (..., T, d), positions (T,)"""
    d = x.shape[-1]
    theta = 10000.0 ** (-torch.arange(0, d, 2, device=x.device, dtype=torch.float32) / d)
    angle = positions.to(torch.float32)[:, None] * theta
    cos, sin = angle.cos(), angle.sin()
    xf = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    a, b = xf[..., : d // 2], xf[..., d // 2 :]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).to(x.dtype)


class MultiHeadLatentAttention(nn.Module):
    def __init__(self, d_model, n_heads, d_head, d_latent, d_rope):
        super().__init__()
        if d_rope % 2:
            raise ValueError(f"d_rope {d_rope} is odd")
        self.d_model, self.n_heads, self.d_head = d_model, n_heads, d_head
        self.d_latent, self.d_rope = d_latent, d_rope
        self.q_proj = nn.Linear(d_model, n_heads * (d_head + d_rope), bias=False)
        self.kv_down = nn.Linear(d_model, d_latent, bias=False)
        self.k_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.v_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.k_rope = nn.Linear(d_model, d_rope, bias=False)
        self.o_proj = nn.Linear(n_heads * d_head, d_model, bias=False)
        self.scale = 1 / math.sqrt(d_head + d_rope)

    def _project(self, x, cache):
        B, T, _ = x.shape
        past = 0 if cache is None else cache[0].shape[1]
        positions = torch.arange(past, past + T, device=x.device)
        q = self.q_proj(x).reshape(B, T, self.n_heads, -1).transpose(1, 2)
        q_c, q_r = q.split((self.d_head, self.d_rope), -1)
        q_r = rope(q_r, positions)
        latent = self.kv_down(x)
        k_r = rope(self.k_rope(x), positions)
        if cache is not None:
            latent = torch.cat((cache[0], latent), 1)
            k_r = torch.cat((cache[1], k_r), 1)
        return q_c, q_r, latent, k_r, past

    def forward(self, x, cache=None, use_cache=False):
        B, T, _ = x.shape
        q_c, q_r, latent, k_r, past = self._project(x, cache)
        S = past + T
        new = (latent, k_r) if use_cache else None
        k = self.k_up(latent).reshape(B, S, self.n_heads, -1).transpose(1, 2)
        v = self.v_up(latent).reshape(B, S, self.n_heads, -1).transpose(1, 2)
        scores = (q_c @ k.transpose(-2, -1) + q_r @ k_r[:, None].transpose(-2, -1)) * self.scale
        mask = torch.ones(T, S, dtype=torch.bool, device=x.device).triu(past + 1)
        w = scores.masked_fill(mask, float("-inf")).softmax(-1)
        y = (w @ v).transpose(1, 2).reshape(B, T, -1)
        return self.o_proj(y), new

    def decode(self, x_t, cache):
        B = x_t.shape[0]
        q_c, q_r, latent, k_r, past = self._project(x_t, cache)
        W_uk = self.k_up.weight.view(self.n_heads, self.d_head, self.d_latent)
        W_uv = self.v_up.weight.view(self.n_heads, self.d_head, self.d_latent)
        if self.d_head == self.d_latent:
            W_uk = W_uk.transpose(1, 2)
        q_lat = torch.einsum("bhd,hdc->bhc", q_c[:, :, 0], W_uk)
        scores = (q_lat @ latent.transpose(1, 2) + q_r[:, :, 0] @ k_r.transpose(1, 2)) * self.scale
        w = scores.softmax(-1)
        mixed = w @ latent
        o = torch.einsum("bhc,hdc->bhd", mixed, W_uv).reshape(B, 1, -1)
        return self.o_proj(o), (latent, k_r)

    def cache_numbers_per_token(self):
        return self.d_latent + self.d_rope
