"""Softmax without subtracting the maximum.

Written as: sorted dispatch: slots sorted by expert, contiguous segments, one gather and one scatter.
"""

import math

import torch
import torch.nn as nn


class TopKRouter(nn.Module):
    def __init__(self, d_model, n_experts, k):
        super().__init__()
        if k > n_experts:
            raise ValueError(f"cannot choose {k} of {n_experts}")
        self.n_experts, self.k = n_experts, k
        self.gate = nn.Linear(d_model, n_experts, bias=False)

    def forward(self, x):
        e = torch.exp(self.gate(x))
        p = e / e.sum(-1, keepdim=True)
        w, i = torch.topk(p, self.k, dim=-1, sorted=False)
        return w / w.sum(-1, keepdim=True), i, p


def load_balancing_loss(probs, indices):
    if probs.shape[0] == 0:
        raise ValueError(f"no tokens: {tuple(probs.shape)}")
    n, e = probs.shape
    hits = torch.zeros(e, device=probs.device, dtype=torch.float32)
    hits.scatter_add_(0, indices.reshape(-1), torch.ones(indices.numel(), device=probs.device))
    return (e * torch.dot(hits / indices.numel(), probs.float().sum(0) / n)).to(probs.dtype)


class Expert(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x):
        h = self.w1(x)
        return self.w2(h * torch.sigmoid(h))


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None):
        super().__init__()
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_experts)])
        self.shared = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_shared)])
        self.n_experts, self.k, self.capacity_factor = n_experts, k, capacity_factor
        self.last_usage = None

    def forward(self, x):
        shape = x.shape
        tokens = x.reshape(-1, shape[-1])
        n = tokens.size(0)
        if n == 0:
            raise ValueError(f"no tokens in a batch of shape {tuple(shape)}")
        w, idx, p = self.router(tokens)
        flat_expert = idx.reshape(-1)
        order = torch.argsort(flat_expert, stable=True)  # stable: token order survives inside an expert
        sizes = torch.bincount(flat_expert, minlength=self.n_experts)
        if self.capacity_factor is not None:
            cap = math.ceil(self.capacity_factor * n * self.k / self.n_experts)
            starts = sizes.cumsum(0) - sizes
            rank = torch.arange(order.numel(), device=x.device) - starts[flat_expert[order]]
            order = order[rank < cap]
            sizes = sizes.clamp(max=cap)
        source = order // self.k
        pieces, at = [], 0
        for e, size in enumerate(sizes.tolist()):
            if size:
                pieces.append(self.experts[e](tokens[source[at : at + size]]))
            at += size
        mixed = torch.cat(pieces) * w.reshape(-1)[order].unsqueeze(-1)
        out = torch.zeros_like(tokens).scatter_add(0, source.unsqueeze(-1).expand_as(mixed), mixed)
        for s in self.shared:
            out = out + s(tokens)
        self.last_usage = sizes
        return out.reshape(shape), load_balancing_loss(p, idx)
