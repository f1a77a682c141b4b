"""Right: kthvalue threshold, log weights, sparse combine matrix, own backward for the groups, strict ranks"""

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
        d = x.shape[-1]
        x2 = x.reshape(-1, d)
        n = x2.shape[0]
        logp = F.log_softmax(self.gate(x2), -1)
        kth = logp.detach().kthvalue(self.n - self.top + 1, dim=-1, keepdim=True).values
        on = logp.detach() >= kth
        token, expert = on.nonzero(as_tuple=True)
        w = (logp - logp.masked_fill(~on, -torch.inf).logsumexp(-1, keepdim=True))[token, expert].exp()
        order = torch.sort(expert, stable=True).indices
        token, w, counts = token[order], w[order], torch.bincount(expert, minlength=self.n)
        pieces = x2[token].split(counts.tolist())
        outs = torch.cat([m(piece) for m, piece in zip(self.experts, pieces)])
        combine = torch.sparse_coo_tensor(
            torch.stack((token, torch.arange(token.numel(), device=x.device))), w, (n, token.numel())
        )
        y = torch.sparse.mm(combine, outs)
        y = sum((s(x2) for s in self.shared), y)
        aux = self.n * (counts / counts.sum()).to(x.dtype) @ logp.exp().mean(0)
        return y.view_as(x), aux


def moe_parameter_counts(d_model, d_ff, n_experts, k, n_shared=0):
    return tuple(3 * d_model * d_ff * (m + n_shared) for m in (n_experts, k))


class _Limited(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, indices):
        s = scores.gather(1, indices)
        total = s.sum(1, keepdim=True)
        ctx.save_for_backward(s / total, total, indices)
        ctx.width = scores.shape[1]
        return s / total

    @staticmethod
    def backward(ctx, g):
        w, total, indices = ctx.saved_tensors
        inner = (g - (g * w).sum(1, keepdim=True)) / total
        return g.new_zeros(g.shape[0], ctx.width).scatter_(1, indices, inner), None


@torch.no_grad()
def _pick(scores, k, n_groups, top_groups):
    N, E = scores.shape
    s = scores.reshape(N, n_groups, -1).sort(-1).values[..., -2:].sum(-1)
    better = (s[:, None, :] > s[:, :, None]).sum(-1)
    open_ = (better < top_groups)[:, torch.arange(E, device=scores.device) // (E // n_groups)]
    return torch.where(open_, scores, -1.0).argsort(1, descending=True)[:, :k]


def group_limited_topk(scores, k, n_groups, top_groups):
    if scores.size(1) % n_groups != 0:
        raise ValueError("groups of unequal size")
    if not k <= scores.size(1):
        raise ValueError("k")
    indices = _pick(scores, k, n_groups, top_groups)
    return _Limited.apply(scores, indices), indices
