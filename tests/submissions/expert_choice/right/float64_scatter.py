"""Right: float64 router, scatter_add, tables that are no softmax."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Expert(nn.Module):
    """A two-layer MLP, w2(silu(w1(x))), as in the exercise `moe`."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., d_model) to (..., d_model)."""
        return self.w2(F.silu(self.w1(x)))


class ExpertChoiceMoE(nn.Module):
    def __init__(self, d_model: int, d_ff: int, n_experts: int, capacity_factor: float = 1.0) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_experts)])
        self.factor = capacity_factor
        self.E = n_experts

    def table(self, flat: Tensor) -> Tensor:
        z = F.linear(flat.double(), self.gate.weight.double())
        z = z - z.amax(1, keepdim=True)
        return z.exp() / z.exp().sum(1, keepdim=True)

    def route(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        n = len(flat)
        p = self.table(flat)
        c = min(int(-(-self.factor * n // self.E)), n)
        idx = [p[:, e].argsort(descending=True)[:c].sort().values for e in range(self.E)]
        val = [p[i, e] for e, i in enumerate(idx)]
        return torch.stack(val).to(flat.dtype), torch.stack(idx)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shape = x.shape
        flat = x.reshape(-1, shape[-1])
        w, idx = self.route(flat)
        aux = (self.table(flat).sum() / len(flat)).to(x.dtype)
        out = torch.cat([expert(flat[i]) * g[:, None] for expert, i, g in zip(self.experts, idx, w)])
        owner = idx.reshape(-1, 1).expand(-1, shape[-1])
        y = torch.zeros_like(flat).scatter_add(0, owner, out)
        return y.reshape(shape), aux


def experts_per_token(token_indices: Tensor, n_tokens: int) -> Tensor:
    return torch.bincount(token_indices.reshape(-1), minlength=n_tokens)


def leaking_example(n_experts: int, capacity: int) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(0)
    n = capacity + 3
    before = rng.random((n, n_experts)) * 0.01 + 1
    before[0] = 2.0
    before[1:capacity] = 3.0
    before[-1] = 1e-3
    after = before.copy()
    after[-1] = 9.0
    before, after = before / 10, after / 10
    return torch.from_numpy(before), torch.from_numpy(after)
