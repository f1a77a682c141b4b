"""Slots are counted in the dtype of the probabilities."""

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
    f = torch.zeros(E, dtype=probs.dtype, device=probs.device).index_add(0, indices.reshape(-1), probs.new_ones(indices.numel())) / indices.numel()
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
        y = torch.zeros_like(flat)
        use = torch.zeros(self.E, dtype=torch.long, device=x.device)
        for e, expert in enumerate(self.experts):
            tok, slot = (idx == e).nonzero(as_tuple=True)
            tok, slot = tok[:cap], slot[:cap]
            use[e] = tok.numel()
            if tok.numel():
                y = y.index_add(0, tok, (expert(flat[tok]) * w[tok, slot, None]).to(y.dtype))
        self.last_usage = use
        for s in self.shared:
            y = y + s(flat)
        return y.view(B, T, d), load_balancing_loss(probs, idx)
