"""Style: each token collects its outputs in a list."""

import math
import torch
from torch import nn
import torch.nn.functional as F

class Expert(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)
    def forward(self, x):
        return self.w2(F.silu(self.w1(x)))

class ExpertChoiceMoE(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, capacity_factor=1.0):
        super().__init__()
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_experts))
        self.cf = capacity_factor

    def _route(self, flat):
        N, E = flat.shape[0], len(self.experts)
        probs = self.gate(flat).softmax(-1)
        C = min(N, math.ceil(self.cf * N / E))
        w, idx = probs.t().topk(C, dim=1)
        return w, idx, probs

    def route(self, flat):
        w, idx, _ = self._route(flat)
        return w, idx

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        w, idx, probs = self._route(flat)
        acc = [[] for _ in range(flat.shape[0])]
        for e, m in enumerate(self.experts):
            out = m(flat[idx[e]]) * w[e].unsqueeze(-1)
            for c, n in enumerate(idx[e].tolist() if idx.device.type != "meta" else []):
                acc[n].append(out[c])
        y = torch.stack([sum(a) if a else torch.zeros_like(flat[0]) for a in acc])
        return y.view_as(x), probs.mean(0).sum()

def experts_per_token(token_indices, n_tokens):
    return torch.bincount(token_indices.reshape(-1), minlength=n_tokens)

def leaking_example(n_experts, capacity):
    N = capacity + 1
    a = torch.full((N, n_experts), 1.0)
    a[:, 0] = torch.arange(N, 0, -1) + 1.0
    a[0, 0] = 2.5
    a[-1, 0] = 1.0
    a[1:-1, 0] = 100.0
    a = a / 1000
    a[:, 1:] = ((1 - a[:, :1]) / (n_experts - 1)) * torch.ones(1, n_experts - 1)
    b = a.clone()
    b[-1, 0] = 0.9
    b[-1, 1:] = 0.1 / (n_experts - 1)
    return a, b
