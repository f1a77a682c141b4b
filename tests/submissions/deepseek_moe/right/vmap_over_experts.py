"""Right: dense vmap over stacked expert weights (torch.func), log-space weights, groups by kthvalue thresholds"""
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SwiGLU(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w_gate = nn.Linear(d_model, d_ff, bias=False)
        self.w_up = nn.Linear(d_model, d_ff, bias=False)
        self.w_down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_down(F.silu(self.w_gate(x)) * self.w_up(x))


class DeepSeekMoE(nn.Module):
    def __init__(self, d_model: int, d_ff: int, n_experts: int, k: int, split: int = 1, n_shared: int = 1) -> None:
        super().__init__()
        if d_ff % split or k > n_experts:
            raise ValueError(f"d_ff {d_ff}, split {split}, k {k}, n_experts {n_experts}")
        self.n, self.k = split * n_experts, split * k
        self.gate = nn.Linear(d_model, self.n, bias=False)
        self.experts = nn.ModuleList(SwiGLU(d_model, d_ff // split) for _ in range(self.n))
        self.shared = nn.ModuleList(SwiGLU(d_model, d_ff // split) for _ in range(n_shared))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.flatten(0, 1)
        logp = self.gate(flat).log_softmax(-1)
        top, who = logp.topk(self.k)
        w = (top - top.logsumexp(-1, keepdim=True)).exp()
        dense = torch.zeros_like(logp).scatter(1, who, w)
        g, u, d = (torch.stack([getattr(e, m).weight for e in self.experts]) for m in ("w_gate", "w_up", "w_down"))
        one = lambda g, u, d: F.linear(F.silu(F.linear(flat, g)) * F.linear(flat, u), d)
        y = torch.einsum("end,ne->nd", torch.vmap(one)(g, u, d), dense)
        for s in self.shared:
            y = y + s(flat)
        f = torch.zeros_like(logp).scatter_add(1, who, torch.ones_like(top)).mean(0) / self.k
        aux = (f * logp.exp().mean(0)).sum() * self.n
        return y.view_as(x), aux


def moe_parameter_counts(d_model: int, d_ff: int, n_experts: int, k: int, n_shared: int = 0) -> tuple[int, int]:
    one = sum(a * b for a, b in ((d_model, d_ff), (d_model, d_ff), (d_ff, d_model)))
    return tuple(one * (n + n_shared) for n in (n_experts, k))


def group_limited_topk(scores: Tensor, k: int, n_groups: int, top_groups: int) -> tuple[Tensor, Tensor]:
    N, E = scores.shape
    if E % n_groups:
        raise ValueError(f"{E} experts in {n_groups} groups")
    if k > E:
        raise ValueError(f"{k} of {E} experts")
    size = E // n_groups
    g = scores.view(N, n_groups, size) if scores.is_contiguous() else scores.reshape(N, n_groups, size)
    best = g.sort(-1, descending=True).values[..., :2].sum(-1)
    order = best.argsort(-1, descending=True)[:, :top_groups]
    columns = (order[..., None] * size + torch.arange(size, device=scores.device)).flatten(1)
    inside = scores.gather(1, columns)
    value, at = inside.topk(k, -1)
    return value / value.sum(-1, keepdim=True), columns.gather(1, at)
