"""Wrong: chosen in bfloat16"""

from __future__ import annotations

import math

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
    def __init__(self, d_model, d_ff, n_experts, capacity_factor=1.0):
        super().__init__()
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_experts))
        self.capacity_factor = capacity_factor

    def _probs(self, flat):
        return torch.softmax(self.gate(flat), dim=-1)

    def route(self, flat):
        N, E = flat.shape[0], len(self.experts)
        C = min(N, math.ceil(self.capacity_factor * N / E))
        p = self._probs(flat).t()
        i = p.bfloat16().topk(C, dim=1).indices
        return p.gather(1, i), i

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        weights, rows = self.route(flat)
        y = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            y = y.index_add(0, rows[e], weights[e, :, None] * expert(flat[rows[e]]))
        aux = self._probs(flat).mean(0).sum()
        return y.reshape(x.shape), aux


def experts_per_token(token_indices, n_tokens):
    return torch.bincount(token_indices.flatten(), minlength=n_tokens)


def leaking_example(n_experts, capacity):
    """Expert 0 likes rows 1 .. C - 1 most; row 0 and the last row fight for the last place."""
    N = capacity + 1
    first = torch.linspace(0.6, 0.8, N)
    first[0] = 0.5
    before = torch.empty(N, n_experts)
    before[:, 0] = first
    before[:, 1:] = ((1.0 - first) / (n_experts - 1))[:, None]
    after = before.clone()
    before[-1, 0], after[-1, 0] = 0.4, 0.9
    before[-1, 1:], after[-1, 1:] = 0.6 / (n_experts - 1), 0.1 / (n_experts - 1)
    return before, after
