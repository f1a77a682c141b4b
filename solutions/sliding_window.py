"""Sparse causal attention: which keys a query may read, and a cache that never outgrows the window.

References
    Jiang et al. 2023, Mistral 7B, arXiv:2310.06825, section 2 (sliding window, rolling buffer cache)
    Xiao et al. 2024, Efficient Streaming Language Models with Attention Sinks, arXiv:2309.17453
    Beltagy et al. 2020, Longformer, arXiv:2004.05150 (local blocks plus global tokens)

Symbols
    i query index, j key index, W window, T time, d d_head, H_kv key/value heads

Cost to defend. A mask changes what is *visible*; a dense kernel still multiplies all T^2 pairs. The saving, O(T W) work
and O(W) cache, comes from a kernel that skips masked blocks and from the ring buffer below. After L layers information
has travelled at most L (W - 1) positions back.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def _grid(T: int) -> tuple[Tensor, Tensor]:
    """Query indices as a column, key indices as a row, so that a comparison of the two broadcasts to (T, T)."""
    if T < 0:
        raise ValueError(f"T must not be negative, got T={T}")
    steps = torch.arange(T)
    return steps[:, None], steps[None, :]  # (T, 1), (1, T)


def _require_a_key(window: int) -> None:
    if window < 1:
        raise ValueError(f"window must be at least 1, got window={window}")


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
    _require_a_key(window)
    i, j = _grid(T)
    causal = j <= i
    recent = i - j < window  # the distance 0 is the query itself, so W keys have distances 0 .. W-1
    return causal & recent  # (T, T)


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
    if n_sink < 0:
        raise ValueError(f"n_sink must not be negative, got n_sink={n_sink}")
    _require_a_key(window)
    i, j = _grid(T)
    near = i - j < window
    sink = j < n_sink
    exists = j <= i  # a sink is still a key: nobody reads it before it is there
    return (near | sink) & exists  # (T, T)


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
    if block < 1:
        raise ValueError(f"block must be at least 1, got block={block}")
    if global_tokens < 0:
        raise ValueError(f"global_tokens must not be negative, got global_tokens={global_tokens}")
    i, j = _grid(T)
    blocks_back = i // block - j // block  # 0: own block, 1: the one before; reach varies from block+1 to 2*block keys
    local = (blocks_back == 0) | (blocks_back == 1)
    everyone = j < global_tokens  # a global *query* needs nothing more: all keys before it are global too
    before = j <= i
    return (local | everyone) & before  # (T, T)


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
    wide = torch.promote_types(q.dtype, torch.float32)  # softmax in at least float32
    scale = 1.0 / math.sqrt(q.shape[-1])
    scores = (q @ k.transpose(-2, -1)).to(wide) * scale  # (B, H, T_q, T_k)
    blocked = ~mask
    scores = scores.masked_fill(blocked, float("-inf"))
    # A row of nothing but -inf has no softmax (-inf + inf is NaN): give it finite scores first, and zeros after.
    dead = blocked.all(dim=-1, keepdim=True)  # (T_q, 1)
    scores = scores.masked_fill(dead, 0.0)
    weights = torch.softmax(scores, dim=-1)
    weights = weights.masked_fill(dead, 0.0)
    return weights.to(q.dtype) @ v  # (B, H, T_q, d_head)


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
        if window < 1:
            raise ValueError(f"the ring needs at least one slot, got window={window}")
        self.window = window
        self.n_kv_heads = n_kv_heads
        self.d_head = d_head
        self._n_seen = 0  # tokens ever appended, not slots in use: it is the clock that chronology is read from
        self._k = torch.zeros(1, n_kv_heads, 0, d_head)  # no slot before the first token tells dtype and device
        self._v = torch.zeros(1, n_kv_heads, 0, d_head)

    def append(self, k_t: Tensor, v_t: Tensor) -> None:
        """Store one token, in place of the oldest one when the ring is full. The values are copied.

        Args:
            k_t: (1, H_kv, 1, d_head) key.
            v_t: (1, H_kv, 1, d_head) value.
        """
        if self._n_seen == 0:
            shape = (1, self.n_kv_heads, self.window, self.d_head)
            self._k = k_t.new_zeros(shape)
            self._v = v_t.new_zeros(shape)
        slot = self._n_seen % self.window
        self._k[:, :, slot : slot + 1] = k_t
        self._v[:, :, slot : slot + 1] = v_t
        self._n_seen += 1

    def window_kv(self) -> tuple[Tensor, Tensor]:
        """Copies of the cached keys and values, oldest token first.

        Returns:
            k, v: each (1, H_kv, min(n, window), d_head) after n appended tokens; length 0 for an empty ring.
        """
        kept = min(self._n_seen, self.window)
        times = range(self._n_seen - kept, self._n_seen)  # oldest first
        order = [t % self.window for t in times]
        return self._k[:, :, order], self._v[:, :, order]  # indexing with a list copies
