"""Right: k rounds of argmax, one scatter_add for routed and shared, meta parameters counted, python sort of groups"""

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
        shape = x.shape
        x = x.contiguous().view(-1, shape[-1])
        n = x.size(0)
        p = F.softmax(self.gate(x), dim=1, dtype=torch.promote_types(x.dtype, torch.float32))
        keep = torch.zeros(n, self.n, dtype=torch.bool, device=x.device)
        left = p.detach().clone()
        for _ in range(self.top):
            best = left.argmax(1, keepdim=True)
            keep.scatter_(1, best, True)
            left.scatter_(1, best, -1.0)
        kept = p * keep
        kept = kept / kept.sum(1, keepdim=True)
        parts, rows = [], []
        for e in range(self.n):
            r = keep[:, e].nonzero().view(-1)
            parts.append(self.experts[e](x.index_select(0, r)) * kept[r, e].unsqueeze(1).to(x.dtype))
            rows.append(r)
        parts.extend(s(x) for s in self.shared)
        rows.extend(torch.arange(n, device=x.device) for _ in self.shared)
        rows = torch.cat(rows)
        out = torch.zeros_like(x).scatter_add(0, rows.unsqueeze(1).expand(-1, x.size(1)), torch.cat(parts))
        share = keep.to(p.dtype).mean(0) / self.top
        return out.view(shape), (p * share).sum(1).mean().mul(self.n).to(x.dtype)


def moe_parameter_counts(d_model, d_ff, n_experts, k, n_shared=0):
    expert = SwiGLU.__new__(SwiGLU)
    nn.Module.__init__(expert)
    with torch.device("meta"):
        expert.__init__(d_model, d_ff)
    size = sum(p.numel() for p in expert.parameters())
    return (n_experts + n_shared) * size, (k + n_shared) * size


def group_limited_topk(scores, k, n_groups, top_groups):
    if scores.shape[1] % n_groups or k > scores.shape[1]:
        raise ValueError(f"{scores.shape[1]} experts, {n_groups} groups, k={k}")
    out_w, out_i = [], []
    for row in scores.unbind(0):
        groups = row.chunk(n_groups)
        ranked = sorted(range(n_groups), key=lambda g: -sum(sorted(groups[g].tolist())[-2:]))[:top_groups]
        step = row.numel() // n_groups
        allowed = [g * step + j for g in ranked for j in range(step)]
        take = torch.tensor(sorted(allowed, key=lambda e: -row[e].item())[:k], device=row.device)
        out_i.append(take)
        out_w.append(row[take] / row[take].sum())
    return torch.stack(out_w), torch.stack(out_i)
