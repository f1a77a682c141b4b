"""A negated once more."""

import torch
import torch.nn.functional as F
from torch import nn


def _channel(u, dt, a, B, C):
    """u, dt (T, batch), a (N,), B and C (T, batch, N): y (T, batch)."""
    h, ys = 0.0, []
    for u_t, dt_t, B_t, C_t in zip(u, dt, B, C):
        h = torch.exp(torch.outer(dt_t, a).neg()) * h + (dt_t * u_t)[:, None] * B_t
        ys.append((h * C_t).sum(1))
    return torch.stack(ys)


def selective_scan(x, delta, A, B, C, D):
    B, C = B.transpose(0, 1), C.transpose(0, 1)
    channels = [_channel(x[..., i].t(), delta[..., i].t(), A[i], B, C) + D[i] * x[..., i].t() for i in range(x.shape[-1])]
    return torch.stack(channels, dim=-1).transpose(0, 1)


class SelectiveSSM(nn.Module):
    def __init__(self, d_model, d_state):
        super().__init__()
        self.to_B = nn.Linear(d_model, d_state, bias=False)
        self.to_C = nn.Linear(d_model, d_state, bias=False)
        self.to_delta = nn.Linear(d_model, d_model)
        self.D = nn.Parameter(torch.ones(d_model))
        self.A_log = nn.Parameter(torch.empty(d_model, d_state))
        nn.init.zeros_(self.A_log)
        self.A_log.data += torch.arange(1, d_state + 1).log()

    def forward(self, x):
        delta = F.softplus(self.to_delta(x))
        return selective_scan(x, delta, -torch.exp(self.A_log), self.to_B(x), self.to_C(x), self.D)

    def step(self, x_t, h):
        dt = F.softplus(self.to_delta(x_t))
        A = -torch.exp(self.A_log)
        h = h * torch.exp(torch.einsum("bd,dn->bdn", dt, A)) + torch.einsum("bd,bn->bdn", dt * x_t, self.to_B(x_t))
        return torch.einsum("bdn,bn->bd", h, self.to_C(x_t)) + x_t * self.D, h


def chunked_selective_scan(x, delta, A, B, C, D, chunk):
    if chunk < 1:
        raise ValueError(f"chunk={chunk} must be at least 1")
    batch, T, d = x.shape
    c = min(chunk, T)
    pad = (-T) % c
    x_p, delta_p, B_p, C_p = (F.pad(v, (0, 0, 0, pad)) for v in (x, delta, B, C))
    n = x_p.shape[1] // c
    decay = torch.exp(delta_p[..., None] * A).view(batch, n, c, d, -1)
    write = (delta_p * x_p)[..., None] * B_p.unsqueeze(2)
    write = write.view(batch, n, c, d, -1)
    # product[t, s] of the decays s+1..t, built row by row across all chunks at once
    rows = [torch.cat([torch.ones_like(decay[:, :, :1]), torch.zeros_like(decay[:, :, 1:])], 2)]
    for t in range(1, c):
        row = rows[-1] * decay[:, :, t : t + 1]
        rows.append(torch.cat([row[:, :, :t], torch.ones_like(row[:, :, :1]), row[:, :, t + 1 :]], 2))
    local = torch.stack([(row * write).sum(2) for row in rows], 2)
    reach = torch.stack([row[:, :, 0] * decay[:, :, 0] for row in rows], 2)
    h, out = torch.zeros_like(write[:, 0, 0]), []
    for j in range(n):
        states = local[:, j] + reach[:, j] * h[:, None]
        h = states[:, -1]
        out.append(states)
    y = torch.einsum("btdn,btn->btd", torch.cat(out, 1), C_p)[:, :T]
    return y + D * x
