"""Scores as they come."""

import math

import numpy as np
import torch


def sliding_window_mask(T: int, window: int) -> torch.Tensor:
    if T < 0 or window < 1:
        raise ValueError(f"bad sizes: T={T}, window={window}")
    return torch.from_numpy(np.tri(T, dtype=bool) & ~np.tri(T, k=-window, dtype=bool))


def attention_sink_mask(T: int, window: int, n_sink: int) -> torch.Tensor:
    if n_sink < 0:
        raise ValueError(f"bad sizes: n_sink={n_sink}")
    base = sliding_window_mask(T, window).numpy()
    sinks = np.tri(T, dtype=bool) & (np.arange(T) < n_sink)
    return torch.from_numpy(base | sinks)


def block_sparse_mask(T: int, block: int, global_tokens: int = 0) -> torch.Tensor:
    if T < 0 or block < 1 or global_tokens < 0:
        raise ValueError(f"bad sizes: T={T}, block={block}, global_tokens={global_tokens}")
    n_blocks = math.ceil(T / block)
    coarse = np.tri(n_blocks, dtype=bool) & ~np.tri(n_blocks, k=-2, dtype=bool)
    fine = np.kron(coarse, np.ones((block, block), dtype=bool))[:T, :T].astype(bool)
    return torch.from_numpy((fine | (np.arange(T) < global_tokens)) & np.tri(T, dtype=bool))


def masked_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    alive = mask.any(dim=-1, keepdim=True)
    usable = mask | ~alive  # a dead row may look at everything, and is set to zero afterwards
    bias = torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill(~usable, float("-inf"))
    scores = torch.matmul(q, k.transpose(2, 3)) + bias
    probabilities = torch.softmax(scores.float() if q.dtype != torch.float64 else scores, dim=3).to(q.dtype)
    return torch.matmul(probabilities, v) * alive


class RollingKVCache:
    def __init__(self, window: int, n_kv_heads: int, d_head: int) -> None:
        if window < 1:
            raise ValueError(f"bad sizes: window={window}")
        self.window = window
        self.kv = (torch.zeros(1, n_kv_heads, 0, d_head), torch.zeros(1, n_kv_heads, 0, d_head))

    def append(self, k_t: torch.Tensor, v_t: torch.Tensor) -> None:
        kept = (old if old.shape[2] else old.to(new) for old, new in zip(self.kv, (k_t, v_t), strict=True))
        joined = (torch.cat((old, new), dim=2) for old, new in zip(kept, (k_t, v_t), strict=True))
        self.kv = tuple(t[:, :, -self.window :].clone() for t in joined)

    def window_kv(self) -> tuple[torch.Tensor, torch.Tensor]:
        k, v = self.kv
        return k.clone(), v.clone()
