"""Wrong: k and v share ... v stored from k when heads are 1"""

import math
import torch


def _need(ok, text, value):
    if not ok:
        raise ValueError(f"{text}: {value}")


def _ago(T):
    i = torch.arange(T)
    return i.unsqueeze(1) - i.unsqueeze(0)


def sliding_window_mask(T, window):
    _need(T >= 0, "T", T)
    _need(window >= 1, "window", window)
    return torch.ones(T, T, dtype=torch.bool).tril().triu(1 - window)


def attention_sink_mask(T, window, n_sink):
    _need(n_sink >= 0, "n_sink", n_sink)
    mask = sliding_window_mask(T, window)
    mask[:, :n_sink] = True
    return mask.tril()


def block_sparse_mask(T, block, global_tokens=0):
    _need(T >= 0, "T", T)
    _need(block >= 1, "block", block)
    _need(global_tokens >= 0, "global_tokens", global_tokens)
    b = torch.arange(T).div(block, rounding_mode="floor")
    near = (b.unsqueeze(1) - b.unsqueeze(0)) <= 1
    near = near | (torch.arange(T) < global_tokens)
    return near & (_ago(T) >= 0)


def masked_attention(q, k, v, mask):
    wide = q.dtype if q.dtype == torch.float64 else torch.float32
    s = torch.matmul(q.to(wide), k.to(wide).mT) / math.sqrt(q.shape[-1])
    s = torch.where(mask, s, torch.finfo(wide).min)
    w = torch.exp(s - s.amax(-1, keepdim=True).detach()) * mask
    z = w.sum(-1, keepdim=True)
    return (torch.matmul(w, v.to(wide)) / torch.where(z == 0, torch.ones_like(z), z)).to(q.dtype)


class RollingKVCache:
    def __init__(self, window, n_kv_heads, d_head):
        _need(window >= 1, "window", window)
        self.window, self.n = window, 0
        self.shape = (2, n_kv_heads, window, d_head)
        self.ring = torch.zeros(self.shape)

    def append(self, k_t, v_t):
        if self.n == 0:
            self.ring = torch.zeros(self.shape, dtype=k_t.dtype, device=k_t.device)
        with torch.no_grad():
            self.ring[:, :, self.n % self.window] = torch.stack([k_t[0, :, 0], v_t[0, :, 0] if v_t.shape[1] > 1 else k_t[0, :, 0]])
        self.n += 1

    def window_kv(self):
        held = min(self.n, self.window)
        order = self.ring.roll(-self.n, 2) if self.n > self.window else self.ring[:, :, :held]
        k, v = order.unsqueeze(1).clone().unbind(0)
        k, v = k.clone(), v.clone()
        return k, v
