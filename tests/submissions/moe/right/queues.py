"""Right: python queues per expert, last_usage a property."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def _route(x, weight, k):
    p = F.softmax(x @ weight.T, -1)
    v, i = torch.topk(p, k, -1, sorted=False)
    return F.normalize(v, p=1, dim=-1), i, p


class TopKRouter(nn.Module):
    def __init__(self, d_model: int, n_experts: int, k: int) -> None:
        super().__init__()
        if k > n_experts:
            raise ValueError(f"k = {k}, E = {n_experts}")
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.k = k

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _route(x, self.gate.weight, self.k)


def load_balancing_loss(probs: Tensor, indices: Tensor) -> Tensor:
    f = torch.bincount(indices.flatten(), minlength=probs.size(1)).to(probs.dtype) / indices.numel()
    return torch.inner(f, probs.mean(0)) * probs.size(1)


class Expert(nn.Sequential):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)))


class _Combine(nn.Module):
    """Per-token Python loops: a queue per expert."""

    def __init__(self, experts):
        super().__init__()
        self.limit = None


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None) -> None:
        super().__init__()
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_experts)])
        self.shared = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_shared)])
        self.factor = capacity_factor
        self._usage = [0] * n_experts

    @property
    def last_usage(self) -> Tensor:
        return torch.tensor(self._usage, dtype=torch.float32)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if not x.numel():
            raise ValueError(f"x has no tokens: {tuple(x.shape)}")
        tokens = [row for seq in x.unbind(0) for row in seq.unbind(0)]
        flat = torch.stack(tokens)
        weights, indices, probs = self.router(flat)
        n, k = indices.shape
        e = len(self.experts)
        limit = n if self.factor is None else -(-self.factor * n * k // e)
        queues = [[] for _ in range(e)]
        for t, row in enumerate(indices.tolist()):
            for j, i in enumerate(row):
                if len(queues[i]) < limit:
                    queues[i].append((t, j))
        self._usage = [len(q) for q in queues]
        pieces = [[torch.zeros_like(flat[0])] for _ in range(n)]
        for expert, queue in zip(self.experts, queues):
            if queue:
                outs = expert(torch.stack([flat[t] for t, _ in queue]))
                for (t, j), out in zip(queue, outs):
                    pieces[t].append(weights[t, j] * out)
        y = torch.stack([torch.stack(p).sum(0) for p in pieces])
        for s in self.shared:
            y = y + s(flat)
        return y.view(x.size(0), x.size(1), -1), load_balancing_loss(probs, indices)
