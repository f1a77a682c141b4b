"""The weights of each token's experts are gathered; no expert is called."""

import math, torch
import torch.nn.functional as F
from torch import nn

class TopKRouter(nn.Module):
    def __init__(self, d_model, n_experts, k):
        super().__init__()
        if k > n_experts: raise ValueError(f"k = {k} > n_experts = {n_experts}")
        self.k = k
        self.gate = nn.Linear(d_model, n_experts, bias=False)
    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        w, i = probs.topk(self.k, -1)
        return w / w.sum(-1, keepdim=True), i, probs

def load_balancing_loss(probs, indices):
    N, E = probs.shape
    if N == 0: raise ValueError(f"no tokens: {tuple(probs.shape)}")
    f = torch.bincount(indices.reshape(-1), minlength=E) / indices.numel()
    return E * (f.to(probs.dtype) * probs.mean(0)).sum()

class Expert(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w1, self.w2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
    def forward(self, x):
        return self.w2(F.silu(self.w1(x)))

class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None):
        super().__init__()
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_experts))
        self.shared = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_shared))
        self.E, self.k, self.cf = n_experts, k, capacity_factor
        self.last_usage = torch.zeros(n_experts)
    def forward(self, x):
        B, T, d = x.shape
        flat = x.reshape(-1, d)
        N = flat.shape[0]
        if N == 0: raise ValueError(f"no tokens {tuple(x.shape)}")
        w, idx, probs = self.router(flat)
        cap = N if self.cf is None else math.ceil(self.cf * N * self.k / self.E)
        keep = torch.ones_like(idx, dtype=torch.bool)
        hot = F.one_hot(idx, self.E)                      # N k E
        pos = hot.sum(1).cumsum(0) - 1                    # N E
        keep = pos.gather(1, idx) < cap
        W1 = torch.stack([e.w1.weight for e in self.experts]); b1 = torch.stack([e.w1.bias for e in self.experts])
        W2 = torch.stack([e.w2.weight for e in self.experts]); b2 = torch.stack([e.w2.bias for e in self.experts])
        h = F.silu(torch.einsum("nd,nkfd->nkf", flat, W1[idx]) + b1[idx])
        o = torch.einsum("nkf,nkdf->nkd", h, W2[idx]) + b2[idx]
        y = (o * (w * keep)[..., None]).sum(1)
        self.last_usage = (hot * keep[..., None]).sum((0, 1))
        for s in self.shared:
            y = y + s(flat)
        return y.view(B, T, d), load_balancing_loss(probs, idx)
