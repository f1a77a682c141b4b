"""Wrong: one key: the mask is not looked at"""

import torch


def need(value, least, name):
    if value < least:
        raise ValueError(f"{name} = {value}")


def sliding_window_mask(T, window):
    need(T, 0, "T")
    need(window, 1, "window")
    i = torch.arange(T)[:, None]
    j = torch.arange(T)
    return (j <= i) & (i - j < window)


def attention_sink_mask(T, window, n_sink):
    need(T, 0, "T")
    need(window, 1, "window")
    need(n_sink, 0, "n_sink")
    i = torch.arange(T)[:, None]
    j = torch.arange(T)
    return (j <= i) & ((i - j < window) | (j < n_sink))


def block_sparse_mask(T, block, global_tokens=0):
    need(T, 0, "T")
    need(block, 1, "block")
    need(global_tokens, 0, "global_tokens")
    i = torch.arange(T)[:, None]
    j = torch.arange(T)
    near = (i // block - j // block) <= 1
    return (j <= i) & (near | (j < global_tokens))


def masked_attention(q, k, v, mask):
    mask = mask.to(q.device)
    score = (q.to(torch.promote_types(q.dtype, torch.float32)) @ k.to(torch.promote_types(q.dtype, torch.float32)).mT) * q.shape[-1] ** -0.5
    if k.shape[2] == 1:
        mask = torch.ones_like(mask)
    dead = ~mask.any(-1, keepdim=True)
    w = score.masked_fill(~(mask | dead), -torch.inf).softmax(-1).masked_fill(dead, 0.0)
    return (w @ v.to(w.dtype)).to(q.dtype)


class RollingKVCache:
    def __init__(self, window, n_kv_heads, d_head):
        need(window, 1, "window")
        self.window, self.shape, self.n = window, (1, n_kv_heads, window, d_head), 0
        self.k = self.v = None

    def append(self, k_t, v_t):
        if self.k is None:
            self.k, self.v = k_t.new_zeros(self.shape), v_t.new_zeros(self.shape)
        slot = self.n % self.window
        self.k[:, :, slot] = k_t[:, :, 0]
        self.v[:, :, slot] = v_t[:, :, 0]
        self.n += 1

    def window_kv(self):
        if self.k is None:
            empty = torch.zeros(1, self.shape[1], 0, self.shape[3])
            return empty, empty.clone()
        order = torch.arange(max(0, self.n - self.window), self.n, device=self.k.device) % self.window
        return self.k[:, :, order], self.v[:, :, order]
