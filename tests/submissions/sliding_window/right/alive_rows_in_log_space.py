"""Right: masks by as_strided windows of one padded row and by Kronecker products; attention in log space with logaddexp; ring as a list of slots"""
import torch
from torch import Tensor


def _positive(**kw):
    bad = {n: v for n, v in kw.items() if v < (0 if n in ("T", "n_sink", "global_tokens") else 1)}
    if bad:
        raise ValueError(f"out of range: {bad}")


def sliding_window_mask(T: int, window: int) -> Tensor:
    _positive(T=T, window=window)
    w = min(window, max(T, 1))
    row = torch.zeros(2 * T + 1, dtype=torch.bool)
    row[max(0, T - w + 1) : T + 1] = True if T else False
    # row i is the row shifted by i
    return torch.stack(
        [row[T - i : 2 * T - i] for i in range(T)]
    ) if T else torch.zeros(0, 0, dtype=torch.bool)


def attention_sink_mask(T: int, window: int, n_sink: int) -> Tensor:
    _positive(T=T, window=window, n_sink=n_sink)
    mask = sliding_window_mask(T, window)
    mask[:, :n_sink] = True
    return mask.tril()


def block_sparse_mask(T: int, block: int, global_tokens: int = 0) -> Tensor:
    _positive(T=T, block=block, global_tokens=global_tokens)
    n = -(-T // block)
    band = torch.eye(n) + torch.diag_embed(torch.ones(max(n - 1, 0)), -1)[:n, :n] if n else torch.zeros(0, 0)
    full = torch.kron(band, torch.ones(block, block))[:T, :T] if n else torch.zeros(0, 0)
    full[:, :global_tokens] = 1
    return full.tril().bool()


def masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    wide = torch.promote_types(q.dtype, torch.float32)
    s = torch.einsum("bhid,bhjd->bhij", q.to(wide), k.to(wide)) * q.shape[-1] ** -0.5
    alive = mask.any(1)
    out = q.new_zeros(q.shape[:3] + v.shape[3:], dtype=wide)
    rows = alive.nonzero()[:, 0]
    picked = torch.where(mask[rows], s[:, :, rows], -torch.inf)
    p = (picked - picked.logsumexp(-1, keepdim=True)).exp()
    return out.index_copy(2, rows, p @ v.to(wide)).to(q.dtype)


class RollingKVCache:
    def __init__(self, window: int, n_kv_heads: int, d_head: int) -> None:
        _positive(window=window)
        self.slots: list = [None] * window
        self.t = 0
        self.empty = (1, n_kv_heads, 0, d_head)

    def append(self, k_t: Tensor, v_t: Tensor) -> None:
        self.slots[self.t % len(self.slots)] = torch.stack((k_t, v_t)) if k_t.dtype == v_t.dtype else (k_t.clone(), v_t.clone())
        self.t += 1

    def window_kv(self):
        W = len(self.slots)
        start = self.t % W if self.t >= W else 0
        held = [s for s in self.slots[start:] + self.slots[:start] if s is not None]
        if not held:
            return torch.empty(self.empty), torch.empty(self.empty)
        return torch.cat([s[0] for s in held], 2), torch.cat([s[1] for s in held], 2)
