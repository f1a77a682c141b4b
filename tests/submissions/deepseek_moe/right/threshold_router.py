"""Right: subclassed gate, threshold, rank from below."""

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


class _Router(nn.Linear):
    def __init__(self, d, n, k):
        super().__init__(d, n, bias=False)
        self.k = k

    def forward(self, x):
        p = super().forward(x).softmax(-1)
        threshold = p.detach().sort(-1).values[:, -self.k, None]
        on = p >= threshold
        return p, on, (p * on) / (p * on).sum(-1, keepdim=True)


class DeepSeekMoE(nn.Module):
    def __init__(self, d_model: int, d_ff: int, n_experts: int, k: int, split: int = 1, n_shared: int = 1) -> None:
        super().__init__()
        if d_ff % split:
            raise ValueError(f"split {split} does not divide d_ff {d_ff}")
        if n_experts < k:
            raise ValueError(f"only {n_experts} experts for k {k}")
        self.gate = _Router(d_model, n_experts * split, k * split)
        self.experts = nn.ModuleList()
        self.shared = nn.ModuleList()
        for _ in range(n_experts * split):
            self.experts.append(SwiGLU(d_model, d_ff // split))
        for _ in range(n_shared):
            self.shared.append(SwiGLU(d_model, d_ff // split))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = x.flatten(end_dim=-2)
        p, on, g = self.gate(tokens)
        f = on.sum(0) / on.sum()
        aux = (f.to(p.dtype) @ p.mean(0)) * p.shape[1]
        parts = [torch.zeros_like(tokens)]
        parts += [s(tokens) for s in self.shared]
        for e, expert in enumerate(self.experts):
            idx = on[:, e].nonzero(as_tuple=True)
            if idx[0].shape[0]:
                parts.append(torch.zeros_like(tokens).index_put(idx, expert(tokens[idx]) * g[idx][:, e : e + 1]))
        return torch.stack(parts).sum(0).reshape(x.shape), aux


def moe_parameter_counts(d_model: int, d_ff: int, n_experts: int, k: int, n_shared: int = 0) -> tuple[int, int]:
    counts = [sum(3 * d_model * d_ff for _ in range(many)) for many in (n_experts, k, n_shared)]
    return counts[0] + counts[2], counts[1] + counts[2]


def group_limited_topk(scores: Tensor, k: int, n_groups: int, top_groups: int) -> tuple[Tensor, Tensor]:
    e = scores.shape[1]
    if e % n_groups:
        raise ValueError(f"groups: {e} / {n_groups}")
    if k > e:
        raise ValueError(f"{k=} > {e=}")
    size = e // n_groups
    pieces = scores.split(size, dim=1)
    ranks = torch.stack([p.sort(1, descending=True).values[:, :2].sum(1) for p in pieces], 1)
    closed = ranks.argsort(1).argsort(1) < n_groups - top_groups  # rank from below
    closed = closed.repeat_interleave(size, 1)
    key = torch.where(closed, -1.0, scores.detach().double())
    indices = key.argsort(1, descending=True)[:, :k]
    picked = torch.take_along_dim(scores, indices, 1)
    return picked / picked.sum(1, keepdim=True), indices
