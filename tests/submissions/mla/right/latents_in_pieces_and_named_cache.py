"""Right: flattened baddbmm, work in place on own tensors, a NamedTuple cache; decode merges pieces of seven latents"""

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Latents(NamedTuple):
    content: Tensor
    rotary: Tensor


class MultiHeadLatentAttention(nn.Module):
    def __init__(self, d_model, n_heads, d_head, d_latent, d_rope):
        super().__init__()
        if d_rope % 2 == 1:
            raise ValueError(f"d_rope must be even: {d_rope}")
        self.n_heads, self.d_head, self.d_latent, self.d_rope = n_heads, d_head, d_latent, d_rope
        self.o_proj = nn.Linear(n_heads * d_head, d_model, bias=False)
        self.k_rope = nn.Linear(d_model, d_rope, bias=False)
        self.v_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.k_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.kv_down = nn.Linear(d_model, d_latent, bias=False)
        self.q_proj = nn.Linear(d_model, n_heads * (d_head + d_rope), bias=False)
        steps = torch.arange(d_rope // 2, dtype=torch.float32) * (2.0 / d_rope)
        self.register_buffer("exponents", steps, persistent=False)

    def _spin(self, x, start):
        ex = torch.arange(self.d_rope // 2, dtype=torch.float32, device=x.device).mul_(2.0 / self.d_rope)
        freq = torch.exp2(ex.mul_(-13.287712379549449))
        ang = torch.arange(start, start + x.size(1), device=x.device).unsqueeze(1) * freq
        cos = torch.cat([ang, ang], -1).cos()
        sin = torch.cat([ang, ang], -1).sin()
        sin[..., : self.d_rope // 2].neg_()
        shape = (1, x.size(1)) + (1,) * (x.dim() - 3) + (self.d_rope,)
        turned = x * cos.view(shape) + x.roll(self.d_rope // 2, -1) * sin.view(shape)
        return turned.to(x.dtype)

    def _extend(self, x, cache):
        start = 0 if cache is None else cache[0].size(1)
        fresh = Latents(self.kv_down(x), self._spin(self.k_rope(x), start))
        if cache is None:
            return fresh, start
        return Latents(*(torch.cat(p, 1) for p in zip(cache, fresh, strict=True))), start

    def _query(self, x, start):
        q = self.q_proj(x).view(*x.shape[:2], self.n_heads, -1)
        return q[..., : self.d_head], self._spin(q[..., self.d_head :], start)

    def forward(self, x, cache=None, use_cache=False):
        B, T, _ = x.shape
        H, d = self.n_heads, self.d_head
        lat, start = self._extend(x, cache)
        S = start + T
        qc, qr = (t.permute(0, 2, 1, 3).reshape(B * H, T, -1) for t in self._query(x, start))
        k = self.k_up(lat.content).view(B, S, H, d).permute(0, 2, 3, 1).reshape(B * H, d, S)
        v = self.v_up(lat.content).view(B, S, H, d).permute(0, 2, 1, 3).reshape(B * H, S, d)
        scale = 1 / (d + self.d_rope) ** 0.5
        rot = (qr.reshape(B, H * T, -1) @ lat.rotary.transpose(1, 2)).view(B * H, T, S)
        s = torch.baddbmm(rot, qc, k, beta=scale, alpha=scale)
        future = torch.ones(T, S, dtype=torch.bool, device=x.device).triu_(start + 1)
        s.masked_fill_(future, float("-inf"))
        y = torch.bmm(s.softmax(-1), v).view(B, H, T, d).permute(0, 2, 1, 3).reshape(B, T, H * d)
        return self.o_proj(y), lat if use_cache else None

    def decode(self, x_t, cache):
        H, d = self.n_heads, self.d_head
        lat, start = self._extend(x_t, cache)
        qc, qr = self._query(x_t, start)
        wk, wv = (m.weight.view(H, d, self.d_latent) for m in (self.k_up, self.v_up))
        qa = torch.bmm(qc[:, 0].transpose(0, 1), wk).transpose(0, 1)  # (B, H, l)
        scale = (d + self.d_rope) ** -0.5
        best = acc = norm = None
        for c, k in zip(lat.content.split(7, 1), lat.rotary.split(7, 1), strict=True):
            s = (torch.bmm(qa, c.mT) + torch.bmm(qr[:, 0], k.mT)).mul(scale)
            m = s.detach().amax(-1, keepdim=True)
            if best is None:
                best, e = m, (s - m).exp()
                norm, acc = e.sum(-1, keepdim=True), e @ c
            else:
                top = torch.maximum(best, m)
                shrink, e = (best - top).exp(), (s - top).exp()
                norm, acc, best = norm * shrink + e.sum(-1, keepdim=True), acc * shrink + e @ c, top
        z = (acc / norm).transpose(0, 1)
        y = torch.bmm(z, wv.mT).transpose(0, 1).reshape(x_t.size(0), 1, H * d)
        return self.o_proj(y), lat

    def cache_numbers_per_token(self):
        return self.d_latent + self.d_rope
