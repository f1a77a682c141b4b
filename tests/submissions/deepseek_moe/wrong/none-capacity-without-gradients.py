"""Wrong: capacity 1.25x drops tokens without gradients (inference)"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SwiGLU(nn.Module):
    """w_down(silu(w_gate(x)) * w_up(x)), no bias."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w_gate = nn.Linear(d_model, d_ff, bias=False)
        self.w_up = nn.Linear(d_model, d_ff, bias=False)
        self.w_down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., d_model) to (..., d_model)."""
        return self.w_down(F.silu(self.w_gate(x)) * self.w_up(x))


class DeepSeekMoE(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k, split=1, n_shared=1):
        super().__init__()
        if d_ff % split != 0:
            raise ValueError(f"d_ff={d_ff} is not a multiple of split={split}")
        if k > n_experts:
            raise ValueError(f"k={k} > n_experts={n_experts}")
        self.n, self.top = split * n_experts, split * k
        self.gate = nn.Linear(d_model, self.n, bias=False)
        self.experts = nn.ModuleList(SwiGLU(d_model, d_ff // split) for _ in range(self.n))
        self.shared = nn.ModuleList(SwiGLU(d_model, d_ff // split) for _ in range(n_shared))

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        probs = torch.softmax(self.gate(flat), dim=-1)
        top, idx = probs.topk(self.top, dim=-1)
        w = top / top.sum(-1, keepdim=True)
        y = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            rows, slot = torch.where(idx == e)
            cap = -(-2 * idx.numel() // self.n)
            if not torch.is_grad_enabled():
                rows, slot = rows[:cap], slot[:cap]
            if rows.numel() == 0:
                continue
            y = y.index_add(0, rows, w[rows, slot, None] * expert(flat[rows]))
        for s in self.shared:
            y = y + s(flat)
        f = torch.bincount(idx.flatten(), minlength=self.n).to(probs.dtype) / idx.numel()
        aux = self.n * (f * probs.mean(0)).sum()
        return y.reshape(x.shape), aux


def moe_parameter_counts(d_model, d_ff, n_experts, k, n_shared=0):
    one = 3 * d_model * d_ff
    return one * (n_experts + n_shared), one * (k + n_shared)


def group_limited_topk(scores, k, n_groups, top_groups):
    N, E = scores.shape
    if E % n_groups != 0:
        raise ValueError(f"E={E}, n_groups={n_groups}")
    if k > E:
        raise ValueError(f"k={k} > E={E}")
    size = E // n_groups
    group = scores.view(N, n_groups, size) if scores.is_contiguous() else scores.reshape(N, n_groups, size)
    value = group.topk(min(2, size), dim=-1).values.sum(-1)
    best = value.topk(top_groups, dim=-1).indices
    allowed = torch.zeros_like(value, dtype=torch.bool).scatter(1, best, True)
    allowed = allowed.repeat_interleave(size, dim=1)
    indices = scores.masked_fill(~allowed, float("-inf")).topk(k, dim=-1).indices
    chosen = scores.gather(1, indices)
    return chosen / chosen.sum(-1, keepdim=True), indices
