"""Grouped-query attention

Ainslie et al. 2023, GQA: Training Generalized Multi-Query Transformer Models, arXiv:2305.13245, section 2

Part 1 (4 points)  Training forward: GroupedQueryAttention
Part 2 (4 points)  KV cache: prefill, chunked prefill, one-token decode: GroupedQueryAttention
Part 3 (2 points)  Converting a multi-head checkpoint, and cache arithmetic: GroupedQueryAttention,
    kv_cache_reduction_factor, mean_pool_kv_heads

Target: part 1 in 20 minutes, from memory.

    kit show gqa     the statement
    kit grade gqa    the verdict (--part 1 for one part)
    kit hint gqa     a nudge
"""

import torch
from torch import Tensor, nn


class GroupedQueryAttention(nn.Module):
    """Causal grouped-query self-attention with a KV cache.

    Args:
        d_model: width of the residual stream; d_head = d_model // n_heads.
        n_heads: H, the number of query heads.
        n_kv_heads: H_kv, the number of key/value heads.

    Attributes:
        q_proj, k_proj, v_proj, o_proj: nn.Linear without bias.

    Raises:
        ValueError: d_model is not a multiple of n_heads, or n_heads not a multiple of n_kv_heads.
    """

    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int) -> None:
        raise NotImplementedError("parts 1, 2, 3: write GroupedQueryAttention.__init__")

    def forward(
        self, x: Tensor, kv_cache: tuple[Tensor, Tensor] | None = None, use_cache: bool = False
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """Attend from the tokens of x to themselves and to the cached tokens before them.

        Args:
            x: (B, T, d_model), the new tokens.
            kv_cache: keys and values of the T_past tokens before them, each (B, H_kv, T_past, d_head), heads NOT
                expanded; T_past may be 0. Left as it is.
            use_cache: whether to return the cache of all T_past + T tokens.

        Returns:
            y (B, T, d_model) in x's dtype, and (k, v), each (B, H_kv, T_past + T, d_head), or None unless use_cache.
        """
        raise NotImplementedError("parts 1, 2, 3: write GroupedQueryAttention.forward")

    def kv_bytes_per_token(self, dtype_bytes: int = 2) -> int:
        """Bytes that one token adds to this layer's cache: keys and values, dtype_bytes a number."""
        raise NotImplementedError("parts 1, 2, 3: write GroupedQueryAttention.kv_bytes_per_token")


def kv_cache_reduction_factor(n_heads: int, n_kv_heads: int) -> float:
    """How many times smaller the cache is than multi-head attention's with the same d_head.

    Raises:
        ValueError: n_heads is not a multiple of n_kv_heads.
    """
    raise NotImplementedError("part 3: write kv_cache_reduction_factor")


def mean_pool_kv_heads(weight: Tensor, n_heads: int, n_kv_heads: int) -> Tensor:
    """Turn a multi-head key (or value) projection into a grouped one (the paper's uptraining start).

    Args:
        weight: (H * d_head, d_model), rows of head 0 first, as in nn.Linear.
        n_heads: H.
        n_kv_heads: H_kv.

    Returns:
        (H_kv * d_head, d_model): KV head n is the mean of the heads that will share it.

    Raises:
        ValueError: n_heads is not a multiple of n_kv_heads, or the rows not a multiple of n_heads.
    """
    raise NotImplementedError("part 3: write mean_pool_kv_heads")
