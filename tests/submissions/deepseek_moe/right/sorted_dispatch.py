"""Sorted dispatch; the group mask by a threshold on group scores."""

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
        tokens = x.reshape(-1, x.shape[-1])
        p = self.gate(tokens).softmax(-1)
        w, idx = p.topk(self.k, dim=-1)
        w = w / w.sum(-1, keepdim=True)
        flat_idx = idx.reshape(-1)
        order = flat_idx.argsort(stable=True)
        source = order // self.k
        sizes = torch.bincount(flat_idx, minlength=self.n)
        outputs = [f(rows) for f, rows in zip(self.experts, tokens[source].split(sizes.tolist()), strict=True)]
        mixed = torch.cat(outputs) * w.reshape(-1, 1)[order]
        y = torch.zeros_like(tokens).index_add(0, source, mixed)
        for f in self.shared:
            y = y + f(tokens)
        share = sizes.to(p.dtype) / flat_idx.numel()
        return y.reshape(x.shape), self.n * (share * p.mean(0)).sum()


def moe_parameter_counts(d_model, d_ff, n_experts, k, n_shared=0):
    one = d_model * d_ff * 3
    return one * (n_experts + n_shared), one * (k + n_shared)


def group_limited_topk(scores, k, n_groups, top_groups):
    n, e = scores.shape
    if e % n_groups:
        raise ValueError(f"{e} experts in {n_groups} groups")
    if k > e:
        raise ValueError(f"k={k} > {e}")
    g = scores.reshape(n, n_groups, -1).sort(-1, descending=True).values[..., :2].sum(-1)
    cut = g.sort(-1, descending=True).values[:, top_groups - 1 : top_groups]
    mask = (g >= cut).unsqueeze(-1).expand(n, n_groups, e // n_groups).reshape(n, e)
    indices = torch.where(mask, scores, -1.0).topk(k).indices
    w = scores.gather(1, indices)
    return w / w.sum(-1, keepdim=True), indices
