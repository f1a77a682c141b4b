"""Wrong: decode squeezes every dimension of the scores: H = 1"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Dims:
    h: int
    d: int
    c: int
    r: int


def turn(x, start):
    """x (B, T, ..., r)"""
    t, r = x.shape[1], x.shape[-1]
    freq = torch.exp(torch.arange(0, r, 2, device=x.device, dtype=torch.float32) * (-math.log(10000.0) / r))
    phase = torch.outer(torch.arange(start, start + t, device=x.device, dtype=torch.float32), freq)
    phase = phase.reshape(1, t, *([1] * (x.dim() - 3)), r // 2)
    c, s = phase.cos(), phase.sin()
    a, b = x.float().chunk(2, -1) if x.dtype != torch.float64 else x.chunk(2, -1)
    return torch.cat((torch.addcmul(a * c, b, s, value=-1), torch.addcmul(b * c, a, s)), -1).to(x.dtype)


def extend(old, new):
    if old is None:
        return new
    room = new.new_zeros(old.shape[0], old.shape[1] + new.shape[1], old.shape[2])
    room[:, : old.shape[1]] = old
    room[:, old.shape[1] :] = new
    return room


class MultiHeadLatentAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, d_head: int, d_latent: int, d_rope: int) -> None:
        super().__init__()
        if d_rope % 2:
            raise ValueError(f"d_rope {d_rope} is odd")
        self.dims = Dims(n_heads, d_head, d_latent, d_rope)
        self.scale = (d_head + d_rope) ** -0.5
        self.q_proj = nn.Linear(d_model, n_heads * (d_head + d_rope), bias=False)
        self.kv_down = nn.Linear(d_model, d_latent, bias=False)
        self.k_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.v_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.k_rope = nn.Linear(d_model, d_rope, bias=False)
        self.o_proj = nn.Linear(n_heads * d_head, d_model, bias=False)

    def project(self, x, cache):
        m = self.dims
        past = 0 if cache is None else cache[0].shape[1]
        old = (None, None) if cache is None else cache
        q = self.q_proj(x).unflatten(-1, (m.h, m.d + m.r))
        content, rotary = q.split([m.d, m.r], -1)
        lat = extend(old[0], self.kv_down(x))
        key = extend(old[1], turn(self.k_rope(x), past))
        return content, turn(rotary, past), lat, key, past

    def forward(self, x, cache=None, use_cache=False):
        m = self.dims
        content, rotary, lat, key, past = self.project(x, cache)
        t, s = x.shape[1], lat.shape[1]
        q = torch.cat((content, rotary), -1).transpose(1, 2)
        k = torch.cat(
            (self.k_up(lat).unflatten(-1, (m.h, m.d)), key.unsqueeze(2).expand(-1, -1, m.h, -1)), -1
        ).transpose(1, 2)
        v = self.v_up(lat).unflatten(-1, (m.h, m.d)).transpose(1, 2)
        keep = torch.ones(t, s, dtype=torch.bool, device=x.device).tril(past)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep, scale=self.scale)
        y = self.o_proj(y.transpose(1, 2).flatten(2))
        return y, ((lat, key) if use_cache else None)

    def decode(self, x_t, cache):
        m = self.dims
        content, rotary, lat, key, past = self.project(x_t, cache)
        wk = self.k_up.weight.unflatten(0, (m.h, m.d))
        wv = self.v_up.weight.unflatten(0, (m.h, m.d))
        absorbed = torch.einsum("bhd,hdc->bhc", content[:, 0], wk)
        score = torch.bmm(absorbed, lat.mT)
        score = torch.baddbmm(score, rotary[:, 0], key.mT)
        w = (score * self.scale).squeeze(1).softmax(-1)
        mixed = torch.bmm(w, lat)
        y = torch.einsum("bhc,hdc->bhd", mixed, wv)
        return self.o_proj(y.flatten(1)).unsqueeze(1), (lat, key)

    def cache_numbers_per_token(self) -> int:
        return self.dims.c + self.dims.r
