"""step reads the state it was given."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def _advance(h, u, dt, A, B_t):
    decay = torch.exp(dt.unsqueeze(-1) * A)
    return decay * h + (dt * u).unsqueeze(-1) * B_t.unsqueeze(-2)


def selective_scan(x, delta, A, B, C, D):
    batch, T, d = x.shape
    h = torch.zeros(batch, d, A.shape[1], dtype=x.dtype, device=x.device)
    y = torch.empty_like(x)
    for t in range(T):
        h = _advance(h, x[:, t], delta[:, t], A, B[:, t])
        y[:, t] = torch.einsum("bdn,bn->bd", h, C[:, t])
    return y + x * D


class SelectiveSSM(nn.Module):
    def __init__(self, d_model, d_state):
        super().__init__()
        n = torch.arange(1.0, d_state + 1.0)
        self.A_log = nn.Parameter(n.log().expand(d_model, d_state).clone())
        self.D = nn.Parameter(torch.ones(d_model))
        self.to_delta = nn.Linear(d_model, d_model)
        self.to_B = nn.Linear(d_model, d_state, bias=False)
        self.to_C = nn.Linear(d_model, d_state, bias=False)

    def forward(self, x):
        delta = F.softplus(self.to_delta(x))
        return selective_scan(x, delta, -self.A_log.exp(), self.to_B(x), self.to_C(x), self.D)

    def step(self, x_t, h):
        dt = F.softplus(self.to_delta(x_t))
        after = _advance(h, x_t, dt, -self.A_log.exp(), self.to_B(x_t))
        return torch.einsum("bdn,bn->bd", h, self.to_C(x_t)) + self.D * x_t, after


def chunked_selective_scan(x, delta, A, B, C, D, chunk):
    if chunk < 1:
        raise ValueError(f"chunk = {chunk}")
    batch, T, d = x.shape
    count = (T + chunk - 1) // chunk
    missing = count * chunk - T

    def split(v):
        v = torch.cat([v, v.new_zeros(batch, missing, v.shape[-1])], dim=1)
        return v.reshape(batch, count, chunk, v.shape[-1])

    xs, dts, Bs, Cs = split(x), split(delta), split(B), split(C)
    h = x.new_zeros(batch, count, d, A.shape[1])
    total = x.new_zeros(batch, count, d)
    inside, kept = [], []
    for i in range(chunk):
        h = _advance(h, xs[:, :, i], dts[:, :, i], A, Bs[:, :, i])
        total = total + dts[:, :, i]
        inside.append(h)
        kept.append(torch.exp(total.unsqueeze(-1) * A))
    carry, starts = x.new_zeros(batch, d, A.shape[1]), []
    for j in range(count):
        starts.append(carry)
        carry = inside[-1][:, j] + kept[-1][:, j] * carry
    start = torch.stack(starts, 1)
    ys = [((inside[i] + kept[i] * start) * Cs[:, :, i].unsqueeze(2)).sum(-1) for i in range(chunk)]
    y = torch.stack(ys, 2).reshape(batch, count * chunk, d)[:, :T]
    return y + D * x
