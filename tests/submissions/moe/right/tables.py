"""Right: (N, E) tables, kthvalue, index_put."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TopKRouter(nn.Module):
    def __init__(self, d_model: int, n_experts: int, k: int) -> None:
        super().__init__()
        if k > n_experts:
            raise ValueError(f"k={k} experts wanted, {n_experts} there")
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.k = k

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.gate(x)
        probs = logits.softmax(-1)
        floor = logits.detach().kthvalue(logits.shape[1] - self.k + 1, dim=-1, keepdim=True).values
        table = torch.where(logits >= floor, probs, 0.0)
        table = table / table.sum(-1, keepdim=True)
        indices = (logits >= floor).nonzero()[:, 1].view(-1, self.k)
        return table.take_along_dim(indices, -1), indices, probs


def load_balancing_loss(probs: Tensor, indices: Tensor) -> Tensor:
    mask = torch.zeros_like(probs).scatter_(1, indices, 1.0)
    return probs.shape[1] * (mask.float().mean(0) * probs.float().mean(0)).sum().to(probs.dtype) / indices.shape[1]


class Expert(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        h = F.linear(x, self.w1.weight, self.w1.bias)
        return F.linear(h / (1 + torch.exp(-h)), self.w2.weight, self.w2.bias)


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None) -> None:
        super().__init__()
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_experts)])
        self.shared = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_shared)])
        self.capacity_factor = capacity_factor

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        *lead, width = x.shape
        if math.prod(lead) == 0:
            raise ValueError(f"zero tokens: {lead}")
        flat = x.reshape(-1, width)
        weights, indices, probs = self.router(flat)
        combine = torch.zeros_like(probs).scatter(1, indices, weights)  # (N, E)
        chosen = torch.zeros_like(probs, dtype=torch.bool).scatter(1, indices, True)
        if self.capacity_factor is not None:
            n, e = chosen.shape
            cap = math.ceil(self.capacity_factor * n * self.router.k / e)
            chosen = chosen & (chosen.long().cumsum(0) <= cap)
        self.last_usage = chosen.sum(0).detach()
        y = flat.new_zeros(flat.shape)
        for i, expert in enumerate(self.experts):
            rows = chosen[:, i].nonzero().squeeze(1)
            if len(rows):
                y = y.index_put((rows,), combine[rows, i, None] * expert(flat[rows]), accumulate=True)
        if len(self.shared):
            y = y + torch.stack([s(flat) for s in self.shared]).sum(0)
        return y.reshape(x.shape), load_balancing_loss(probs, indices)
