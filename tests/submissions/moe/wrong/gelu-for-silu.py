"""GELU in place of SiLU. Written as: a Python loop over tokens and their experts, with counters; slow and plain."""

import math

import torch
from torch import nn


class TopKRouter(nn.Module):
    def __init__(self, d_model, n_experts, k):
        super().__init__()
        if k > n_experts or k < 1:
            raise ValueError(f"bad k {k} for {n_experts} experts")
        self.k = k
        self.gate = nn.Linear(d_model, n_experts, bias=False)

    def forward(self, x):
        all_weights, all_indices, all_probs = [], [], []
        for row in self.gate(x):
            e = (row - row.max()).exp()
            p = e / e.sum()
            ranked = sorted(range(len(row)), key=lambda i: -row[i].item())[: self.k]
            picked = torch.tensor(ranked[::-1], device=x.device)
            all_weights.append(p[picked] / p[picked].sum())
            all_indices.append(picked)
            all_probs.append(p)
        return torch.stack(all_weights), torch.stack(all_indices), torch.stack(all_probs)


def load_balancing_loss(probs, indices):
    if probs.shape[0] == 0:
        raise ValueError(f"no tokens: {tuple(probs.shape)}")
    e = probs.shape[1]
    counts = [0] * e
    for row in indices.tolist():
        for i in row:
            counts[i] += 1
    slots = sum(counts)
    total = 0.0
    for i in range(e):
        total = total + counts[i] / slots * probs[:, i].mean()
    return total * e


class Expert(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x):
        h = self.w1(x)
        return self.w2(h * 0.5 * (1 + torch.erf(h / math.sqrt(2))))


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None):
        super().__init__()
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_experts)])
        self.shared = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_shared)])
        self.n_experts, self.k, self.capacity_factor = n_experts, k, capacity_factor
        self.last_usage = torch.zeros(n_experts)

    def forward(self, x):
        B, T, _ = x.shape
        n = B * T
        if n < 1:
            raise ValueError(f"n = {n}")
        limit = n
        if self.capacity_factor is not None:
            limit = math.ceil(self.capacity_factor * n * self.k / self.n_experts)
        weights, indices, probs = self.router(x.reshape(n, -1))
        load = [0] * self.n_experts
        rows = []
        for i in range(n):
            token = x[i // T, i % T]
            y = torch.zeros_like(token)
            for w, e in zip(weights[i], indices[i].tolist(), strict=True):
                if load[e] < limit:
                    load[e] += 1
                    y = y + w * self.experts[e](token)
            for expert in self.shared:
                y = y + expert(token)
            rows.append(y)
        self.last_usage = torch.tensor(load, dtype=torch.float32)
        return torch.stack(rows).reshape(x.shape), load_balancing_loss(probs, indices)
