"""Shared experts keep the full width.

Written as: softmax over the chosen logits, stacked weights in einsums; shared experts as one wide SwiGLU.
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
        self.shared = nn.ModuleList([SwiGLU(d_model, d_ff) for _ in range(n_shared)])

    def forward(self, x):
        flat = x.flatten(0, 1)
        logits = self.gate(flat)
        top, idx = logits.topk(self.k, dim=-1)
        table = torch.zeros_like(logits).scatter(1, idx, top.softmax(-1))
        wg, wu, wd = (torch.stack([getattr(f, n).weight for f in self.experts]) for n in ("w_gate", "w_up", "w_down"))
        h = F.silu(torch.einsum("nd,efd->nef", flat, wg)) * torch.einsum("nd,efd->nef", flat, wu)
        y = torch.einsum("ne,nef,edf->nd", table, h, wd)
        if len(self.shared):
            g = torch.cat([f.w_gate.weight for f in self.shared])
            u = torch.cat([f.w_up.weight for f in self.shared])
            w = torch.cat([f.w_down.weight for f in self.shared], dim=1)
            y = y + F.linear(F.silu(F.linear(flat, g)) * F.linear(flat, u), w)
        used = F.one_hot(idx, self.n).to(logits.dtype).mean((0, 1))
        return y.view_as(x), self.n * used @ logits.softmax(-1).mean(0)


def moe_parameter_counts(d_model, d_ff, n_experts, k, n_shared=0):
    gate, up, down = d_model * d_ff, d_model * d_ff, d_ff * d_model
    expert = gate + up + down
    shared = n_shared * expert
    return shared + n_experts * expert, shared + k * expert


def group_limited_topk(scores, k, n_groups, top_groups):
    N, E = scores.shape
    if E % n_groups:
        raise ValueError(f"n_groups {n_groups} does not divide {E}")
    if k > E:
        raise ValueError(f"k {k} is larger than {E}")
    size = E // n_groups
    value = scores.reshape(N, n_groups, size).topk(min(size, 2), -1).values.sum(-1)
    groups = value.argsort(-1, descending=True)[:, :top_groups]
    experts = (groups[..., None] * size + torch.arange(size, device=scores.device)).flatten(1)  # (N, top_groups * size)
    weights, place = scores.gather(1, experts).topk(k, dim=-1)
    return F.normalize(weights, p=1.0, dim=-1, eps=0.0), experts.gather(1, place)
