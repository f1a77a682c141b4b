"""Wrong: probabilities are divided by the largest of the column (leak by normalisation)."""

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
    """Dispatch and combine as one-hot tensors, experts batched."""

    def __init__(self, d_model: int, d_ff: int, n_experts: int, capacity_factor: float = 1.0) -> None:
        super().__init__()
        self.capacity_factor = capacity_factor
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_experts))

    def _capacity(self, n: int) -> int:
        return min(n, math.ceil(self.capacity_factor * n / len(self.experts)))

    def _probs(self, flat):
        return torch.softmax(flat @ self.gate.weight.mT, dim=-1)

    def route(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        probs = self._probs(flat)
        probs = probs / probs.detach().amax(0, keepdim=True)
        return torch.topk(probs.T, self._capacity(flat.shape[0]), dim=-1, sorted=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.flatten(0, 1)
        weights, taken = self.route(flat)
        dispatch = F.one_hot(taken, flat.shape[0]).to(x.dtype)  # (E, C, N)
        rows = torch.einsum("ecn,nd->ecd", dispatch, flat)
        w1 = torch.stack([e.w1.weight for e in self.experts])
        b1 = torch.stack([e.w1.bias for e in self.experts])[:, None]
        w2 = torch.stack([e.w2.weight for e in self.experts])
        b2 = torch.stack([e.w2.bias for e in self.experts])[:, None]
        out = torch.baddbmm(b2, F.silu(torch.baddbmm(b1, rows, w1.mT)), w2.mT)
        y = torch.einsum("ecn,ec,ecd->nd", dispatch, weights, out)
        aux = self._probs(flat).mean(0).sum()
        return y.unflatten(0, x.shape[:2]), aux


def experts_per_token(token_indices: Tensor, n_tokens: int) -> Tensor:
    return F.one_hot(token_indices, n_tokens).sum((0, 1))


def leaking_example(n_experts: int, capacity: int) -> tuple[Tensor, Tensor]:
    n = capacity + 1
    steps = torch.arange(n, dtype=torch.float64)
    col = torch.where(steps == 0, 0.5, 0.9 - 0.01 * steps / n)
    before = torch.empty(n, n_experts, dtype=torch.float64)
    before[:, 0] = col
    before[:, 1:] = ((1 - col) / (n_experts - 1))[:, None]
    before[-1] = torch.tensor([0.1] + [0.9 / (n_experts - 1)] * (n_experts - 1))
    after = before.clone()
    after[-1] = torch.tensor([0.95] + [0.05 / (n_experts - 1)] * (n_experts - 1))
    return before, after
