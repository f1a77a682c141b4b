"""Wrong, and in no catalogue: active experts are capped at the number of routed ones."""

import torch
from torch import nn
import torch.nn.functional as F

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
            raise ValueError(f"d_ff {d_ff} % split {split}")
        if k > n_experts:
            raise ValueError(f"k {k} > {n_experts}")
        self.n, self.k = split * n_experts, split * k
        width = d_ff // split
        self.gate = nn.Linear(d_model, self.n, bias=False)
        self.experts = nn.ModuleList(SwiGLU(d_model, width) for _ in range(self.n))
        self.shared = nn.ModuleList(SwiGLU(d_model, width) for _ in range(n_shared))

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        N = flat.shape[0]
        p = self.gate(flat).softmax(-1)
        w, idx = p.topk(self.k, -1)
        w = w / w.sum(-1, keepdim=True)
        y = torch.zeros_like(flat)
        for e, ex in enumerate(self.experts):
            t, s = (idx == e).nonzero(as_tuple=True)
            if t.numel():
                y = y.index_add(0, t, w[t, s, None] * ex(flat[t]))
        for sh in self.shared:
            y = y + sh(flat)
        f = torch.bincount(idx.reshape(-1), minlength=self.n).to(torch.float64) / idx.numel()
        aux = (self.n * (f * p.double().mean(0)).sum()).to(x.dtype)
        return y.view_as(x), aux

def moe_parameter_counts(d_model, d_ff, n_experts, k, n_shared=0):
    one = 3 * d_model * d_ff
    return one * (n_experts + n_shared), one * min(k + n_shared, n_experts)

def group_limited_topk(scores, k, n_groups, top_groups):
    N, E = scores.shape
    if E % n_groups:
        raise ValueError(f"E {E} % n_groups {n_groups}")
    if k > E:
        raise ValueError(f"k {k} > E {E}")
    g = scores.view(N, n_groups, -1) if scores.is_contiguous() else scores.reshape(N, n_groups, E // n_groups)
    gs = g.topk(min(2, E // n_groups), -1).values.sum(-1)
    keep = torch.zeros_like(gs, dtype=torch.bool).scatter(1, gs.topk(top_groups, -1).indices, True)
    masked = scores.masked_fill(~keep.repeat_interleave(E // n_groups, 1), float("-inf"))
    idx = masked.topk(k, -1).indices
    w = scores.gather(1, idx)
    return w / w.sum(-1, keepdim=True), idx
