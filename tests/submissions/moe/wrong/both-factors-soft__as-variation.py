"""The squared coefficient of variation of P, plus one: E sum P_i P_i in other words.

Written as: expert outputs stored per slot and summed over the k slots, in place of an index_add.
"""

import torch
from torch import Tensor, nn


class TopKRouter(nn.Module):
    def __init__(self, d_model: int, n_experts: int, k: int) -> None:
        super().__init__()
        if n_experts < k:
            raise ValueError(f"n_experts={n_experts} < k={k}")
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.k = k

    def forward(self, x: Tensor):
        probs = nn.functional.softmax(self.gate(x).float() if x.dtype != torch.float64 else self.gate(x), -1)
        order = probs.argsort(-1, descending=True)[:, : self.k]
        w = torch.take_along_dim(probs, order, -1)
        return nn.functional.normalize(w, p=1.0, dim=-1).type_as(x), order, probs.type_as(x)


def load_balancing_loss(probs: Tensor, indices: Tensor) -> Tensor:
    if probs.shape[0] == 0:
        raise ValueError(f"no tokens: {tuple(probs.shape)}")
    E = probs.size(1)
    f = nn.functional.one_hot(indices.flatten(), E).double().mean(0)
    P = probs.double().mean(0)
    return (1 + P.var(unbiased=False) / P.mean() ** 2 + 0 * f.sum()).to(probs.dtype)


class Expert(nn.Sequential):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.act = nn.SiLU()
        self.w2 = nn.Linear(d_ff, d_model)


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None) -> None:
        super().__init__()
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_experts))
        self.shared = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_shared))
        self.capacity_factor = capacity_factor

    def forward(self, x: Tensor):
        if x.numel() == 0:
            raise ValueError(f"empty input {tuple(x.shape)}")
        flat = x.flatten(end_dim=1)
        n, k, E = len(flat), self.router.k, len(self.experts)
        weights, indices, probs = self.router(flat)
        per_slot = flat.new_zeros(n * k, flat.size(1))
        gates = weights.flatten()
        usage = torch.zeros(E, dtype=torch.int32)
        for e in indices.unique().tolist():
            (slots,) = (indices.flatten() == e).nonzero(as_tuple=True)
            if self.capacity_factor is not None:
                slots = slots[: -int(-(self.capacity_factor * n * k) // E)]
            per_slot = per_slot.index_copy(0, slots, self.experts[e](flat[slots // k]))
            usage[e] = slots.numel()
        y = (per_slot * gates[:, None]).view(n, k, -1).sum(1)
        for s in self.shared:
            y += s(flat)
        self.last_usage = usage
        return y.unflatten(0, x.shape[:2]), load_balancing_loss(probs, indices)
