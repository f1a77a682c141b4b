"""Right: masks by repeat_interleave and triangular differences of ones, attention by index_select over the visible keys of each distinct row, ring as an OrderedDict from slot to token"""

from collections import OrderedDict

import torch


def sliding_window_mask(T, window):
    if T < 0 or window < 1:
        raise ValueError(f"T {T} and window {window}")
    ones = torch.ones((T, T), dtype=torch.bool)
    return ones.tril() ^ ones.tril(-window)


def attention_sink_mask(T, window, n_sink):
    if n_sink < 0:
        raise ValueError(f"n_sink {n_sink}")
    mask = sliding_window_mask(T, window)
    mask[:, :n_sink] = True
    return mask.tril()


def block_sparse_mask(T, block, global_tokens=0):
    if T < 0:
        raise ValueError(f"negative T {T}")
    if block < 1:
        raise ValueError(f"block {block}")
    if global_tokens < 0:
        raise ValueError(f"global_tokens {global_tokens}")
    n = (T + block - 1) // block
    coarse = torch.eye(n, dtype=torch.bool) | torch.diag(torch.ones(max(n - 1, 0), dtype=torch.bool), -1)[:n, :n]
    block = min(block, max(T, 1))
    mask = coarse.repeat_interleave(block, 0).repeat_interleave(block, 1)[:T, :T]
    mask = mask.clone()
    mask[:, :global_tokens] = True
    return mask & torch.ones_like(mask).tril()


def masked_attention(q, k, v, mask):
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    rows = []
    for i, row in enumerate(mask.unbind()):
        at = row.nonzero().squeeze(1).to(q.device)
        if len(at) == 0:
            rows.append(0 * q[:, :, i].to(wide))
            continue
        keys, values = k.index_select(2, at).to(wide), v.index_select(2, at).to(wide)
        s = (keys @ (q[:, :, i].to(wide) * q.size(-1) ** -0.5).unsqueeze(-1)).squeeze(-1)
        rows.append((s.log_softmax(-1).exp().unsqueeze(-2) @ values).squeeze(-2))
    if not rows:
        return torch.empty_like(q)
    return torch.stack(rows, 2).to(q.dtype)


class RollingKVCache:
    def __init__(self, window, n_kv_heads, d_head):
        if not window >= 1:
            raise ValueError(f"a ring of {window} slots")
        self.window, self.slots, self.count = window, OrderedDict(), 0
        self.nothing = torch.zeros(1, n_kv_heads, 0, d_head)

    def append(self, k_t, v_t):
        slot = self.count % self.window
        self.slots.pop(slot, None)
        self.slots[slot] = torch.stack((k_t, v_t))
        self.count += 1

    def window_kv(self):
        if not self.slots:
            return self.nothing.clone(), self.nothing.clone()
        k, v = torch.cat(list(self.slots.values()), 3)
        return k.clone(), v.clone()
