"""Wrong: aux carries no gradient in eval mode."""

from __future__ import annotations
import math
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TopKRouter(nn.Module):
    def __init__(self, d_model, n_experts, k):
        super().__init__()
        if k > n_experts:
            raise ValueError(f"k={k} > n_experts={n_experts}")
        self.k = k
        self.gate = nn.Linear(d_model, n_experts, bias=False)

    def forward(self, x):
        logits = self.gate(x)
        probs = torch.softmax(logits, dim=-1)
        chosen, indices = probs.topk(self.k, dim=-1)
        weights = chosen / chosen.sum(dim=-1, keepdim=True)
        return weights, indices, probs


def load_balancing_loss(probs, indices):
    E = probs.shape[-1]
    f = torch.bincount(indices.reshape(-1), minlength=E).to(torch.float64) / indices.numel()
    P = probs.mean(dim=0)
    return E * (f.to(probs.dtype) * P).sum()


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
        self.k = k
        self.capacity_factor = capacity_factor
        self.last_usage = torch.zeros(n_experts, dtype=torch.long)

    def forward(self, x):
        B, T, d = x.shape
        flat = x.reshape(-1, d)
        N, E = flat.shape[0], len(self.experts)
        if N == 0:
            raise ValueError(f"no tokens: {tuple(x.shape)}")
        weights, indices, probs = self.router(flat)
        aux = load_balancing_loss(probs, indices)
        if not self.training:
            aux = aux.detach()
        limit = N
        if self.capacity_factor is not None:
            limit = math.ceil(self.capacity_factor * N * self.k / E)
        y = torch.zeros_like(flat)
        usage = torch.zeros(E, dtype=torch.long, device=x.device)
        for e, expert in enumerate(self.experts):
            token, slot = torch.where(indices == e)
            token, slot = token[:limit], slot[:limit]
            usage[e] = token.numel()
            if token.numel() == 0:
                continue
            y = y.index_add(0, token, weights[token, slot].unsqueeze(-1) * expert(flat[token]))
        for s in self.shared:
            y = y + s(flat)
        self.last_usage = usage
        return y.reshape(B, T, d), aux
