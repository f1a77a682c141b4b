"""Wrong: the positions are counted in bfloat16, which knows no odd number past 256."""


from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RotaryGQA(nn.Module):
    """Causal grouped-query self-attention with rotary positions. Given: use it as it is.

    Half-split RoPE with base 10000, positions from 0. q_proj, k_proj, v_proj, o_proj are nn.Linear without bias;
    d_head = d_model // n_heads, and query head h reads key/value head h // (n_heads // n_kv_heads).

    Raises:
        ValueError: d_model % n_heads or n_heads % n_kv_heads is not 0, or d_head is odd.
    """

    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int) -> None:
        super().__init__()
        if d_model % n_heads != 0 or n_heads % n_kv_heads != 0:
            raise ValueError(f"sizes do not divide: d_model={d_model}, n_heads={n_heads}, n_kv_heads={n_kv_heads}")
        self.n_heads, self.n_kv_heads, self.d_head = n_heads, n_kv_heads, d_model // n_heads
        if self.d_head % 2 != 0:
            raise ValueError(f"rotary positions need an even head width, got d_head={self.d_head}")
        self.q_proj = nn.Linear(d_model, n_heads * self.d_head, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.d_head, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.d_head, bias=False)
        self.o_proj = nn.Linear(n_heads * self.d_head, d_model, bias=False)

    def _rotate(self, x: Tensor) -> Tensor:
        half = self.d_head // 2
        theta = 10000.0 ** (-torch.arange(half, dtype=torch.float32, device=x.device) / half)
        angle = torch.arange(x.shape[-2], dtype=torch.bfloat16, device=x.device)[:, None] * theta  # (T, d_head/2)
        cos, sin = angle.cos(), angle.sin()
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Attend causally. x (B, T, d_model) -> (B, T, d_model)."""
        B, T, _ = x.shape
        q = self._rotate(self.q_proj(x).view(B, T, self.n_heads, self.d_head).transpose(1, 2))  # (B, H, T, d_head)
        k = self._rotate(self.k_proj(x).view(B, T, self.n_kv_heads, self.d_head).transpose(1, 2))
        v = self.v_proj(x).view(B, T, self.n_kv_heads, self.d_head).transpose(1, 2)  # (B, H_kv, T, d_head)
        group = self.n_heads // self.n_kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)  # (B, H, T, d_head)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_head)  # (B, H, T, T)
        future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        weights = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(B, T, self.n_heads * self.d_head))


class RMSNorm(nn.Module):
    """Root-mean-square normalisation of the last axis, x / sqrt(mean(x^2) + eps), times a learned `weight` (dim,).

    `weight` starts at ones. There is no bias and no mean is subtracted.

    Args:
        dim: width of the last axis.
        eps: added to the mean square, under the root.
    """

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise. x (..., dim) -> (..., dim) in x's dtype, whatever dtype the weight has.

        The mean square accumulates in float32, so float16 input of a few hundred does not overflow.
        """
        wide = x.to(torch.promote_types(x.dtype, torch.float32))  # 256^2 is already inf in float16
        mean_square = wide.pow(2).mean(dim=-1, keepdim=True)
        inverse_rms = torch.rsqrt(mean_square + self.eps)  # eps under the root: a row of zeros has a finite gradient
        normed = wide * inverse_rms
        return (normed * self.weight).to(x.dtype)


class SwiGLU(nn.Module):
    """Gated feed-forward layer: w_down(silu(w_gate x) * w_up x), three nn.Linear without bias.

    Args:
        d_model: input and output width.
        d_ff: hidden width; w_gate and w_up are d_model -> d_ff, w_down is d_ff -> d_model.
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w_gate = nn.Linear(d_model, d_ff, bias=False)
        self.w_up = nn.Linear(d_model, d_ff, bias=False)
        self.w_down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., d_model) -> (..., d_model)."""
        gate = F.silu(self.w_gate(x))  # (..., d_ff)
        up = self.w_up(x)
        hidden = gate * up
        return self.w_down(hidden)


def swiglu_width(d_model: int, multiple_of: int = 64) -> int:
    """Hidden width that gives SwiGLU the weights of an MLP of width 4 d_model: the exact 8/3 d_model, rounded up.

    Args:
        d_model: model width, >= 1.
        multiple_of: the result is the smallest multiple of this number that is not below 8/3 d_model, >= 1.

    Returns:
        The width, an int: `swiglu_width(1, 1)` is 3.
    """
    numerator = 8 * d_model  # integers throughout: 8d/3 must not be cut before it is rounded up
    denominator = 3 * multiple_of
    blocks = -(-numerator // denominator)
    return blocks * multiple_of


class TransformerBlock(nn.Module):
    """Pre-norm decoder block: attn_norm, attn (RotaryGQA), ffn_norm, ffn (SwiGLU), two residual additions.

    Args:
        d_model: width of the residual stream.
        n_heads: query heads.
        n_kv_heads: key/value heads.
        d_ff: hidden width of the feed-forward layer.
    """

    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int, d_ff: int) -> None:
        super().__init__()
        self.attn_norm = RMSNorm(d_model)
        self.attn = RotaryGQA(d_model, n_heads, n_kv_heads)
        self.ffn_norm = RMSNorm(d_model)
        self.ffn = SwiGLU(d_model, d_ff)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, d_model) -> (B, T, d_model)."""
        attended = self.attn(self.attn_norm(x))
        h = x + attended  # the stream itself is never normalised, so the identity path reaches every layer
        fed = self.ffn(self.ffn_norm(h))
        return h + fed
