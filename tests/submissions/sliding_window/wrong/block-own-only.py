"""Each block sees itself only."""

import torch
import torch.nn.functional as F
from torch import Tensor


def _positive(name, value):
    if value < 1:
        raise ValueError(f"{name} = {value}: must be 1 or more")


def _not_negative(name, value):
    if value < 0:
        raise ValueError(f"{name} = {value}: must be 0 or more")


def sliding_window_mask(T: int, window: int) -> Tensor:
    _not_negative("T", T)
    _positive("window", window)
    return torch.ones(T, T, dtype=torch.bool).tril().triu(1 - window)


def attention_sink_mask(T: int, window: int, n_sink: int) -> Tensor:
    _not_negative("n_sink", n_sink)
    mask = sliding_window_mask(T, window)
    mask[:, :n_sink] = True
    return mask.tril()


def block_sparse_mask(T: int, block: int, global_tokens: int = 0) -> Tensor:
    _not_negative("T", T)
    _positive("block", block)
    _not_negative("global_tokens", global_tokens)
    mask = torch.zeros(T, T, dtype=torch.bool)
    for start in range(0, T, block):
        mask[start : start + block, start : start + block] = True
    mask[:, :global_tokens] = True
    return mask.tril()


def masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class RollingKVCache:
    def __init__(self, window: int, n_kv_heads: int, d_head: int):
        _positive("window", window)
        self.window, self.shape = window, (1, n_kv_heads, 0, d_head)
        self.tokens = []

    def append(self, k_t: Tensor, v_t: Tensor) -> None:
        self.tokens = [*self.tokens, (k_t.clone(), v_t.clone())][-self.window :]

    def window_kv(self) -> tuple[Tensor, Tensor]:
        if not self.tokens:
            return torch.zeros(self.shape), torch.zeros(self.shape)
        keys, values = zip(*self.tokens, strict=True)
        return torch.cat(keys, dim=2), torch.cat(values, dim=2)
