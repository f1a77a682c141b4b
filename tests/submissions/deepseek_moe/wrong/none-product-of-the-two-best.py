"""Wrong: a group is scored by the product of its two best."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SwiGLU(nn.Module):
    """w_down(silu(w_gate(x)) * w_up(x)), no bias."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w_gate = nn.Linear(d_model, d_ff, bias=False)
        self.w_up = nn.Linear(d_model, d_ff, bias=False)
        self.w_down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., d_model) to (..., d_model)."""
        return self.w_down(F.silu(self.w_gate(x)) * self.w_up(x))


class DeepSeekMoE(nn.Module):
    """Padded batches of tokens, one bmm for all experts."""

    def __init__(self, d_model: int, d_ff: int, n_experts: int, k: int, split: int = 1, n_shared: int = 1) -> None:
        super().__init__()
        width, rest = divmod(d_ff, split)
        if rest:
            raise ValueError(f"d_ff = {d_ff} is no multiple of split = {split}")
        if k > n_experts:
            raise ValueError(f"k = {k} > n_experts = {n_experts}")
        self.n, self.k = split * n_experts, split * k
        self.gate = nn.Linear(d_model, self.n, bias=False)
        self.experts = nn.ModuleList([SwiGLU(d_model, width) for _ in range(self.n)])
        self.shared = nn.ModuleList([SwiGLU(d_model, width) for _ in range(n_shared)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.reshape(-1, x.shape[-1])
        probs = self.gate(flat).softmax(-1)
        top, who = probs.topk(self.k, -1)
        gates = top / top.sum(-1, keepdim=True)
        table = torch.zeros_like(probs).scatter(1, who, gates)
        on = torch.zeros_like(probs).scatter(1, who, 1.0)
        load = on.sum(0)
        aux = self.n * torch.einsum("e,ne->", on.mean(0) / self.k, probs) / len(flat)
        most = int(load.max())
        rows = on.argsort(dim=0, descending=True, stable=True)[:most].T  # (n, most)
        used = torch.gather(on.T, 1, rows)
        inputs = flat[rows]  # (n, most, d)
        w_gate = torch.stack([e.w_gate.weight for e in self.experts])
        w_up = torch.stack([e.w_up.weight for e in self.experts])
        w_down = torch.stack([e.w_down.weight for e in self.experts])
        hidden = F.silu(inputs @ w_gate.mT) * (inputs @ w_up.mT)
        out = (hidden @ w_down.mT) * (torch.gather(table.T, 1, rows) * used)[..., None]
        y = torch.zeros_like(flat).index_add(0, rows.reshape(-1), out.flatten(0, 1))
        for s in self.shared:
            y = y + s(flat)
        return y.reshape(x.shape), aux


def moe_parameter_counts(d_model: int, d_ff: int, n_experts: int, k: int, n_shared: int = 0) -> tuple[int, int]:
    one = 3 * d_model * d_ff
    return one * (n_experts + n_shared), one * (k + n_shared)


def group_limited_topk(scores: Tensor, k: int, n_groups: int, top_groups: int) -> tuple[Tensor, Tensor]:
    n, e = scores.shape
    if e % n_groups:
        raise ValueError(f"{e} experts in {n_groups} groups")
    if k > e:
        raise ValueError(f"k = {k} of {e}")
    grouped = scores.unflatten(1, (n_groups, -1))
    group_score = grouped.topk(min(2, grouped.shape[-1]), -1).values.prod(-1)
    best = group_score.topk(top_groups, -1).indices  # (N, top_groups)
    open_ = torch.zeros_like(group_score, dtype=torch.bool).scatter(1, best, True)
    masked = grouped.masked_fill(~open_[..., None], -torch.inf).flatten(1)
    chosen, indices = masked.topk(k, -1)
    return chosen / chosen.sum(-1, keepdim=True), indices
