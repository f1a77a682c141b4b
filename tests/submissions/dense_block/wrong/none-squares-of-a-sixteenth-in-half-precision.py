"""In float16 a sixteenth of x is squared in float16: rows of 5000 overflow all the same, small ones underflow."""
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
        angle = torch.arange(x.shape[-2], dtype=torch.float32, device=x.device)[:, None] * theta  # (T, d_head/2)
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
    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        wide = x if x.dtype in (torch.float64, torch.float16) else x.float()
        normed = wide * torch.rsqrt(wide.div(16).pow(2).mean(-1, keepdim=True).float() * 256 + self.eps)
        return (normed * self.weight).to(x.dtype)


class SwiGLU(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w_gate = nn.Linear(d_model, d_ff, bias=False)
        self.w_up = nn.Linear(d_model, d_ff, bias=False)
        self.w_down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_down(F.silu(self.w_gate(x)) * self.w_up(x))


def swiglu_width(d_model: int, multiple_of: int = 64) -> int:
    return -(-8 * d_model // (3 * multiple_of)) * multiple_of


class TransformerBlock(nn.Module):
    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int, d_ff: int) -> None:
        super().__init__()
        self.attn_norm = RMSNorm(d_model)
        self.attn = RotaryGQA(d_model, n_heads, n_kv_heads)
        self.ffn_norm = RMSNorm(d_model)
        self.ffn = SwiGLU(d_model, d_ff)

    def forward(self, x: Tensor) -> Tensor:
        h = x + self.attn(self.attn_norm(x))
        return h + self.ffn(self.ffn_norm(h))
