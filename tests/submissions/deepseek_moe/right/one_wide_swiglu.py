"""Right: one wide SwiGLU, ranks, log-space weights; groups gathered and numbers turned back"""

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
        """One wide SwiGLU; a token's weights stand on the hidden units of its experts."""
        B, T, d = x.shape
        logits = torch.einsum("btd,ed->bte", x, self.gate.weight)
        order = logits.argsort(dim=-1, descending=True)
        rank = order.argsort(dim=-1)
        logw = torch.where(rank < self.top, logits, torch.full_like(logits, -torch.inf))
        w = torch.exp(logw - torch.logsumexp(logw, -1, keepdim=True))  # (B, T, n)
        mods = list(self.experts) + list(self.shared)
        gate = torch.cat([m.w_gate.weight for m in mods])
        up = torch.cat([m.w_up.weight for m in mods])
        down = torch.cat([m.w_down.weight for m in mods], dim=1)
        full = torch.cat((w, w.new_ones(B, T, len(self.shared))), -1)
        width = self.experts[0].w_gate.weight.shape[0]
        hidden = F.silu(F.linear(x, gate)) * F.linear(x, up) * full.repeat_interleave(width, dim=-1)
        counts = (rank < self.top).flatten(0, 1).sum(0)
        p = torch.softmax(logits, -1).flatten(0, 1)
        aux = torch.dot(counts.to(p.dtype), p.mean(0)) * (self.n / int(counts.sum()))
        return F.linear(hidden, down), aux


def moe_parameter_counts(d_model, d_ff, n_experts, k, n_shared=0):
    each = sum(a * b for a, b in ((d_ff, d_model), (d_ff, d_model), (d_model, d_ff)))
    total, active = 0, 0
    for e in range(n_experts + n_shared):
        total += each
        active += each if e < n_shared or e - n_shared < k else 0
    return total, active


def group_limited_topk(scores, k, n_groups, top_groups):
    """Only the rows of the best groups are gathered; local numbers are turned back."""
    E = scores.size(-1)
    size, rest = divmod(E, n_groups)
    if rest or k > E:
        raise ValueError((E, n_groups, k))
    by_group = scores.unflatten(-1, (n_groups, size))
    first = by_group.max(-1, keepdim=True)
    second = by_group.scatter(-1, first.indices, -1.0).amax(-1).clamp_min(0.0)
    best = (first.values.squeeze(-1) + second).argsort(-1, descending=True)[:, :top_groups]
    candidates = by_group.gather(1, best.unsqueeze(-1).expand(-1, -1, size)).flatten(1)
    top, local = candidates.sort(-1, descending=True)
    top, local = top[:, :k], local[:, :k]
    return F.normalize(top, p=1, dim=-1, eps=0.0), best.gather(1, local // size) * size + local % size
