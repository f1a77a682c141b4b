"""Right: mask_mod functions mapped with vmap, like flex attention; SDPA in float64 per query row; ring by torch.roll of a stacked buffer"""
import torch
import torch.nn.functional as F
from torch.func import vmap


def _build(T, mod):
    if T < 0:
        raise ValueError(f"T={T}")
    at = torch.arange(T)
    if T == 0:
        return torch.zeros((0, 0), dtype=torch.bool)
    return vmap(vmap(mod, (None, 0)), (0, None))(at, at)


def _least(name, value, least):
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def sliding_window_mask(T, window):
    _least("window", window, 1)
    return _build(T, lambda i, j: torch.logical_and(j.le(i), (i - j).lt(window)))


def attention_sink_mask(T, window, n_sink):
    _least("window", window, 1), _least("n_sink", n_sink, 0)
    return _build(T, lambda i, j: j.le(i) & ((i - j).lt(window) | j.lt(n_sink)))


def block_sparse_mask(T, block, global_tokens=0):
    _least("block", block, 1), _least("global_tokens", global_tokens, 0)
    return _build(T, lambda i, j: j.le(i) & (j.ge((i // block - 1) * block) | j.lt(global_tokens)))


def masked_attention(q, k, v, mask):
    rows = []
    for i in range(q.shape[2]):
        keys = mask[i].nonzero().flatten()
        if len(keys) == 0:
            rows.append(torch.zeros_like(q[:, :, i : i + 1]))
            continue
        take = lambda t: t.index_select(2, keys).double()
        rows.append(F.scaled_dot_product_attention(q[:, :, i : i + 1].double(), take(k), take(v)).to(q.dtype))
    return torch.cat(rows, 2) if rows else q.clone()


class RollingKVCache:
    def __init__(self, window, n_kv_heads, d_head):
        _least("window", window, 1)
        self.window = window
        self.kv = torch.empty(2, 1, n_kv_heads, 0, d_head)

    def append(self, k_t, v_t):
        new = torch.stack([k_t, v_t])
        old = self.kv.to(new) if self.kv.shape[3] == 0 else self.kv
        self.kv = torch.cat([old, new], 3)[:, :, :, -self.window :].contiguous()

    def window_kv(self):
        k, v = self.kv.clone().unbind(0)
        return k, v
