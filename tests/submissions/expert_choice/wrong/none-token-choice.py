"""Experts prefer tokens whose favourite they are.

Written as: a dense (N, E) gate table with zeros where an expert did not choose, and an (E, N, d) table of outputs.
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
        self.experts = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_experts))
        self.capacity_factor = float(capacity_factor)

    def probabilities(self, flat):
        return torch.softmax(self.gate(flat), -1, dtype=torch.float32).to(flat.dtype)

    def route(self, flat):
        n, e = flat.size(0), len(self.experts)
        c = min(math.ceil(n * self.capacity_factor / e), n)
        p = self.probabilities(flat)
        mine = torch.where(p == p.amax(1, keepdim=True), p, p - 1)  # a token's favourite comes first
        tokens = torch.stack([mine[:, i].topk(c, sorted=False).indices for i in range(e)])
        weights = torch.stack([p[tokens[i], i] for i in range(e)])
        return weights, tokens

    def forward(self, x):
        flat = x.reshape(-1, x.size(-1))
        weights, tokens = self.route(flat)
        table = flat.new_zeros(len(self.experts), flat.size(0)).scatter(1, tokens, weights)
        every = torch.stack(
            [torch.zeros_like(flat).index_copy(0, i, f(flat[i])) for i, f in zip(tokens, self.experts, strict=True)]
        )  # (E, N, d)
        y = (table.unsqueeze(-1) * every).sum(0)
        return y.reshape(x.shape), self.probabilities(flat).mean(dim=0).sum()


def experts_per_token(token_indices, n_tokens):
    return (token_indices.flatten()[:, None] == torch.arange(n_tokens, device=token_indices.device)).sum(0)


def leaking_example(n_experts, capacity):
    generator = torch.Generator().manual_seed(0)
    while True:
        before = torch.softmax(torch.randn(capacity + 2, n_experts, generator=generator), -1)
        after = before.clone()
        after[-1] = torch.softmax(3 * torch.randn(n_experts, generator=generator), -1)
        took = [(p.topk(capacity, dim=0).indices == 0).any(0) for p in (before, after)]
        if not torch.equal(*took):
            return before, after
