"""Right: own autograd.Function turning back in backward, out= into halves, strided slicing for the conversion, exp2 frequencies"""
import math

import torch
from torch import Tensor


class _Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, c, s):
        ctx.save_for_backward(c, s)
        a, b = x[..., : c.shape[-1]], x[..., c.shape[-1] :]
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        left, right = y.tensor_split(2, dim=-1)
        torch.mul(a, c, out=left).addcmul_(b, s, value=-1)
        torch.mul(a, s, out=right).addcmul_(b, c)
        return y

    @staticmethod
    def backward(ctx, g):
        c, s = ctx.saved_tensors
        return _Turn.apply(g, c, -s), None, None


def rope_angles(positions: Tensor, dim: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    if dim & 1:
        raise ValueError(f"an even width is needed, not {dim}")
    theta = torch.exp2(torch.arange(0, -dim, -2, device=positions.device).float() * (math.log2(base) / dim))
    angle = positions.float().unsqueeze(1).mul(theta)
    return torch.cos(angle), torch.sin(angle)


def apply_rope(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    if positions.numel() != x.size(-2):
        raise ValueError("got %d positions for %d rows" % (positions.numel(), x.size(-2)))
    c, s = rope_angles(positions, x.size(-1), base)
    w = x if x.dtype == torch.float64 else x.float()
    return _Turn.apply(w, c.to(w.dtype), s.to(w.dtype)).type(x.dtype)


def interleaved_to_half_split(weight: Tensor, n_heads: int) -> Tensor:
    n, m = weight.shape
    if n % n_heads != 0:
        raise ValueError(f"{n} rows cannot be cut into {n_heads} heads")
    if n // n_heads % 2 != 0:
        raise ValueError(f"heads of width {n // n_heads} are odd")
    return torch.cat([half for head in weight.tensor_split(n_heads) for half in (head[0::2], head[1::2])])
