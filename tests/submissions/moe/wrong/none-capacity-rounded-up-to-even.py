"""Wrong: capacity rounded up to a multiple of 2."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TopKRouter(nn.Module):
    def __init__(self, d_model: int, n_experts: int, k: int) -> None:
        super().__init__()
        if n_experts < k:
            raise ValueError(f"k={k} of {n_experts}")
        self.k = k
        self.gate = nn.Linear(d_model, n_experts, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = torch.einsum("nd,ed->ne", x, self.gate.weight)
        probs = (logits - logits.logsumexp(-1, keepdim=True)).exp()
        order = torch.argsort(logits, dim=-1, descending=True)[:, : self.k]
        indices = order.sort(-1).values
        weights = torch.gather(logits, 1, indices).softmax(-1)
        return weights, indices, probs


def load_balancing_loss(probs: Tensor, indices: Tensor) -> Tensor:
    n, e = probs.shape
    hits = (indices[..., None] == torch.arange(e, device=indices.device)).sum((0, 1))
    share = hits / indices.numel()
    return e * torch.einsum("e,ne->", share.to(probs.dtype), probs) / n


class Expert(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        h = self.w1(x)
        return self.w2(h * torch.sigmoid(h))


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None) -> None:
        super().__init__()
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_experts))
        self.shared = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_shared))
        self.k, self.n_experts, self.capacity_factor = k, n_experts, capacity_factor
        self.register_buffer("last_usage", torch.zeros(n_experts), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if x.shape[0] * x.shape[1] == 0:
            raise ValueError(f"no token in {tuple(x.shape)}")
        flat = x.flatten(0, 1)
        n = flat.shape[0]
        weights, indices, probs = self.router(flat)
        aux = load_balancing_loss(probs, indices)
        chosen = F.one_hot(indices, self.n_experts)  # (N, k, E)
        per_token = chosen.sum(1)
        keep = per_token > 0
        if self.capacity_factor is not None:
            capacity = math.ceil(self.capacity_factor * n * self.k / self.n_experts)
            capacity += capacity % 2
            place = per_token.cumsum(0) - 1
            keep = keep & (place < capacity)
        kept = torch.gather(keep, 1, indices)  # (N, k)
        self.last_usage = keep.sum(0)
        token, slot = kept.nonzero(as_tuple=True)
        owner = indices[token, slot]
        w1 = torch.stack([e.w1.weight for e in self.experts])[owner]
        b1 = torch.stack([e.w1.bias for e in self.experts])[owner]
        w2 = torch.stack([e.w2.weight for e in self.experts])[owner]
        b2 = torch.stack([e.w2.bias for e in self.experts])[owner]
        h = F.silu(torch.einsum("sfd,sd->sf", w1, flat[token]) + b1)
        out = torch.einsum("sdf,sf->sd", w2, h) + b2
        out = out * weights[token, slot][:, None]
        y = torch.zeros_like(flat).index_add(0, token, out)
        for s in self.shared:
            y = y + s(flat)
        return y.unflatten(0, x.shape[:2]), aux
