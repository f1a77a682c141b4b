"""All slots are returned, written or not."""

import torch


def _distance(T):
    if T < 0:
        raise ValueError(f"negative length {T}")
    pos = torch.arange(T)
    return pos.unsqueeze(1) - pos.unsqueeze(0)


def sliding_window_mask(T, window):
    if window <= 0:
        raise ValueError(f"window {window} holds no key")
    d = _distance(T)
    return torch.logical_and(d >= 0, d <= window - 1)


def attention_sink_mask(T, window, n_sink):
    if window <= 0 or n_sink < 0:
        raise ValueError(f"window {window}, n_sink {n_sink}")
    d = _distance(T)
    column = torch.arange(T).expand(T, T)
    return torch.where(column < n_sink, d >= 0, (d >= 0) & (d < window))


def block_sparse_mask(T, block, global_tokens=0):
    if block <= 0 or global_tokens < 0:
        raise ValueError(f"block {block}, global_tokens {global_tokens}")
    d = _distance(T)
    query = torch.arange(T)[:, None]
    first_visible = (torch.div(query, block, rounding_mode="floor") - 1) * block
    column = torch.arange(T)[None, :]
    return ((column >= first_visible) | (column < global_tokens)) & (d >= 0)


def masked_attention(q, k, v, mask):
    work = torch.float64 if q.dtype == torch.float64 else torch.float32
    scores = torch.einsum("bhqd,bhkd->bhqk", q.to(work), k.to(work)) * q.shape[-1] ** -0.5
    scores = torch.where(mask, scores, torch.finfo(work).min)
    weights = scores.softmax(-1) * mask  # a row without keys: uniform weights, then zeros
    return torch.einsum("bhqk,bhkd->bhqd", weights, v.to(work)).to(q.dtype)


class RollingKVCache:
    def __init__(self, window, n_kv_heads, d_head):
        if window <= 0:
            raise ValueError(f"window {window} holds no token")
        self.window, self.heads, self.width = window, n_kv_heads, d_head
        self.buffer = None
        self.next = 0
        self.full = False

    def append(self, k_t, v_t):
        token = torch.stack((k_t, v_t))[:, :, :, 0]  # (2, 1, H_kv, d)
        if self.buffer is None:
            self.buffer = token.new_zeros(2, 1, self.heads, self.window, self.width)
        self.buffer = self.buffer.clone()
        self.buffer[:, :, :, self.next] = token
        self.next += 1
        if self.next == self.window:
            self.next, self.full = 0, True

    def window_kv(self):
        if self.buffer is None:
            empty = torch.empty(1, self.heads, 0, self.width)
            return empty, empty.clone()
        k, v = torch.roll(self.buffer, -self.next, dims=3)
        return k, v
