"""Capacity computed from one sequence's length.

Written as: softmax over the k selected logits (Mixtral's reference code); experts ordered by number.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


class TopKRouter(nn.Module):
    def __init__(self, d_model: int, n_experts: int, k: int):
        super().__init__()
        if k > n_experts:
            raise ValueError(f"top-{k} of {n_experts} experts")
        self.k = k
        self.gate = nn.Linear(d_model, n_experts, bias=False)

    def forward(self, x):
        logits = self.gate(x)
        top, indices = torch.topk(logits, self.k, dim=1)
        indices, order = indices.sort(dim=1)
        weights = F.softmax(top.gather(1, order), dim=1, dtype=torch.float).to(x.dtype)
        return weights, indices, logits.softmax(dim=1)


def load_balancing_loss(probs, indices):
    if probs.shape[0] == 0:
        raise ValueError(f"no tokens: {tuple(probs.shape)}")
    tokens, experts = probs.shape
    f = torch.stack([(indices == e).sum() for e in range(experts)]) / (tokens * indices.shape[1])
    return experts * torch.sum(f.to(probs.dtype) * probs.mean(dim=0))


class Expert(nn.Module):
    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.w2(self.act(self.w1(x)))


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None):
        super().__init__()
        self.n_experts, self.k, self.capacity_factor = n_experts, k, capacity_factor
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_experts)])
        self.shared = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_shared)])

    def forward(self, x):
        batch, time, width = x.shape
        if batch * time == 0:
            raise ValueError(f"cannot route {batch} x {time} tokens")
        inputs = x.contiguous().view(-1, width)
        weights, selected, probs = self.router(inputs)
        results = torch.zeros_like(inputs)
        usage = []
        for i, expert in enumerate(self.experts):
            rows, nth = torch.where(selected == i)
            if self.capacity_factor is not None:
                cap = math.ceil(self.capacity_factor * time * self.k / self.n_experts)
                rows, nth = rows[:cap], nth[:cap]
            usage.append(len(rows))
            results[rows] += weights[rows, nth].unsqueeze(-1) * expert(inputs[rows])
        for expert in self.shared:
            results = results + expert(inputs)
        self.last_usage = torch.tensor(usage, device=x.device)
        return results.view(batch, time, width), load_balancing_loss(probs, selected)
