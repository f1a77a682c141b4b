"""Shared experts are missing from the active count.

Written as: token by token in Python.
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
        probs = torch.softmax(self.gate(x), dim=-1)
        out, counts = torch.zeros_like(x), [0] * self.n
        rows = []
        for b in range(x.shape[0]):
            for t in range(x.shape[1]):
                token, p = x[b, t], probs[b, t]
                best = sorted(range(self.n), key=lambda i, p=p: -p[i].item())[: self.k]
                mass = sum(p[i] for i in best)
                y = sum(p[i] / mass * self.experts[i](token) for i in best)
                for shared in self.shared:
                    y = y + shared(token)
                rows.append(y)
                for i in best:
                    counts[i] += 1
        f = torch.tensor(counts, dtype=x.dtype, device=x.device) / (len(rows) * self.k)
        return torch.stack(rows).view_as(out), self.n * (f * probs.flatten(0, 1).mean(0)).sum()


def moe_parameter_counts(d_model, d_ff, n_experts, k, n_shared=0):
    return 3 * d_model * d_ff * (n_experts + n_shared), 3 * d_model * d_ff * k


def group_limited_topk(scores, k, n_groups, top_groups):
    e = scores.shape[1]
    if e % n_groups or k > e:
        raise ValueError(f"{e} experts, {n_groups} groups, k = {k}")
    size = e // n_groups
    weights, indices = [], []
    for row in scores:
        s = row.tolist()
        groups = [sum(sorted(s[g * size : (g + 1) * size])[-2:]) for g in range(n_groups)]
        best = sorted(range(n_groups), key=lambda g: groups[g])[-top_groups:]
        allowed = [i for g in best for i in range(g * size, (g + 1) * size)]
        chosen = sorted(allowed, key=lambda i: s[i])[-k:]
        picked = row[torch.tensor(chosen, device=row.device)]
        weights.append(picked / picked.sum())
        indices.append(chosen)
    return torch.stack(weights), torch.tensor(indices, device=scores.device)
