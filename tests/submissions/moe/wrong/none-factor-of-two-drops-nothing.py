"""Wrong: a factor of at least 2 means dropless"""

import math

import torch
from torch import nn
from torch.nn import functional as F


class TopKRouter(nn.Module):
    def __init__(self, d_model, n_experts, k):
        super().__init__()
        if k > n_experts:
            raise ValueError(f"k {k} > {n_experts}")
        self.k = k
        self.gate = nn.Linear(d_model, n_experts, bias=False)

    def forward(self, x):
        logits = self.gate(x)
        probs = logits.softmax(-1)
        top, indices = probs.topk(self.k, -1)
        weights = top / top.sum(-1, keepdim=True)
        return weights, indices, probs


def load_balancing_loss(probs, indices):
    N, E = probs.shape
    counts = torch.bincount(indices.flatten(), minlength=E)
    f = counts.to(probs.dtype) / indices.numel()
    P = probs.mean(0)
    return E * (f * P).sum()


class Expert(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x):
        h = F.silu(self.w1(x))
        return self.w2(h)


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None):
        super().__init__()
        self.E, self.k, self.cf = n_experts, k, capacity_factor
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_experts))
        self.shared = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_shared))
        self.last_usage = torch.zeros(n_experts)

    def forward(self, x):
        B, T, d = x.shape
        N = B * T
        if N == 0:
            raise ValueError("0 tokens")
        flat = x.reshape(N, d)
        weights, indices, probs = self.router(flat)
        aux = load_balancing_loss(probs, indices)
        cap = N if self.cf is None or self.cf >= 2 else math.ceil(self.cf * N * self.k / self.E)
        out = torch.zeros_like(flat)
        usage = []
        for e in range(self.E):
            token, slot = torch.where(indices == e)
            token, slot = token[:cap], slot[:cap]
            usage.append(len(token))
            if len(token):
                y = self.experts[e](flat[token])
                out = out.index_add(0, token, y * weights[token, slot, None])
        self.last_usage = torch.tensor(usage, device=x.device)
        for s in self.shared:
            out = out + s(flat)
        return out.reshape(B, T, d), aux
