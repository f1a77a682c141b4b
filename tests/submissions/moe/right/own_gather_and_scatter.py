"""Right: own autograd.Function for dispatch and combine; ranks by a cumsum over one-hot slots; top k by repeated argmax"""

import math

import torch
from torch import nn


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, rows):
        ctx.save_for_backward(rows)
        ctx.n = x.shape[0]
        return x[rows]

    @staticmethod
    def backward(ctx, g):
        (rows,) = ctx.saved_tensors
        return torch.zeros(ctx.n, g.shape[1], dtype=g.dtype, device=g.device).index_add_(0, rows, g), None


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, rows, n):
        ctx.save_for_backward(rows)
        return torch.zeros(n, y.shape[1], dtype=y.dtype, device=y.device).index_add_(0, rows, y)

    @staticmethod
    def backward(ctx, g):
        return g[ctx.saved_tensors[0]], None, None


class TopKRouter(nn.Module):
    def __init__(self, d_model, n_experts, k):
        super().__init__()
        if n_experts < k:
            raise ValueError(f"n_experts={n_experts} < k={k}")
        self.k = k
        self.gate = nn.Linear(d_model, n_experts, bias=False)

    def forward(self, x):
        z = self.gate(x)
        z = z - z.detach().amax(-1, keepdim=True)
        e = z.exp()
        probs = e / e.sum(-1, keepdim=True)
        left, chosen = z.detach().clone(), []
        for _ in range(self.k):
            i = left.argmax(-1, keepdim=True)
            chosen.append(i)
            left.scatter_(-1, i, -torch.inf)
        indices = torch.cat(chosen[::-1], -1)  # the least of the chosen first
        g = e.gather(-1, indices)
        return g / g.sum(-1, keepdim=True), indices, probs


def load_balancing_loss(probs, indices):
    N, E = probs.shape
    counts = torch.zeros(E, dtype=torch.float64, device=probs.device)
    counts.scatter_add_(0, indices.reshape(-1), torch.ones(indices.numel(), dtype=torch.float64, device=probs.device))
    share = counts / counts.sum()
    return ((share * E) @ probs.double().mean(0)).to(probs.dtype)


class Expert(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w1, self.w2, self.act = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model), nn.SiLU(inplace=True)

    def forward(self, x):
        return self.w2(self.act(self.w1(x)))


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None):
        super().__init__()
        self.n_experts, self.k, self.capacity_factor = n_experts, k, capacity_factor
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList()
        self.shared = nn.ModuleList()
        for i in range(n_experts + n_shared):
            (self.experts if i < n_experts else self.shared).append(Expert(d_model, d_ff))
        self.register_buffer("last_usage", torch.zeros(n_experts), persistent=False)

    def forward(self, x):
        B, T, d = x.shape
        N, E, k = B * T, self.n_experts, self.k
        if N < 1:
            raise ValueError(f"{N} tokens")
        flat = x.contiguous().view(N, d)
        weights, indices, probs = self.router(flat)
        chosen = torch.zeros(N, E, dtype=torch.long, device=x.device).scatter_(1, indices, 1)
        rank = chosen.cumsum(0) - chosen
        limit = N if self.capacity_factor is None else math.ceil(self.capacity_factor * N * k / E)
        kept = (rank.gather(1, indices) < limit) & True
        dense = torch.zeros(N, E, dtype=x.dtype, device=x.device).scatter(1, indices, weights * kept)
        took = torch.zeros(N, E, dtype=torch.bool, device=x.device).scatter_(1, indices, kept)
        self.last_usage = took.sum(0).float()
        expert, token = took.T.nonzero(as_tuple=True)
        rows = Gather.apply(flat, token)
        pieces = rows.split(took.sum(0).tolist())
        ys = [self.experts[e](p) for e, p in enumerate(pieces) if p.shape[0]]
        out = torch.zeros_like(flat)
        if ys:
            out = Scatter.apply(torch.cat(ys) * dense[token, expert][:, None], token, N)
        for s in self.shared:
            out = out + s(flat)
        return out.view(B, T, d), load_balancing_loss(probs, indices)
