"""Right: attention as an autograd.Function with a hand-written backward; masks by comparing positions"""

import math
import torch
from torch import nn


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, past, scale):
        # q (B, m, g, T, d), k, v (B, m, S, d)
        s = torch.matmul(q, k[:, :, None].mT) * scale
        rows = torch.arange(q.shape[-2], device=q.device)[:, None] + past
        cols = torch.arange(k.shape[-2], device=q.device)
        s = torch.where(cols > rows, -math.inf, s.double())
        p = (s - torch.logsumexp(s, -1, keepdim=True)).exp().to(q.dtype)
        ctx.save_for_backward(q, k, v, p)
        ctx.scale = scale
        return torch.matmul(p, v[:, :, None])

    @staticmethod
    def backward(ctx, dy):
        q, k, v, p = ctx.saved_tensors
        dv = torch.einsum("bmgts,bmgtd->bmsd", p, dy)
        dp = torch.matmul(dy, v[:, :, None].mT)
        ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * ctx.scale
        return torch.matmul(ds, k[:, :, None]), torch.einsum("bmgts,bmgtd->bmsd", ds, q), dv, None, None


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int) -> None:
        super().__init__()
        d, r = divmod(d_model, n_heads)
        g, r2 = divmod(n_heads, n_kv_heads)
        if r or r2:
            raise ValueError(f"{d_model=} {n_heads=} {n_kv_heads=} do not divide")
        for name, wide in zip("qkvo", (d_model, n_kv_heads * d, n_kv_heads * d, d_model), strict=True):
            setattr(self, f"{name}_proj", nn.Linear(d_model, wide, bias=False))
        self.shape = (n_kv_heads, g, d)

    def forward(self, x, kv_cache=None, use_cache=False):
        m, g, d = self.shape
        q = self.q_proj(x).unflatten(-1, (m, g, d)).permute(0, 2, 3, 1, 4)
        fresh = [p(x).unflatten(-1, (m, d)).transpose(1, 2) for p in (self.k_proj, self.v_proj)]
        whole = fresh if kv_cache is None else [torch.cat(pair, -2) for pair in zip(kv_cache, fresh, strict=True)]
        y = _Attend.apply(q, *whole, whole[0].shape[-2] - x.shape[1], d**-0.5)
        return self.o_proj(y.permute(0, 3, 1, 2, 4).flatten(2)), tuple(whole) if use_cache else None

    def kv_bytes_per_token(self, dtype_bytes: int = 2) -> int:
        m, _, d = self.shape
        return sum(m * d * dtype_bytes for _ in "kv")


def kv_cache_reduction_factor(n_heads: int, n_kv_heads: int) -> float:
    if n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} % {n_kv_heads}")
    return float(n_heads // n_kv_heads)


def mean_pool_kv_heads(weight, n_heads: int, n_kv_heads: int):
    g = int(kv_cache_reduction_factor(n_heads, n_kv_heads))
    if weight.shape[0] % n_heads:
        raise ValueError(f"{weight.shape[0]} % {n_heads}")
    pool = torch.kron(torch.eye(n_kv_heads), torch.full((1, g), 1 / g)).to(weight)  # (m, H)
    pool = torch.kron(pool, torch.eye(weight.shape[0] // n_heads).to(weight))
    return pool @ weight
