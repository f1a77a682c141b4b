"""Right: time on the last axis, float64 inside, the chunk scan by a loop over positions in the chunk across chunks, then over chunks by a lower-triangular log-sum"""

import math

import torch
import torch.nn.functional as F
from torch import nn


def _prepare(x, delta, A, B):
    up = torch.float64
    la = delta.to(up).transpose(1, 2).unsqueeze(2) * A.to(up)[None, :, :, None]
    b = (delta.to(up) * x.to(up)).transpose(1, 2).unsqueeze(2) * B.to(up).transpose(1, 2).unsqueeze(1)
    return la, b


def selective_scan(x, delta, A, B, C, D):
    la, b = _prepare(x, delta, A, B)
    h, ys = 0.0, []
    for t in range(x.size(1)):
        h = la[..., t].exp() * h + b[..., t]
        ys.append((h * C[:, t].to(h.dtype).unsqueeze(1)).sum(2))
    return (torch.stack(ys, 1) + D.double() * x.double()).to(x.dtype)


class SelectiveSSM(nn.Module):
    def __init__(self, d_model: int, d_state: int):
        super().__init__()
        row = torch.tensor([math.log(n + 1) for n in range(d_state)])
        self.A_log = nn.Parameter(row.expand(d_model, d_state).clone())
        self.D = nn.Parameter(torch.full((d_model,), 1.0))
        self.to_delta = nn.Linear(d_model, d_model, bias=True)
        for name in ("to_B", "to_C"):
            setattr(self, name, nn.Linear(d_model, d_state, bias=False))

    def forward(self, x):
        delta = torch.logaddexp(self.to_delta(x), torch.zeros((), dtype=x.dtype, device=x.device))
        return selective_scan(x, delta, -torch.exp(self.A_log), self.to_B(x), self.to_C(x), self.D)

    def step(self, x_t, h):
        delta = F.softplus(self.to_delta(x_t)).unsqueeze(-1)
        keep = torch.exp(-delta * self.A_log.exp())
        new = torch.lerp(torch.zeros_like(h), h, keep) + delta * self.to_B(x_t).unsqueeze(1) * x_t.unsqueeze(-1)
        y = torch.einsum("bdn,bn->bd", new, self.to_C(x_t))
        return y + x_t * self.D, new


def chunked_selective_scan(x, delta, A, B, C, D, chunk):
    if chunk <= 0:
        raise ValueError(f"chunk must be positive: {chunk}")
    T = x.shape[1]
    size = min(max(chunk, math.isqrt(T)), T) if chunk * chunk < T else min(chunk, 2 * math.isqrt(T) + 1)
    la, b = _prepare(x, delta, A, B)
    n = -(-T // size)
    la = F.pad(la, (0, n * size - T)).unflatten(-1, (n, size))
    b = F.pad(b, (0, n * size - T)).unflatten(-1, (n, size))
    total = la.sum(-1)
    level, h = [], torch.zeros_like(b[..., 0])
    for j in range(size):
        h = la[..., j].exp() * h + b[..., j]
        level.append(h)
    local = torch.stack(level, -1)
    carry, into = torch.zeros_like(h[..., 0]), []
    for i in range(n):
        into.append(carry)
        carry = total[..., i].exp() * carry + h[..., i]
    h = local + la.cumsum(-1).exp() * torch.stack(into, -1).unsqueeze(-1)
    h = h.flatten(-2)[..., :T]
    return (torch.einsum("bdnt,btn->btd", h, C.to(h.dtype)) + D.to(h.dtype) * x.to(h.dtype)).to(x.dtype)
