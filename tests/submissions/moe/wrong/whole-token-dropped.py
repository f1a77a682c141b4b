"""A token that loses one slot loses all.

Written as: one-hot einsum dispatch and combine with cumulative positions, in the style of Mesh-TensorFlow.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class TopKRouter(nn.Module):
    def __init__(self, d_model, n_experts, k):
        super().__init__()
        if not (0 < k <= n_experts):
            raise ValueError(f"k = {k}, experts = {n_experts}")
        self.k = k
        self.gate = nn.Linear(d_model, n_experts, bias=False)

    def forward(self, x):
        probs = F.softmax(self.gate(x), dim=-1, dtype=torch.float32)
        values, indices = probs.topk(self.k)
        values = values / values.sum(dim=-1, keepdim=True)
        return values.to(x.dtype), indices, probs.to(x.dtype)


def load_balancing_loss(probs, indices):
    if probs.shape[0] == 0:
        raise ValueError(f"no tokens: {tuple(probs.shape)}")
    E = probs.shape[-1]
    chosen = F.one_hot(indices, E).sum(1).to(probs.dtype)  # (N, E)
    density = chosen.mean(0) / indices.shape[1]
    proxy = probs.mean(0)
    return (density * proxy).mean() * E * E


class Expert(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w1, self.w2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)))


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None):
        super().__init__()
        self.E, self.capacity_factor = n_experts, capacity_factor
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_experts))
        self.shared = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_shared))
        self.register_buffer("last_usage", torch.zeros(n_experts), persistent=False)

    def forward(self, x):
        B, T, d = x.shape
        N = B * T
        if not N:
            raise ValueError(f"zero tokens: {B} x {T}")
        flat = x.reshape(N, d)
        weights, indices, probs = self.router(flat)
        mask = F.one_hot(indices, self.E)  # (N, k, E)
        taken = mask.sum(1)  # (N, E)
        C = N
        if self.capacity_factor is not None:
            C = min(N, math.ceil(self.capacity_factor * N * self.router.k / self.E))
        position = taken.cumsum(0) - taken  # (N, E): how many came before
        keep = (taken > 0) & (position < C)
        usage = keep.sum(0)
        keep = keep & (keep.sum(1, keepdim=True) == self.router.k)
        gates = torch.einsum("nke,nk->ne", mask.to(x.dtype), weights) * keep
        dispatch = F.one_hot(position.clamp(max=C - 1), C).to(x.dtype) * keep[..., None]  # (N, E, C)
        buffers = torch.einsum("nec,nd->ecd", dispatch, flat)
        results = torch.stack([f(b) for f, b in zip(self.experts, buffers, strict=True)])
        y = torch.einsum("nec,ne,ecd->nd", dispatch, gates, results)
        y = y + sum(f(flat) for f in self.shared)
        self.last_usage = usage
        return y.reshape(B, T, d), load_balancing_loss(probs, indices)
