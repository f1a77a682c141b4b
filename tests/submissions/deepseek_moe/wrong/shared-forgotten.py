"""Shared experts are built and never used.

Written as: dense one-hot combine over all experts; closed groups filled with 0, as in the published code.
"""

import torch
import torch.nn.functional as F
from torch import nn


class SwiGLU(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w_gate = nn.Linear(d_model, d_ff, bias=False)
        self.w_up = nn.Linear(d_model, d_ff, bias=False)
        self.w_down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        return self.w_down(F.silu(self.w_gate(x)) * self.w_up(x))


class DeepSeekMoE(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k, split=1, n_shared=1):
        super().__init__()
        if d_ff % split:
            raise ValueError(f"{d_ff} is not a multiple of {split}")
        if k > n_experts:
            raise ValueError(f"k={k} > {n_experts}")
        self.n, self.k = n_experts * split, k * split
        self.gate = nn.Linear(d_model, self.n, bias=False)
        self.experts = nn.ModuleList([SwiGLU(d_model, d_ff // split) for _ in range(self.n)])
        self.shared = nn.ModuleList([SwiGLU(d_model, d_ff // split) for _ in range(n_shared)])

    def forward(self, x):
        B, T, d = x.shape
        flat = x.reshape(B * T, d)
        probs = F.softmax(self.gate(flat), dim=1, dtype=torch.float32)
        chosen = torch.zeros_like(probs).scatter(1, probs.topk(self.k, dim=1).indices, 1.0)
        gates = probs * chosen
        gates = (gates / gates.sum(1, keepdim=True)).to(x.dtype)
        y = sum(gates[:, e : e + 1] * f(flat) for e, f in enumerate(self.experts))
        aux = self.n * (chosen.mean(0) / self.k * probs.mean(0)).sum()
        return y.view(B, T, d), aux.to(x.dtype)


def moe_parameter_counts(d_model, d_ff, n_experts, k, n_shared=0):
    def size(experts):
        return sum(d_model * d_ff for _ in range(3)) * experts

    return size(n_experts) + size(n_shared), size(k) + size(n_shared)


def group_limited_topk(scores, k, n_groups, top_groups):
    E = scores.size(-1)
    if E % n_groups != 0 or k > E:
        raise ValueError(f"E={E}, n_groups={n_groups}, k={k}")
    best = scores.unflatten(-1, (n_groups, -1)).topk(2, dim=-1)[0].sum(dim=-1)
    keep = F.one_hot(best.topk(top_groups, dim=-1)[1], n_groups).sum(dim=-2)
    masked = scores.masked_fill(keep.repeat_interleave(E // n_groups, dim=-1) == 0, 0.0)
    weights, indices = masked.topk(k, dim=-1, sorted=False)
    return weights / weights.sum(dim=-1, keepdim=True), indices
