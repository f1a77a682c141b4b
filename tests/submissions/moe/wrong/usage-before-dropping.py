"""last_usage counts dropped tokens.

Written as: each slot gathers its expert's matrices and multiplies them in one einsum.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class TopKRouter(nn.Module):
    def __init__(self, d_model, n_experts, k):
        super().__init__()
        if k > n_experts:
            raise ValueError(f"k={k} > n_experts={n_experts}")
        self.k = k
        self.gate = nn.Linear(d_model, n_experts, bias=False)

    def forward(self, x):
        log_p = F.log_softmax(self.gate(x), dim=-1)
        top, indices = log_p.topk(self.k, dim=-1)
        return (top - top.logsumexp(-1, keepdim=True)).exp(), indices, log_p.exp()


def load_balancing_loss(probs, indices):
    if probs.shape[0] == 0:
        raise ValueError(f"no tokens: {tuple(probs.shape)}")
    e = probs.shape[1]
    with torch.no_grad():
        f = torch.bincount(indices.flatten(), minlength=e).to(probs) / indices.numel()
    return e * f @ probs.mean(0)


class Expert(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)))


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None):
        super().__init__()
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_experts))
        # The shared experts are run as one wide MLP, which is the same sum.
        self.shared = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_shared))
        self.capacity_factor = capacity_factor

    def _gather(self, name, which, slots):
        return torch.stack([getattr(getattr(f, name), which) for f in self.experts])[slots]

    def forward(self, x):
        B, T, d = x.shape
        N = B * T
        if N == 0:
            raise ValueError(f"no tokens (B={B}, T={T})")
        flat, k, E = x.reshape(N, d), self.router.k, len(self.experts)
        weights, indices, probs = self.router(flat)
        slots = indices.reshape(-1)  # (N k,)
        self.last_usage = torch.bincount(slots, minlength=E)
        tokens = torch.arange(N, device=x.device).repeat_interleave(k)
        gates = weights.reshape(-1)
        if self.capacity_factor is not None:
            C = math.ceil(self.capacity_factor * N * k / E)
            hot = F.one_hot(slots, E)
            place = (hot.cumsum(0) * hot).sum(-1)  # 1-based position in the expert's queue
            keep = place <= C
            slots, tokens, gates = slots[keep], tokens[keep], gates[keep]
        rows = flat[tokens]
        h = torch.einsum("sfd,sd->sf", self._gather("w1", "weight", slots), rows) + self._gather("w1", "bias", slots)
        out = torch.einsum("sdf,sf->sd", self._gather("w2", "weight", slots), F.silu(h))
        out = (out + self._gather("w2", "bias", slots)) * gates[:, None]
        y = torch.zeros_like(flat).index_add(0, tokens, out)
        if len(self.shared):
            h = F.linear(
                flat, torch.cat([f.w1.weight for f in self.shared]), torch.cat([f.w1.bias for f in self.shared])
            )
            y = y + F.linear(
                F.silu(h), torch.cat([f.w2.weight for f in self.shared], 1), sum(f.w2.bias for f in self.shared)
            )
        return y.reshape(B, T, d), load_balancing_loss(probs, indices)
