"""Right: masks by cumulative counts of edges (difference arrays and cumsum), attention by sorting-free segment products in float64, ring of two stacked tensors written by torch.where over a slot one-hot"""

import torch
import torch.nn.functional as F


def _bands(T, start, stop):
    """(T, T) bool: row i is True from start[i] up to, not including, stop[i]."""
    edge = torch.zeros(T, T + 1, dtype=torch.int32)
    rows = torch.arange(T)
    edge[rows, start.clamp(0, T)] += 1
    edge[rows, stop.clamp(0, T)] -= 1
    return edge.cumsum(1)[:, :T] > 0


def _least(**limits):
    for name, (value, least) in limits.items():
        if value < least:
            raise ValueError(f"{name}={value}, at least {least} is needed")


def sliding_window_mask(T, window):
    _least(T=(T, 0), window=(window, 1))
    i = torch.arange(T)
    return _bands(T, (i + 1 - min(window, T + 1)).clamp(min=0), i + 1)


def attention_sink_mask(T, window, n_sink):
    _least(T=(T, 0), window=(window, 1), n_sink=(n_sink, 0))
    i = torch.arange(T)
    return sliding_window_mask(T, window).logical_or_(_bands(T, i * 0, torch.minimum(i + 1, torch.full_like(i, min(n_sink, T)))))


def block_sparse_mask(T, block, global_tokens=0):
    _least(T=(T, 0), block=(block, 1), global_tokens=(global_tokens, 0))
    i = torch.arange(T)
    near = _bands(T, ((i // block - 1) * block).clamp(min=0), i + 1)
    seen = _bands(T, torch.zeros_like(i), torch.minimum(i + 1, torch.full_like(i, min(global_tokens, T))))
    return near + seen


class _Soft(torch.autograd.Function):
    @staticmethod
    def forward(ctx, s, mask):
        top = torch.where(mask, s, -torch.inf).amax(-1, keepdim=True).nan_to_num(neginf=0.0) if s.shape[-1] else s.sum(-1, keepdim=True)
        e = torch.where(mask, (s - top).clamp(max=0).exp(), 0)
        total = e.sum(-1, keepdim=True)
        w = e / torch.where(total == 0, 1, total)
        ctx.save_for_backward(w)
        return w

    @staticmethod
    def backward(ctx, g):
        (w,) = ctx.saved_tensors
        return w * (g - (g * w).sum(-1, keepdim=True)), None


def masked_attention(q, k, v, mask):
    s = torch.einsum("bhqd,bhkd->bhqk", q.double(), k.double()) / q.shape[-1] ** 0.5
    return torch.einsum("bhqk,bhkd->bhqd", _Soft.apply(s, mask.to(q.device)), v.double()).to(q.dtype)


class RollingKVCache:
    def __init__(self, window, n_kv_heads, d_head):
        _least(window=(window, 1))
        self._size = window, n_kv_heads, d_head
        self._ring, self._seen = None, 0

    def append(self, k_t, v_t):
        window, heads, d = self._size
        token = torch.stack([k_t, v_t])  # (2, 1, H_kv, 1, d)
        if self._ring is None:
            self._ring = token.new_zeros(2, 1, heads, window, d)
        hot = F.one_hot(torch.tensor(self._seen % window), window).bool().to(token.device)
        self._ring = torch.where(hot[:, None], token, self._ring)
        self._seen += 1

    def window_kv(self):
        window, heads, d = self._size
        if self._ring is None:
            return torch.empty(1, heads, 0, d), torch.empty(1, heads, 0, d)
        if self._seen <= window:
            both = self._ring[:, :, :, : self._seen].clone()
        else:
            both = self._ring.roll(-(self._seen % window), dims=3)
        return both[0], both[1].clone()
