"""Sliding windows, sinks and the rolling cache

Jiang et al. 2023, Mistral 7B, arXiv:2310.06825, section 2; Xiao et al. 2024, StreamingLLM, arXiv:2309.17453

Part 1 (2 points)  Sliding window: sliding_window_mask
Part 2 (3 points)  Sinks and block sparse: attention_sink_mask, block_sparse_mask
Part 3 (5 points)  Masked attention and the ring buffer: masked_attention, RollingKVCache

Target: part 1 in 5 minutes, from memory.

    kit show sliding_window     the statement
    kit grade sliding_window    the verdict (--part 1 for one part)
    kit hint sliding_window     a nudge
"""

from __future__ import annotations

import torch
from torch import Tensor


def sliding_window_mask(T: int, window: int) -> Tensor:
    """Causal mask in which each query reads the last `window` keys, its own among them.

    Args:
        T: number of positions, T >= 0.
        window: how many keys a query reads at most, window >= 1; 1 means: itself only.

    Returns:
        (T, T) bool; entry [i, j] is True when query i may attend to key j.

    Raises:
        ValueError: T < 0 or window < 1; the message carries the number.
    """
    raise NotImplementedError("part 1: write sliding_window_mask")


def attention_sink_mask(T: int, window: int, n_sink: int) -> Tensor:
    """Sliding window mask in which the first `n_sink` keys stay visible for ever. Causal.

    Args:
        T: number of positions, T >= 0.
        window: as in `sliding_window_mask`; the sinks come on top of it.
        n_sink: how many leading keys are sinks, n_sink >= 0; it may exceed T.

    Returns:
        (T, T) bool; entry [i, j] is True when query i may attend to key j.

    Raises:
        ValueError: T < 0, window < 1 or n_sink < 0; the message carries the number.
    """
    raise NotImplementedError("part 2: write attention_sink_mask")


def block_sparse_mask(T: int, block: int, global_tokens: int = 0) -> Tensor:
    """Causal mask over fixed blocks: a query reads its own block, the block before it, and the leading global tokens.

    Args:
        T: number of positions, T >= 0; it need not be a multiple of `block`.
        block: positions per block, block >= 1; block b holds positions b*block .. (b+1)*block - 1.
        global_tokens: how many leading keys every query reads, >= 0; it may exceed T.

    Returns:
        (T, T) bool; entry [i, j] is True when query i may attend to key j.

    Raises:
        ValueError: T < 0, block < 1 or global_tokens < 0; the message carries the number.
    """
    raise NotImplementedError("part 2: write block_sparse_mask")


def masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Scaled dot-product attention under a boolean mask. Scores are divided by sqrt(d_head).

    Args:
        q: (B, H, T_q, d_head).
        k: (B, H, T_k, d_head).
        v: (B, H, T_k, d_head).
        mask: (T_q, T_k) bool, True = may attend.

    Returns:
        (B, H, T_q, d_head) in the dtype and on the device of q. A query that may attend to no key
        gets zeros, and every gradient stays finite.
    """
    raise NotImplementedError("part 3: write masked_attention")


class RollingKVCache:
    """Ring buffer with the keys and values of the last `window` tokens; memory does not grow with the tokens seen.

    Token number t (from 0) lives in slot t mod window. The ring takes dtype and device of the first token.

    Args:
        window: tokens kept, window >= 1.
        n_kv_heads: key/value heads H_kv.
        d_head: width of a head.

    Raises:
        ValueError: window < 1; the message carries the number.
    """

    def __init__(self, window: int, n_kv_heads: int, d_head: int) -> None:
        raise NotImplementedError("part 3: write RollingKVCache.__init__")

    def append(self, k_t: Tensor, v_t: Tensor) -> None:
        """Store one token, in place of the oldest one when the ring is full. The values are copied.

        Args:
            k_t: (1, H_kv, 1, d_head) key.
            v_t: (1, H_kv, 1, d_head) value.
        """
        raise NotImplementedError("part 3: write RollingKVCache.append")

    def window_kv(self) -> tuple[Tensor, Tensor]:
        """Copies of the cached keys and values, oldest token first.

        Returns:
            k, v: each (1, H_kv, min(n, window), d_head) after n appended tokens; length 0 for an empty ring.
        """
        raise NotImplementedError("part 3: write RollingKVCache.window_kv")
