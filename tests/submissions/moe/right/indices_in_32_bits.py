"""The chosen experts as int32."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class TopKRouter(nn.Module):
    def __init__(self, d_model, n_experts, k):
        super().__init__()
        if k > n_experts:
            raise ValueError(f"k = {k} > n_experts = {n_experts}")
        self.k, self.E = k, n_experts
        self.gate = nn.Linear(d_model, n_experts, bias=False)

    def forward(self, x):
        logits = self.gate(x)
        probs = logits.softmax(-1)
        top, indices = probs.topk(self.k, dim=-1)
        weights = top / top.sum(-1, keepdim=True)
        return weights, indices.int(), probs


def load_balancing_loss(probs, indices):
    E = probs.shape[1]
    f = torch.bincount(indices.flatten(), minlength=E).double() / indices.numel()
    return E * (f.to(probs.dtype) * probs.mean(0)).sum()


class Expert(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)))


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None):
        super().__init__()
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_experts)])
        self.shared = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_shared)])
        self.k, self.E, self.capacity_factor = k, n_experts, capacity_factor
        self.last_usage = torch.zeros(n_experts)

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        N = flat.shape[0]
        if N == 0:
            raise ValueError(f"no tokens: {tuple(x.shape)}")
        weights, indices, probs = self.router(flat)
        aux = load_balancing_loss(probs, indices)
        chosen = F.one_hot(indices.long(), self.E).sum(1)  # (N, E)
        capacity = N if self.capacity_factor is None else math.ceil(self.capacity_factor * N * self.k / self.E)
        place = chosen.cumsum(0) * chosen
        kept = (place > 0) & (place <= capacity)
        y = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            rows = kept[:, e].nonzero().flatten()
            if rows.numel() == 0:
                continue
            w = (weights[rows] * (indices[rows] == e)).sum(-1, keepdim=True)
            y = y.index_add(0, rows, expert(flat[rows]) * w)
        for shared in self.shared:
            y = y + shared(flat)
        self.last_usage = kept.sum(0)
        return y.reshape(x.shape), aux
