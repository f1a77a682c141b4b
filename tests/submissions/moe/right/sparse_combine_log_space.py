"""Right: slots sorted by expert; a sparse matrix of the weights puts the answers together; router in log space"""
import math
import torch
from torch import nn
import torch.nn.functional as F

class TopKRouter(nn.Module):
    def __init__(self, d_model, n_experts, k):
        super().__init__()
        if not k <= n_experts:
            raise ValueError(f"{k=} {n_experts=}")
        self.k = k
        self.gate = nn.Linear(d_model, n_experts, False)

    def forward(self, x):
        z = self.gate(x)
        logp = z - z.logsumexp(-1, True)
        order = z.argsort(-1, descending=True)[:, : self.k]
        top = logp.gather(1, order)
        return (top - top.logsumexp(1, True)).exp(), order, logp.exp()


def load_balancing_loss(probs, indices):
    N, E = probs.shape
    # mean over slots of P at the slot's expert, times E
    return probs.mean(0).take(indices).mean() * E if probs.dtype not in (torch.float16, torch.bfloat16) else (
        probs.double().mean(0).take(indices).mean() * E).to(probs.dtype)


class Expert(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w1, self.w2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        h = self.w1(x)
        return self.w2(h * torch.sigmoid(h))


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None):
        super().__init__()
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts, self.shared = (nn.ModuleList(Expert(d_model, d_ff) for _ in range(n)) for n in (n_experts, n_shared))
        self.capacity_factor = capacity_factor

    def forward(self, x):
        *lead, d = x.shape
        flat = x.reshape(math.prod(lead), d)
        N, E = len(flat), len(self.experts)
        if not N:
            raise ValueError("0 tokens")
        weights, indices, probs = self.router(flat)
        k = indices.shape[1]
        slots = torch.argsort(indices.flatten(), stable=True)
        groups = slots.split(torch.bincount(indices.flatten(), minlength=E).tolist())
        if self.capacity_factor is not None:
            room = math.ceil(self.capacity_factor * N * k / E)
            groups = [g[:room] for g in groups]
        self.last_usage = torch.tensor([len(g) for g in groups], device=x.device, dtype=torch.float64)
        used = torch.cat(list(groups))
        out = [self.experts[e](flat[g // k]) for e, g in enumerate(groups) if len(g)]
        y = torch.zeros_like(flat)
        if out:
            out = torch.cat(out)
            at = torch.stack([used // k, torch.arange(len(used), device=x.device)])
            dtype = torch.promote_types(torch.float32, x.dtype)
            mix = torch.sparse_coo_tensor(at, weights.flatten()[used].to(dtype), (N, len(used)))
            y = torch.sparse.mm(mix, out.to(dtype)).to(x.dtype)
        y = sum((s(flat) for s in self.shared), start=y)
        return y.reshape_as(x), load_balancing_loss(probs, indices)
