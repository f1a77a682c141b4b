"""Weights are logits.

Written as: full sort down the columns, stacked expert weights in batched products, scatter_add to combine.
"""

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
        self.capacity_factor, self.n_experts = capacity_factor, n_experts
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_experts))

    def _probs(self, flat):
        logits = flat @ self.gate.weight.t()
        return torch.exp(logits - torch.logsumexp(logits, dim=1, keepdim=True))

    def _places(self, n):
        return min(n, -int(-(self.capacity_factor * n) // self.n_experts))

    def route(self, flat):
        p = self._probs(flat)
        order = p.argsort(dim=0, descending=True)[: self._places(len(flat))]  # (C, E)
        order = order.sort(dim=0).values
        return (flat @ self.gate.weight.t()).gather(0, order).t().contiguous(), order.t().contiguous()

    def forward(self, x):
        b, t, d = x.shape
        flat = x.reshape(-1, d)
        w, idx = self.route(flat)
        rows = flat[idx]  # (E, C, d)
        w1 = torch.stack([e.w1.weight for e in self.experts])
        b1 = torch.stack([e.w1.bias for e in self.experts])
        w2 = torch.stack([e.w2.weight for e in self.experts])
        b2 = torch.stack([e.w2.bias for e in self.experts])
        h = nn.functional.silu(rows @ w1.mT + b1[:, None])
        out = (h @ w2.mT + b2[:, None]) * w[..., None]
        where = idx.reshape(-1, 1).expand(-1, d)
        y = torch.zeros_like(flat).scatter_add(0, where, out.reshape(-1, d))
        aux = (self._probs(flat).sum(0) / len(flat)).sum()
        return y.reshape(b, t, d), aux


def experts_per_token(token_indices, n_tokens):
    counts = torch.zeros(n_tokens, dtype=torch.long, device=token_indices.device)
    return counts.scatter_add(0, token_indices.flatten(), torch.ones_like(token_indices.flatten()))


def leaking_example(n_experts, capacity):
    n = 2 * capacity + 1
    logits = torch.zeros(n, n_experts)
    logits[1:capacity, 0] = 2.0
    logits[capacity:, 0] = -2.0
    logits[0, 0] = 1.0
    later = logits.clone()
    later[-1, 0] = 3.0
    return logits.softmax(-1), later.softmax(-1)
