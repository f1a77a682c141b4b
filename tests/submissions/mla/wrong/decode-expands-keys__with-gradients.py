"""Multi-head latent attention whose decode step is the plain forward while gradients are kept."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_BASE = 10000.0


def _rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Half-split RoPE on the last axis; x (..., T, d), positions (T,); angles in float32, result in x's dtype."""
    half = x.shape[-1] // 2
    theta = _BASE ** (-torch.arange(half, dtype=torch.float32, device=x.device) / half)  # base^(-2i/d)
    angle = positions.to(torch.float32)[:, None] * theta  # (T, d/2)
    cos, sin = angle.cos(), angle.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)


def _softmax(scores: Tensor) -> Tensor:
    """Softmax over the keys, accumulated in at least float32, in the dtype of the scores."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    return torch.softmax(scores, dim=-1, dtype=wide).to(scores.dtype)


class MultiHeadLatentAttention(nn.Module):
    """Causal self-attention whose keys and values are read from a shared low-rank latent, with a decoupled rotary key.

    Submodules, all nn.Linear without bias:
        q_proj: d_model -> n_heads * (d_head + d_rope); per head, d_head content dims first, then d_rope rotary dims
        kv_down: d_model -> d_latent
        k_up, v_up: d_latent -> n_heads * d_head
        k_rope: d_model -> d_rope, one rotary key for all heads
        o_proj: n_heads * d_head -> d_model

    RoPE is half-split (dimension i with i + d_rope/2), base 10000. Scores are scaled by 1/sqrt(d_head + d_rope).

    Raises:
        ValueError: odd d_rope; the message carries the number.
    """

    def __init__(self, d_model: int, n_heads: int, d_head: int, d_latent: int, d_rope: int) -> None:
        super().__init__()
        if d_rope % 2 != 0:
            raise ValueError(f"rotary dimensions come in pairs, so d_rope must be even; got d_rope={d_rope}")
        self.n_heads, self.d_head, self.d_latent, self.d_rope = n_heads, d_head, d_latent, d_rope
        self.q_proj = nn.Linear(d_model, n_heads * (d_head + d_rope), bias=False)
        self.kv_down = nn.Linear(d_model, d_latent, bias=False)
        self.k_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.v_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.k_rope = nn.Linear(d_model, d_rope, bias=False)
        self.o_proj = nn.Linear(n_heads * d_head, d_model, bias=False)
        self._scale = 1.0 / math.sqrt(d_head + d_rope)  # the width of [q^C ; q^R], absorbed or not

    def _project(self, x: Tensor, past: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Content and rotary queries (B, H, T, d_head | d_rope), latent (B, T, d_latent), rotary key (B, T, d_rope)."""
        B, T, _ = x.shape
        positions = torch.arange(past, past + T, device=x.device)
        q = self.q_proj(x).view(B, T, self.n_heads, self.d_head + self.d_rope).transpose(1, 2)
        q_content = q[..., : self.d_head]
        q_rotary = q[..., self.d_head :]
        q_rotary = _rotate(q_rotary, positions)
        latent = self.kv_down(x)
        k_rotary = _rotate(self.k_rope(x), positions)  # rotated once, at its own position; cached as it is
        return q_content, q_rotary, latent, k_rotary

    def _merge(self, heads: Tensor) -> Tensor:
        """(B, H, T, d_head) -> (B, T, d_model)."""
        B, _, T, _ = heads.shape
        merged = heads.transpose(1, 2).reshape(B, T, self.n_heads * self.d_head)
        return self.o_proj(merged)

    def forward(
        self, x: Tensor, cache: tuple[Tensor, Tensor] | None = None, use_cache: bool = False
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """Attend causally over the cached positions and the new ones.

        Args:
            x: (B, T, d_model), the new tokens; their positions start at the cached length.
            cache: (latent (B, T_past, d_latent), rotated shared key (B, T_past, d_rope)) of all earlier tokens;
                it is not modified.
            use_cache: whether to return the cache extended by the new tokens.

        Returns:
            y (B, T, d_model), and the cache of all T_past + T positions, or None unless `use_cache`.
        """
        B, T, _ = x.shape
        past = 0 if cache is None else cache[0].shape[1]
        q_content, q_rotary, latent, k_rotary = self._project(x, past)
        if cache is not None:
            latent = torch.cat((cache[0], latent), dim=1)  # (B, T_k, d_latent)
            k_rotary = torch.cat((cache[1], k_rotary), dim=1)  # (B, T_k, d_rope)
        T_k = past + T
        k = self.k_up(latent).view(B, T_k, self.n_heads, self.d_head).transpose(1, 2)  # (B, H, T_k, d_head)
        v = self.v_up(latent).view(B, T_k, self.n_heads, self.d_head).transpose(1, 2)

        content_scores = q_content @ k.transpose(-2, -1)  # (B, H, T, T_k)
        rotary_scores = q_rotary @ k_rotary[:, None].transpose(-2, -1)  # one key, broadcast over the heads
        scores = (content_scores + rotary_scores) * self._scale
        # Bottom-right causal: the last query sees every key, the one before it all but the last, ...
        future = torch.ones(T, T_k, dtype=torch.bool, device=x.device).triu(past + 1)
        scores = scores.masked_fill(future, float("-inf"))
        weights = _softmax(scores)
        y = self._merge(weights @ v)
        new_cache = (latent, k_rotary) if use_cache else None
        return y, new_cache

    def decode(self, x_t: Tensor, cache: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """One decoding step that works on the latents themselves; equal to `forward` on the same token and cache.

        Args:
            x_t: (B, 1, d_model), the token at position T_past.
            cache: (latent (B, T_past, d_latent), rotated shared key (B, T_past, d_rope)); it is not modified.

        Returns:
            y (B, 1, d_model), and the cache extended by this token. No tensor of size B * T_past * n_heads * d_head
            (or B * T_past * n_heads * d_latent) is made.
        """
        if torch.is_grad_enabled():
            return self.forward(x_t, cache, use_cache=True)
        past = cache[0].shape[1]
        q_content, q_rotary, latent_t, k_rotary_t = self._project(x_t, past)
        latent = torch.cat((cache[0], latent_t), dim=1)  # (B, T_k, d_latent)
        k_rotary = torch.cat((cache[1], k_rotary_t), dim=1)  # (B, T_k, d_rope)

        # q^T (W^UK c) = (W^UK^T q)^T c: fold W^UK into the query once, then every head reads the same latents.
        w_uk = self.k_up.weight.view(self.n_heads, self.d_head, self.d_latent)
        q_latent = torch.einsum("bhtd,hdc->bhtc", q_content, w_uk)  # (B, H, 1, d_latent)
        # einsum, not `@`: a broadcast batch matmul would copy the latents once per head, which is the cost we avoid.
        content = torch.einsum("bhtc,bsc->bhts", q_latent, latent)  # (B, H, 1, T_k)
        rotary = torch.einsum("bhtr,bsr->bhts", q_rotary, k_rotary)
        absorbed_scores = (content + rotary) * self._scale  # not of d_latent: it is the same score as in forward
        weights = _softmax(absorbed_scores)
        # sum_s w_s W^UV c_s = W^UV (sum_s w_s c_s): average the latents first, project the one average.
        mixed = torch.einsum("bhts,bsc->bhtc", weights, latent)  # (B, H, 1, d_latent)
        w_uv = self.v_up.weight.view(self.n_heads, self.d_head, self.d_latent)
        heads = torch.einsum("bhtc,hdc->bhtd", mixed, w_uv)  # (B, H, 1, d_head)
        return self._merge(heads), (latent, k_rotary)

    def cache_numbers_per_token(self) -> int:
        """How many numbers the cache holds for one token of one layer."""
        return self.d_latent + self.d_rope
