"""Probabilities over the chosen experts only.

Written as: stacked expert weights and batched matrix products over all experts. Dense and slow, but right.
"""

import math

import torch
from torch import nn


class TopKRouter(nn.Module):
    def __init__(self, d_model, n_experts, k):
        super().__init__()
        if k > n_experts:
            raise ValueError(f"k={k} exceeds n_experts={n_experts}")
        self.k = k
        self.gate = nn.Linear(d_model, n_experts, bias=False)

    def forward(self, x):
        logits = x @ self.gate.weight.T
        best = logits.topk(self.k, dim=-1).indices
        only = torch.full_like(logits, float("-inf")).scatter(-1, best, logits.gather(-1, best))
        return torch.softmax(only, -1).gather(-1, best), best, torch.softmax(only, -1)


def load_balancing_loss(probs, indices):
    if probs.shape[0] == 0:
        raise ValueError(f"no tokens: {tuple(probs.shape)}")
    n, e = probs.shape
    per_expert = torch.zeros_like(probs).scatter_(1, indices, 1.0).sum(0)
    return (per_expert * probs.sum(0)).sum() * e / (n * n * indices.shape[1])


class Expert(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.w2(nn.functional.silu(self.w1(x)))


def run_all(experts, flat):
    w1 = torch.stack([f.w1.weight for f in experts]).transpose(1, 2)  # (E, d, F)
    b1 = torch.stack([f.w1.bias for f in experts]).unsqueeze(1)
    w2 = torch.stack([f.w2.weight for f in experts]).transpose(1, 2)
    b2 = torch.stack([f.w2.bias for f in experts]).unsqueeze(1)
    x = flat.unsqueeze(0).expand(len(experts), -1, -1)
    return torch.baddbmm(b2, nn.functional.silu(torch.baddbmm(b1, x, w1)), w2)  # (E, N, d)


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None):
        super().__init__()
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_experts))
        self.shared = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_shared))
        self.factor = capacity_factor

    def forward(self, x):
        flat = x.flatten(0, 1)
        n, e = flat.shape[0], len(self.experts)
        if n == 0:
            raise ValueError(f"0 tokens in {tuple(x.shape)}")
        weights, indices, probs = self.router(flat)
        table = torch.zeros_like(probs).scatter(1, indices, weights)  # (N, E)
        chosen = torch.zeros_like(probs, dtype=torch.bool).scatter(1, indices, True)
        if self.factor is not None:
            chosen = chosen & (chosen.long().cumsum(0) <= math.ceil(self.factor * n * self.router.k / e))
        y = torch.bmm((table * chosen).unsqueeze(1), run_all(self.experts, flat).transpose(0, 1)).squeeze(1)
        if len(self.shared):
            y = y + run_all(self.shared, flat).sum(0)
        self.last_usage = chosen.sum(0).float()
        return y.view_as(x), load_balancing_loss(probs, indices)
