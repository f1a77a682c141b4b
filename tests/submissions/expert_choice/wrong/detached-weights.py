"""No gradient through the weights.

Written as: python loops over experts and places.
"""

import math

import torch
from torch import nn


class Expert(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.w2(nn.functional.silu(self.w1(x)))


class ExpertChoiceMoE(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, capacity_factor=1.0):
        super().__init__()
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_experts)])
        self.n_experts = n_experts
        self.capacity_factor = capacity_factor

    def route(self, flat):
        n = flat.shape[0]
        places = min(n, math.ceil(self.capacity_factor * n / self.n_experts))
        p = nn.functional.softmax(self.gate(flat), dim=1)
        weights, tokens = [], []
        for e in range(self.n_experts):
            ranked = sorted(range(n), key=lambda i, e=e: p[i, e].item())[-places:]
            tokens.append(torch.tensor(ranked, device=flat.device))
            weights.append(p[tokens[-1], e].detach())
        return torch.stack(weights), torch.stack(tokens)

    def forward(self, x):
        B, T, d = x.shape
        flat = x.reshape(B * T, d)
        weights, tokens = self.route(flat)
        rows = [torch.zeros(d, dtype=x.dtype, device=x.device) for _ in range(B * T)]
        for e, expert in enumerate(self.experts):
            for c, i in enumerate(tokens[e].tolist()):
                rows[i] = rows[i] + weights[e, c] * expert(flat[i])
        aux = nn.functional.softmax(self.gate(flat), dim=1).sum() / (B * T)
        return torch.stack(rows).reshape(B, T, d), aux


def experts_per_token(token_indices, n_tokens):
    counts = [0] * n_tokens
    for row in token_indices.tolist():
        for i in row:
            counts[i] += 1
    return torch.tensor(counts)


def leaking_example(n_experts, capacity):
    before = torch.full((capacity + 1, n_experts), 1 / n_experts)
    before[0, 0] += 0.1 / n_experts
    before[1:-1, 0] += 0.2 / n_experts
    after = before.clone()
    after[-1, 0] += 0.3 / n_experts
    return before, after
