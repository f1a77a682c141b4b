"""Right: own autograd.Function for the softmax and for the rotation (backward is the rotation back); decode through F.linear"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, s):
        e = s - s.max(-1, keepdim=True).values
        e.exp_()
        e.div_(e.sum(-1, keepdim=True))
        ctx.save_for_backward(e)
        return e

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        return p * (g - (g * p).sum(-1, keepdim=True))


def planes(x, angle):
    a, b = x.tensor_split(2, -1)
    c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    out = torch.empty_like(x)
    h = x.shape[-1] // 2
    torch.sub(a * c, b * s, out=out[..., :h])
    torch.add(a * s, b * c, out=out[..., h:])
    return out


class Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, angle):
        ctx.save_for_backward(angle)
        return planes(x, angle)

    @staticmethod
    def backward(ctx, g):
        return planes(g, -ctx.saved_tensors[0]), None


class MultiHeadLatentAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, d_head: int, d_latent: int, d_rope: int) -> None:
        super().__init__()
        if d_rope % 2 == 1:
            raise ValueError(f"d_rope={d_rope}: need pairs")
        self.h, self.d, self.r, self.c = n_heads, d_head, d_rope, d_latent
        lin = lambda i, o: nn.Linear(i, o, bias=False)
        self.q_proj, self.kv_down = lin(d_model, n_heads * (d_head + d_rope)), lin(d_model, d_latent)
        self.k_up, self.v_up = lin(d_latent, n_heads * d_head), lin(d_latent, n_heads * d_head)
        self.k_rope, self.o_proj = lin(d_model, d_rope), lin(n_heads * d_head, d_model)

    def angles(self, start, stop, like):
        e = torch.arange(0, self.r, 2, device=like.device) / self.r
        return torch.arange(start, stop, device=like.device).unsqueeze(1) / 10000.0**e

    def head(self, x, cache):
        n = 0 if cache is None else len(cache[0][0])
        ang = self.angles(n, n + x.shape[1], x)
        q = self.q_proj(x).view(*x.shape[:2], self.h, -1).transpose(1, 2)
        qc, qr = q[..., : self.d], Turn.apply(q[..., self.d :], ang)
        lat, key = self.kv_down(x), Turn.apply(self.k_rope(x), ang)
        if cache is not None:
            lat, key = torch.cat((cache[0], lat), 1), torch.cat((cache[1], key), 1)
        return qc, qr, lat, key, n

    def forward(self, x, cache=None, use_cache=False):
        qc, qr, lat, key, n = self.head(x, cache)
        B, S = lat.shape[:2]
        k = self.k_up(lat).view(B, S, self.h, self.d).permute(0, 2, 3, 1)
        v = self.v_up(lat).view(B, S, self.h, self.d).transpose(1, 2)
        s = torch.matmul(qc, k) + torch.matmul(qr, key.mT.unsqueeze(1))
        bias = torch.full((x.shape[1], S), float("-inf"), device=x.device, dtype=x.dtype).triu(n + 1)
        p = Softmax.apply(s / (self.d + self.r) ** 0.5 + bias)
        y = self.o_proj((p @ v).transpose(1, 2).reshape(B, -1, self.h * self.d))
        return (y, (lat, key)) if use_cache else (y, None)

    def decode(self, x_t, cache):
        qc, qr, lat, key, n = self.head(x_t, cache)
        wk = self.k_up.weight.view(self.h, self.d, self.c)
        wv = self.v_up.weight.view(self.h, self.d, self.c)
        qa = torch.stack([F.linear(qc[:, i, 0], wk[i].mT) for i in range(self.h)], 1)
        s = torch.baddbmm(torch.bmm(qr[:, :, 0], key.mT), qa, lat.mT)
        p = Softmax.apply(s.div((self.d + self.r) ** 0.5))
        o = torch.cat([F.linear(z, w) for z, w in zip((p @ lat).unbind(1), wv)], -1)
        return self.o_proj(o)[:, None], (lat, key)

    def cache_numbers_per_token(self) -> int:
        return self.c + self.r
