"""Wrong: no device."""

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
        self.capacity_factor = capacity_factor

    def route(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        weights, indices, _ = self._decide(flat)
        return weights, indices

    def _decide(self, flat):
        p = self.gate(flat).softmax(1)
        n, e = p.shape
        c = min(n, math.ceil(self.capacity_factor * n / e))
        top = p.topk(c, dim=0)
        return top.values.t().contiguous(), top.indices.t().contiguous(), p

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.contiguous().view(-1, x.size(-1))
        weights, indices, p = self._decide(flat)
        mask = torch.zeros_like(p).scatter(0, indices.t(), 1.0)
        y = sum(
            torch.zeros_like(flat).index_copy(0, indices[e], expert(flat.index_select(0, indices[e]))) * (mask * p)[:, e, None]
            for e, expert in enumerate(self.experts)
        )
        return y.view_as(x), p.mean(0).sum()


def experts_per_token(token_indices: Tensor, n_tokens: int) -> Tensor:
    return (token_indices.reshape(-1, 1) == torch.arange(n_tokens)).sum(0)


def leaking_example(n_experts: int, capacity: int) -> tuple[Tensor, Tensor]:
    """Row 0 is last in every column; row 1 ... just pushes it out of the last place."""
    n = capacity + 5
    logits = torch.zeros(n, n_experts)
    logits[:, 0] = torch.linspace(3, 2, n)
    logits[0, 0] = 2.5
    ahead = torch.arange(1, capacity)
    logits[ahead, 0] = 4.0
    logits[capacity:-1, 0] = 1.0
    other = logits.clone()
    logits[-1, 0], other[-1, 0] = -1.0, 6.0
    return logits.softmax(-1), other.softmax(-1)
