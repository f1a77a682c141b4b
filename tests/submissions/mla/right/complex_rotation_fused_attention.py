"""Right: one key of d_head + d_rope for fused attention, complex rotation, absorbed decode by batched matmul"""

import math
import torch
import torch.nn.functional as F
from torch import nn


def spin(u, start):
    """u (..., T, d): rotation by complex numbers in float32, half-split."""
    half = u.shape[-1] // 2
    T = u.shape[-2]
    where = torch.arange(start, start + T, device=u.device, dtype=torch.float32)
    freq = torch.exp(torch.arange(half, device=u.device, dtype=torch.float32) * (-math.log(10000.0) / half))
    turn = torch.polar(torch.ones(T, half, device=u.device), where[:, None] * freq)
    wide = u if u.dtype == torch.float64 else u.float()
    z = torch.complex(wide[..., :half], wide[..., half:]) * turn
    return torch.cat([z.real, z.imag], -1).to(u.dtype)


class MultiHeadLatentAttention(nn.Module):
    def __init__(self, d_model, n_heads, d_head, d_latent, d_rope):
        super().__init__()
        if d_rope & 1:
            raise ValueError(f"d_rope = {d_rope}")
        self.h, self.c, self.l, self.r = n_heads, d_head, d_latent, d_rope
        lin = lambda a, b: nn.Linear(a, b, bias=False)
        self.q_proj = lin(d_model, n_heads * (d_head + d_rope))
        self.kv_down = lin(d_model, d_latent)
        self.k_up = lin(d_latent, n_heads * d_head)
        self.v_up = lin(d_latent, n_heads * d_head)
        self.k_rope = lin(d_model, d_rope)
        self.o_proj = lin(n_heads * d_head, d_model)

    def _new(self, x, past):
        q = self.q_proj(x).unflatten(-1, (self.h, self.c + self.r)).transpose(1, 2)
        content, rotary = q[..., : self.c], q[..., self.c :]
        return content, spin(rotary, past), self.kv_down(x), spin(self.k_rope(x), past)

    def forward(self, x, cache=None, use_cache=False):
        B, T, _ = x.shape
        past = 0 if cache is None else cache[0].shape[1]
        qc, qr, latent, shared = self._new(x, past)
        if cache is not None:
            latent = torch.cat([cache[0], latent], 1)
            shared = torch.cat([cache[1], shared], 1)
        S = past + T
        k = self.k_up(latent).unflatten(-1, (self.h, self.c)).transpose(1, 2)
        v = self.v_up(latent).unflatten(-1, (self.h, self.c)).transpose(1, 2)
        k = torch.cat([k, shared[:, None].expand(B, self.h, S, self.r)], -1)
        q = torch.cat([qc, qr], -1)
        allowed = torch.ones(T, S, device=x.device, dtype=torch.bool).tril(past)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        y = self.o_proj(y.transpose(1, 2).flatten(2))
        return y, ((latent, shared) if use_cache else None)

    def decode(self, x_t, cache):
        past = cache[0].shape[1]
        qc, qr, latent, shared = self._new(x_t, past)
        latent = torch.cat([cache[0], latent], 1)
        shared = torch.cat([cache[1], shared], 1)
        up_k = self.k_up.weight.view(self.h, self.c, self.l)
        up_v = self.v_up.weight.view(self.h, self.c, self.l)
        ql = torch.einsum("bhd,hdl->bhl", qc[:, :, 0], up_k)
        score = torch.baddbmm(ql @ latent.mT, qr[:, :, 0], shared.mT) / math.sqrt(self.c + self.r)
        mix = score.softmax(-1) @ latent
        y = torch.einsum("bhl,hdl->bhd", mix, up_v)
        return self.o_proj(y.flatten(1).unsqueeze(1)), (latent, shared)

    def cache_numbers_per_token(self):
        return self.l + self.r
