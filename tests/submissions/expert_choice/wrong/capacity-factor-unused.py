"""The capacity factor is not used.

Written as: one-hot einsum dispatch and combine over an (E, C, N) table.
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
        self.factor = capacity_factor

    def scores(self, flat):
        return self.gate(flat).softmax(dim=-1)

    def route(self, flat):
        n = flat.shape[0]
        c = min(n, math.ceil(n / len(self.experts)))
        s = self.scores(flat)
        weights, tokens = torch.topk(s.transpose(0, 1), c, dim=1)
        return weights, tokens

    def forward(self, x):
        flat = x.flatten(0, 1)
        g, i = self.route(flat)
        p = nn.functional.one_hot(i, flat.shape[0]).to(x.dtype)  # (E, C, N)
        inputs = torch.einsum("ecn,nd->ecd", p, flat)
        outputs = torch.stack([f(rows) for f, rows in zip(self.experts, inputs, strict=True)])
        y = torch.einsum("ecn,ec,ecd->nd", p, g, outputs)
        aux = self.scores(flat).mean(0).sum()
        return y.view_as(x), aux


def experts_per_token(token_indices, n_tokens):
    return nn.functional.one_hot(token_indices, n_tokens).sum((0, 1))


def leaking_example(n_experts, capacity):
    n = capacity + 1
    first = torch.full((n_experts,), 1.0 / n_experts)
    keen = torch.full((n_experts,), 0.5 / (n_experts - 1))
    keen[1] = 0.5  # wants expert 1
    table = keen.expand(n, n_experts).clone()
    table[:, 1:] = table[:, 1:].clone()
    table[0] = first
    other = table.clone()
    # Rows between want expert 1 more than row 0 does; the last row decides who gets the place at expert 0.
    table[-1] = torch.tensor([0.01] + [0.99 / (n_experts - 1)] * (n_experts - 1))
    other[-1] = torch.tensor([0.99] + [0.01 / (n_experts - 1)] * (n_experts - 1))
    for t in (table, other):
        t[1:-1, 0] = 0.9
        t[1:-1, 1:] = 0.1 / (n_experts - 1)
    return table, other
