"""The counter stands still once the ring is full."""

import torch
from torch import Tensor


def check(**sizes):
    for name, (value, least) in sizes.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, and is {value}")


def sliding_window_mask(T: int, window: int) -> Tensor:
    check(T=(T, 0), window=(window, 1))
    mask = torch.zeros((T, T), dtype=torch.bool)
    for query in range(T):
        mask[query, max(0, query - window + 1) : query + 1] = True
    return mask


def attention_sink_mask(T: int, window: int, n_sink: int) -> Tensor:
    check(T=(T, 0), window=(window, 1), n_sink=(n_sink, 0))
    mask = sliding_window_mask(T, window)
    for query in range(T):
        mask[query, : min(n_sink, query + 1)] = True
    return mask


def block_sparse_mask(T: int, block: int, global_tokens: int = 0) -> Tensor:
    check(T=(T, 0), block=(block, 1), global_tokens=(global_tokens, 0))
    rows = []
    for query in range(T):
        start = max(0, query // block * block - block)
        rows.append([key <= query and (key >= start or key < global_tokens) for key in range(T)])
    return torch.tensor(rows, dtype=torch.bool).reshape(T, T)


def masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    dtype = q.dtype
    if dtype in (torch.float16, torch.bfloat16):
        q, k, v = q.float(), k.float(), v.float()
    root = q.shape[-1] ** 0.25
    scores = (q / root) @ (k / root).mT
    highest = scores.masked_fill(~mask, -torch.inf).amax(-1, keepdim=True).detach()
    highest = torch.nan_to_num(highest, neginf=0.0)
    powers = torch.where(mask, torch.exp(torch.where(mask, scores - highest, 0.0)), 0.0)
    total = powers.sum(-1, keepdim=True)
    return (powers / torch.where(total == 0, 1.0, total) @ v).to(dtype)


class RollingKVCache:
    def __init__(self, window: int, n_kv_heads: int, d_head: int) -> None:
        check(window=(window, 1))
        self.window = window
        self.n = 0
        self.keys = self.values = torch.zeros(1, n_kv_heads, 0, d_head)

    def append(self, k_t: Tensor, v_t: Tensor) -> None:
        if self.n < self.window:  # still growing: slot n is the next one
            before = (self.keys.to(k_t), self.values.to(v_t)) if self.n == 0 else (self.keys, self.values)
            self.keys, self.values = torch.cat((before[0], k_t), 2), torch.cat((before[1], v_t), 2)
        else:
            slot = torch.tensor([self.n % self.window], device=k_t.device)
            self.keys = self.keys.index_copy(2, slot, k_t)
            self.values = self.values.index_copy(2, slot, v_t)
        self.n = min(self.n + 1, self.window)

    def window_kv(self) -> tuple[Tensor, Tensor]:
        length = min(self.n, self.window)
        order = (torch.arange(length, device=self.keys.device) + max(0, self.n - self.window)) % self.window
        return self.keys.index_select(2, order), self.values.index_select(2, order)
