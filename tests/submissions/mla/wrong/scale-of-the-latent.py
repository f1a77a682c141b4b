"""The queries are divided by sqrt(d_latent + d_rope)."""

import math

import torch
from torch import nn


class MultiHeadLatentAttention(nn.Module):
    def __init__(self, d_model, n_heads, d_head, d_latent, d_rope):
        super().__init__()
        if d_rope & 1:
            raise ValueError(f"d_rope must be even and is {d_rope}")
        self.sizes = (n_heads, d_head, d_latent, d_rope)
        widths = {
            "q_proj": (d_model, n_heads * (d_head + d_rope)),
            "kv_down": (d_model, d_latent),
            "k_up": (d_latent, n_heads * d_head),
            "v_up": (d_latent, n_heads * d_head),
            "k_rope": (d_model, d_rope),
            "o_proj": (n_heads * d_head, d_model),
        }
        for name, (inputs, outputs) in widths.items():
            self.add_module(name, nn.Linear(inputs, outputs, bias=False))

    def _turn(self, x, positions):
        # x (B, T, ..., d_rope) with time on axis 1
        half = x.shape[-1] // 2
        theta = torch.exp(torch.arange(half, device=x.device, dtype=torch.float32) * (-math.log(10000.0) / half))
        phase = torch.polar(torch.ones((), device=x.device), positions.float()[:, None] * theta)
        phase = phase.reshape(len(positions), *[1] * (x.dim() - 3), half)
        wide = x.double() if x.dtype == torch.float64 else x.float()
        pairs = torch.complex(wide[..., :half], wide[..., half:]) * phase
        return torch.cat((pairs.real, pairs.imag), dim=-1).to(x.dtype)

    def _run(self, x, cache):
        heads, d_head, d_latent, d_rope = self.sizes
        batch, length, _ = x.shape
        past = cache[0].shape[1]
        positions = torch.arange(length, device=x.device) + past
        q = self.q_proj(x).reshape(batch, length, heads, d_head + d_rope)
        q = q * (1.0 / math.sqrt(d_latent + d_rope))
        content, rotary = q.split((d_head, d_rope), dim=-1)
        rotary = self._turn(rotary, positions)
        c = torch.cat((cache[0], self.kv_down(x)), dim=1)
        kr = torch.cat((cache[1], self._turn(self.k_rope(x), positions)), dim=1)
        w_k = self.k_up.weight.reshape(heads, d_head, d_latent)
        w_v = self.v_up.weight.reshape(heads, d_head, d_latent)
        folded = torch.einsum("bthd,hdc->bthc", content, w_k)
        scores = torch.einsum("bthc,bsc->bths", folded, c) + torch.einsum("bthr,bsr->bths", rotary, kr)
        late = torch.arange(past + length, device=x.device) > positions[:, None]
        scores = scores.masked_fill(late[None, :, None, :], -torch.inf)
        mixed = torch.einsum("bths,bsc->bthc", scores.softmax(dim=-1), c)
        out = torch.einsum("bthc,hdc->bthd", mixed, w_v).flatten(2)
        return self.o_proj(out), (c, kr)

    def forward(self, x, cache=None, use_cache=False):
        _, _, d_latent, d_rope = self.sizes
        start = cache if cache is not None else (x.new_zeros(len(x), 0, d_latent), x.new_zeros(len(x), 0, d_rope))
        y, grown = self._run(x, start)
        return y, grown if use_cache else None

    def decode(self, x_t, cache):
        return self._run(x_t, cache)

    def cache_numbers_per_token(self):
        return sum(self.sizes[2:])
