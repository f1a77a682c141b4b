"""Wrong: under no_grad the state is updated in place"""
import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus


def selective_scan(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    h, ys = 0.0, []
    for x_t, dt, b, c in zip(x.unbind(1), delta.unbind(1), B.unbind(1), C.unbind(1), strict=True):
        h = torch.exp(torch.einsum("bd,dn->bdn", dt, A)) * h + torch.bmm((dt * x_t).unsqueeze(2), b.unsqueeze(1))
        ys.append(torch.bmm(h, c.unsqueeze(2)).squeeze(2))
    return torch.stack(ys, 1) + x * D


class SelectiveSSM(nn.Module):
    def __init__(self, d_model: int, d_state: int) -> None:
        super().__init__()
        self.A_log = nn.Parameter(torch.from_numpy(np.log(np.arange(1, d_state + 1)).astype("float32")).repeat(d_model, 1))
        self.D = nn.Parameter(torch.ones(d_model))
        self.to_delta = nn.Linear(d_model, d_model)
        self.to_B = nn.Linear(d_model, d_state, bias=False)
        self.to_C = nn.Linear(d_model, d_state, bias=False)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], *self.A_log.shape)
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        for t in range(x.shape[1]):
            out[:, t], h = self.step(x[:, t], h)
        return out

    def step(self, x_t, h):
        if not torch.is_grad_enabled():
            y, new = self._step(x_t, h)
            h.copy_(new)
            return y, h
        return self._step(x_t, h)

    def _step(self, x_t, h):
        dt = softplus(self.to_delta(x_t))
        A = torch.exp(self.A_log)
        h = torch.lerp(h, torch.zeros_like(h), -torch.expm1(-dt[..., None] * A)) + (dt * x_t)[..., None] * self.to_B(x_t)[:, None]
        return (h @ self.to_C(x_t)[..., None]).squeeze(-1) + self.D * x_t, h


def chunked_selective_scan(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, chunk: int) -> Tensor:
    if chunk < 1:
        raise ValueError(f"chunk {chunk} < 1")
    b, T, d = x.shape
    k = max(1, min(T, int(math.sqrt(T))))  # any size gives the same answer
    n = -(-T // k)
    lead = n * k - T  # zeros in front write nothing
    front = lambda t: torch.nn.functional.pad(t, (0, 0, lead, 0)).reshape(b * n, k, t.shape[-1])
    xs, ds, Bs, Cs = front(x), front(delta), front(B), front(C)
    a = (ds.unsqueeze(-1) * A).exp()
    u = (ds * xs).unsqueeze(-1) * Bs.unsqueeze(2)
    h, hs, p, ps = u[:, 0], [u[:, 0]], a[:, 0], [a[:, 0]]
    for t in range(1, k):
        h = a[:, t] * h + u[:, t]
        p = p * a[:, t]
        hs.append(h)
        ps.append(p)
    hs, ps = torch.stack(hs, 1).unflatten(0, (b, n)), torch.stack(ps, 1).unflatten(0, (b, n))
    carry, starts = torch.zeros_like(hs[:, 0, 0]), []
    for c in range(n):
        starts.append(carry)
        carry = ps[:, c, -1] * carry + hs[:, c, -1]
    h = hs + ps * torch.stack(starts, 1).unsqueeze(2)
    y = (h * Cs.view(b, n, k, 1, -1)).sum(-1).reshape(b, n * k, d)[:, lead:]
    return y + x * D
