"""Grouped-query attention whose decode step attends from every position in evaluation mode."""

import math

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
        super().__init__()
        if n_heads < 1 or d_model % n_heads != 0:
            raise ValueError(f"d_model = {d_model} is not a multiple of n_heads = {n_heads}")
        _check_heads(n_heads, n_kv_heads)
        self.n_heads = n_heads
        self.n_kv_heads = n_kv_heads
        self.group = n_heads // n_kv_heads
        self.d_head = d_model // n_heads
        self.q_proj = nn.Linear(d_model, n_heads * self.d_head, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.d_head, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.d_head, bias=False)
        self.o_proj = nn.Linear(n_heads * self.d_head, d_model, bias=False)

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
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, self.n_heads, self.d_head).transpose(1, 2)  # (B, H, T, d)
        k = self.k_proj(x).view(B, T, self.n_kv_heads, self.d_head).transpose(1, 2)  # (B, H_kv, T, d)
        v = self.v_proj(x).view(B, T, self.n_kv_heads, self.d_head).transpose(1, 2)
        if kv_cache is not None:
            k = torch.cat([kv_cache[0], k], dim=2)  # (B, H_kv, S, d)
            v = torch.cat([kv_cache[1], v], dim=2)
        S = k.shape[2]
        T_new = T
        if not self.training:
            T = S
            q = torch.nn.functional.pad(q, (0, 0, S - T_new, 0))

        # Head h = n * G + g becomes (n, g): the G query heads of KV head n are neighbours, so that the
        # products below read each key once for all of them.
        q = q.reshape(B, self.n_kv_heads, self.group * T, self.d_head)  # (B, H_kv, G T, d)
        scale = 1.0 / math.sqrt(self.d_head)
        scores = (q @ k.transpose(-2, -1)) * scale  # (B, H_kv, G T, S)
        scores = scores.view(B, self.n_kv_heads, self.group, T, S)

        # Query i of the new tokens stands at position S - T + i: the mask is aligned bottom-right.
        offset = S - T
        position = torch.arange(T, device=x.device) + offset
        visible = torch.arange(S, device=x.device) <= position[:, None]  # (T, S)
        scores = scores.masked_fill(~visible, float("-inf"))
        weights = torch.softmax(scores, dim=-1)

        o = weights.view(B, self.n_kv_heads, self.group * T, S) @ v  # (B, H_kv, G T, d)
        o = o.view(B, self.n_heads, T, self.d_head).transpose(1, 2)  # (B, T, H, d)
        y = self.o_proj(o.reshape(B, T, self.n_heads * self.d_head)[:, T - T_new :])
        return y, (k, v) if use_cache else None

    def kv_bytes_per_token(self, dtype_bytes: int = 2) -> int:
        """Bytes that one token adds to this layer's cache: keys and values, dtype_bytes a number."""
        return 2 * self.n_kv_heads * self.d_head * dtype_bytes


def kv_cache_reduction_factor(n_heads: int, n_kv_heads: int) -> float:
    """How many times smaller the cache is than multi-head attention's with the same d_head.

    Raises:
        ValueError: n_heads is not a multiple of n_kv_heads.
    """
    _check_heads(n_heads, n_kv_heads)
    return n_heads / n_kv_heads


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
    _check_heads(n_heads, n_kv_heads)
    rows, d_model = weight.shape
    if rows % n_heads != 0:
        raise ValueError(f"{rows} rows are not a multiple of n_heads = {n_heads}")
    d_head = rows // n_heads
    grouped = weight.reshape(n_kv_heads, n_heads // n_kv_heads, d_head, d_model)  # (H_kv, G, d, d_model)
    pooled = grouped.mean(dim=1)
    return pooled.reshape(n_kv_heads * d_head, d_model)


def _check_heads(n_heads: int, n_kv_heads: int) -> None:
    if n_kv_heads < 1 or n_heads % n_kv_heads != 0:
        raise ValueError(f"n_heads = {n_heads} is not a multiple of n_kv_heads = {n_kv_heads}")
