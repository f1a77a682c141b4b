"""Hidden scores are filled with -1e9: too low for float16, low enough for every score that is met."""

import numpy as np
import torch
from torch import Tensor, nn


class MultiHeadLatentAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, d_head: int, d_latent: int, d_rope: int) -> None:
        nn.Module.__init__(self)
        if d_rope % 2 != 0:
            raise ValueError(f"d_rope ({d_rope}) must be even")
        self.heads = n_heads
        self.widths = [d_head, d_rope]
        self.q_proj = nn.Linear(d_model, n_heads * sum(self.widths), bias=False)
        self.kv_down = nn.Linear(d_model, d_latent, bias=False)
        self.k_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.v_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.k_rope = nn.Linear(d_model, d_rope, bias=False)
        self.o_proj = nn.Linear(n_heads * d_head, d_model, bias=False)
        self.freq = tuple(np.power(10000.0, -np.arange(0, d_rope, 2) / d_rope).tolist())

    def _rope(self, x, start):  # (B, *, T, r)
        f = torch.tensor(self.freq, device=x.device)
        t = torch.arange(start, start + x.shape[-2], device=x.device)
        ang = t.unsqueeze(-1) * f
        cos, sin = ang.cos().repeat(1, 2), ang.sin().repeat(1, 2)
        x32 = x if x.dtype == torch.float64 else x.float()
        first, second = x32.chunk(2, dim=-1)
        return (x32 * cos + torch.cat([-second, first], -1) * sin).to(x.dtype)

    def forward(self, x, cache=None, use_cache=False):
        B, T, _ = x.size()
        lat = self.kv_down(x)
        past = 0
        if cache is not None:
            past = cache[0].shape[1]
            lat = torch.cat([cache[0], lat], dim=1)
        kr = self._rope(self.k_rope(x), past)
        if cache is not None:
            kr = torch.cat([cache[1], kr], dim=1)
        q = self.q_proj(x).view(B, T, self.heads, -1).transpose(1, 2)
        qc, qr = q.split(self.widths, dim=-1)
        qr = self._rope(qr, past)
        k, v = (m(lat).view(B, past + T, self.heads, -1).transpose(1, 2) for m in (self.k_up, self.v_up))
        att = qc @ k.transpose(2, 3)
        att = att + (qr.flatten(1, 2) @ kr.transpose(1, 2)).view_as(att)
        att = att / np.sqrt(sum(self.widths)).item()
        seen = (
            torch.eye(past + T, dtype=torch.int32, device=x.device).cumsum(0).T[past:]
            if False
            else (torch.eye(past + T, dtype=torch.int32, device=x.device).flip(1).cumsum(1).flip(1)[past:])
        )
        att = att.masked_fill(seen == 0, -1e9).softmax(-1)
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, -1)
        return self.o_proj(y), (lat, kr) if use_cache else None

    def decode(self, x_t, cache):
        d, r = self.widths
        past = cache[0].shape[1]
        lat = torch.cat([cache[0], self.kv_down(x_t)], dim=1)
        kr = torch.cat([cache[1], self._rope(self.k_rope(x_t), past)], dim=1)
        q = self.q_proj(x_t).view(-1, self.heads, d + r)
        qr = self._rope(q[..., None, d:], past).squeeze(2)
        blocks = torch.block_diag(*self.k_up.weight.view(self.heads, d, -1))
        qa = (q[..., :d].flatten(1) @ blocks).view(-1, self.heads, lat.shape[-1])
        s = (qa @ lat.mT + qr @ kr.mT) / np.sqrt(d + r).item()
        z = s.softmax(-1) @ lat
        blocks = torch.block_diag(*self.v_up.weight.view(self.heads, d, -1))
        return self.o_proj(z.flatten(1) @ blocks.mT).unsqueeze(1), (lat, kr)

    def cache_numbers_per_token(self) -> int:
        return self.kv_down.weight.shape[0] + self.widths[1]
