"""Right: masked_select per expert and masked_scatter back; ranks by double argsort; experts run by F.linear on raw weights"""
import math
import torch
from torch import nn
import torch.nn.functional as F

class TopKRouter(nn.Module):
    def __init__(self, d_model, n_experts, k):
        super().__init__()
        if k > n_experts:
            raise ValueError(f"cannot choose {k} of {n_experts}")
        self.k = k
        self.gate = nn.Linear(d_model, n_experts, bias=False)

    def forward(self, x):
        probs = F.softmax(self.gate(x).double(), dim=1)
        rank = probs.argsort(dim=1, descending=True).argsort(dim=1)
        chosen = rank < self.k
        indices = chosen.nonzero()[:, 1].view(-1, self.k)
        top = probs.masked_select(chosen).view(-1, self.k)
        return F.normalize(top, p=1.0, dim=1).to(x.dtype), indices, probs.to(x.dtype)


def load_balancing_loss(probs, indices):
    hits = (indices[..., None] == torch.arange(probs.shape[-1], device=probs.device)).flatten(0, 1)
    f = hits.float().mean(0)
    return torch.dot(f.to(torch.float64), probs.to(torch.float64).mean(0)).mul(probs.shape[-1]).to(probs.dtype)


class Expert(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x):
        return F.linear(F.silu(F.linear(x, self.w1.weight, self.w1.bias)), *self.w2.parameters())


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None):
        super().__init__()
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList()
        self.shared = nn.ModuleList()
        self.experts.extend(Expert(d_model, d_ff) for _ in range(n_experts))
        self.shared.extend(Expert(d_model, d_ff) for _ in range(n_shared))
        self.capacity_factor, self.k = capacity_factor, k
        self.register_buffer("last_usage", torch.zeros(n_experts, dtype=torch.int32), persistent=False)

    def forward(self, x):
        flat = x.flatten(0, 1)
        N, d = flat.shape
        if N < 1:
            raise ValueError(f"shape {tuple(x.shape)} holds no token")
        weights, indices, probs = self.router(flat)
        E = len(self.experts)
        table = torch.zeros(N, E, dtype=x.dtype, device=x.device).scatter(1, indices, weights)
        used = torch.zeros(N, E, dtype=torch.bool, device=x.device).scatter(1, indices, True)
        if self.capacity_factor is not None:
            used &= used.cumsum(0) <= math.ceil(self.capacity_factor * N * self.k / E)
        y = sum([s(flat) for s in self.shared], torch.zeros_like(flat))
        for mine, gate, expert in zip(used.unbind(1), table.unbind(1), self.experts):
            if mine.any():
                wide = mine[:, None].expand(N, d)
                out = expert(flat.masked_select(wide).view(-1, d)) * gate.masked_select(mine)[:, None]
                y = y + torch.zeros_like(y).masked_scatter(wide, out)
        self.last_usage = used.sum(0, dtype=torch.int32)
        return y.unflatten(0, x.shape[:2]), load_balancing_loss(probs, indices)
