"""Multi-head latent attention

DeepSeek-AI 2024, DeepSeek-V2, arXiv:2405.04434, sections 2.1.2 and 2.1.3, equations 9-19

Part 1 (4 points)  Forward: MultiHeadLatentAttention
Part 2 (3 points)  Latent cache: MultiHeadLatentAttention
Part 3 (3 points)  Absorbed decode: MultiHeadLatentAttention

Target: part 1 in 30 minutes, from memory.

    kit show mla     the statement
    kit grade mla    the verdict (--part 1 for one part)
    kit hint mla     a nudge
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
        raise NotImplementedError("parts 1, 2, 3: write MultiHeadLatentAttention.__init__")

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
        raise NotImplementedError("parts 1, 2, 3: write MultiHeadLatentAttention.forward")

    def decode(self, x_t: Tensor, cache: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """One decoding step that works on the latents themselves; equal to `forward` on the same token and cache.

        Args:
            x_t: (B, 1, d_model), the token at position T_past.
            cache: (latent (B, T_past, d_latent), rotated shared key (B, T_past, d_rope)); it is not modified.

        Returns:
            y (B, 1, d_model), and the cache extended by this token. No tensor of size B * T_past * n_heads * d_head
            (or B * T_past * n_heads * d_latent) is made.
        """
        raise NotImplementedError("parts 1, 2, 3: write MultiHeadLatentAttention.decode")

    def cache_numbers_per_token(self) -> int:
        """How many numbers the cache holds for one token of one layer."""
        raise NotImplementedError("parts 1, 2, 3: write MultiHeadLatentAttention.cache_numbers_per_token")
