"""Right: baddbmm with wide state, logaddexp, clone and in place, chunk ends by a triangular table"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def selective_scan(x, delta, A, B, C, D):
    """States preallocated in one leafless buffer list; float64 inside; written with lerp-free in-place on own tensors."""
    kind = x.dtype
    wide = torch.promote_types(torch.float32, kind)
    x_, delta, A, B, C, D = (v.to(wide) for v in (x, delta, A, B, C, D))
    u = delta * x_
    h = A.new_zeros(x.shape[0], *A.shape)
    y = []
    for u_t, s_t, b_t, c_t in zip(u.unbind(1), delta.unbind(1), B.unbind(1), C.unbind(1), strict=True):
        h = torch.baddbmm(torch.exp(s_t.unsqueeze(2) * A).mul(h), u_t.unsqueeze(2), b_t.unsqueeze(1))
        y.append(torch.bmm(h, c_t.unsqueeze(2)))
    return (torch.cat(y, 2).transpose(1, 2) + D * x_).to(kind)


class SelectiveSSM(nn.Module):
    def __init__(self, d_model, d_state):
        super().__init__()
        self.A_log = nn.Parameter(torch.log(torch.arange(1, d_state + 1, dtype=torch.float32)).repeat(d_model, 1))
        self.D = nn.Parameter(torch.ones(d_model))
        self.to_delta = nn.Linear(d_model, d_model)
        self.to_B = nn.Linear(d_model, d_state, bias=False)
        self.to_C = nn.Linear(d_model, d_state, bias=False)

    def forward(self, x):
        delta = F.softplus(self.to_delta(x))
        return selective_scan(x, delta, -torch.exp(self.A_log), self.to_B(x), self.to_C(x), self.D)

    def step(self, x_t, h):
        delta = torch.logaddexp(self.to_delta(x_t), x_t.new_zeros(()))
        h = h.clone()
        h = h.mul_(torch.exp(-delta.unsqueeze(-1) * self.A_log.exp()))
        h = h.add_(torch.einsum("bd,bn->bdn", delta * x_t, self.to_B(x_t)))
        return torch.einsum("bdn,bn->bd", h, self.to_C(x_t)) + self.D * x_t, h


def chunked_selective_scan(x, delta, A, B, C, D, chunk):
    """Positions in a chunk advance for all chunks together; ends by a triangular table of log decays."""
    if chunk <= 0:
        raise ValueError(chunk)
    b, T, d = x.shape
    size = max(1, min(chunk, int(T**0.5)))
    n = -(-T // size)
    fill = n * size - T

    def cut(v):
        return F.pad(v, (0, 0, 0, fill)).unflatten(1, (n, size)).transpose(1, 2)

    s, u, b_, c_ = cut(delta), cut(delta * x), cut(B), cut(C)
    h, local, total = 0.0, [], s.cumsum(1)
    for i in range(size):
        h = torch.exp(s[:, i, ..., None] * A) * h + u[:, i, ..., None] * b_[:, i, :, None, :]
        local.append(h)
    ends = local[-1]
    through = total[:, -1].cumsum(1)
    gap = (through[:, :, None] - through[:, None, :]).clamp_min(0.0)
    weight = torch.exp(gap[..., None] * A) * x.new_ones(n, n).tril()[:, :, None, None]
    carried = torch.einsum("bijdn,bjdn->bidn", weight, ends)
    before = F.pad(carried, (0, 0, 0, 0, 1, -1))
    states = torch.stack(local, 2) + torch.exp(total.transpose(1, 2)[..., None] * A) * before[:, :, None]
    y = (states * c_.transpose(1, 2).unsqueeze(3)).sum(-1)
    return y.flatten(1, 2)[:, :T] + D * x
