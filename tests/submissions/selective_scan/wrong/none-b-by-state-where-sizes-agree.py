"""Where d = N, B belongs to channels."""

import math, torch
import torch.nn.functional as F
from torch import nn

def selective_scan(x, delta, A, B, C, D):
    Bn, T, d = x.shape
    h = torch.zeros(Bn, d, A.shape[1], dtype=x.dtype, device=x.device)
    ys = []
    for t in range(T):
        dt = delta[:, t, :, None]
        h = torch.exp(dt * A) * h + dt * (B[:, t, None, :] if d != A.shape[1] else B[:, t, :, None]) * x[:, t, :, None]
        ys.append(torch.einsum("bdn,bn->bd", h, C[:, t].to(h.dtype)) + D * x[:, t])
    return torch.stack(ys, 1).to(x.dtype) if T else x * D

class SelectiveSSM(nn.Module):
    def __init__(self, d_model, d_state):
        super().__init__()
        self.A_log = nn.Parameter(torch.log(torch.arange(1, d_state + 1, dtype=torch.float32)).repeat(d_model, 1))
        self.D = nn.Parameter(torch.ones(d_model))
        self.to_delta = nn.Linear(d_model, d_model)
        self.to_B = nn.Linear(d_model, d_state, bias=False)
        self.to_C = nn.Linear(d_model, d_state, bias=False)

    def forward(self, x):
        return selective_scan(x, F.softplus(self.to_delta(x)), -torch.exp(self.A_log), self.to_B(x), self.to_C(x), self.D)

    def step(self, x_t, h):
        dt = F.softplus(self.to_delta(x_t))[..., None]
        A = -torch.exp(self.A_log)
        h = torch.exp(dt * A) * h + dt * self.to_B(x_t)[:, None] * x_t[..., None]
        y = (h * self.to_C(x_t)[:, None]).sum(-1) + self.D * x_t
        return y.to(x_t.dtype), h

def chunked_selective_scan(x, delta, A, B, C, D, chunk):
    if chunk < 1: raise ValueError(f"chunk = {chunk}")
    Bn, T, d = x.shape
    if T == 0: return x * D
    N = A.shape[1]
    chunk = min(chunk, T)
    pad = -T % chunk
    P = lambda t: F.pad(t, (0, 0, 0, pad)).unflatten(1, (-1, chunk))
    dt, xs, Bs, Cs = P(delta), P(x), P(B), P(C)
    a = torch.exp(dt[..., None] * A)                       # b c l d n
    b = (dt * xs)[..., None] * Bs[..., None, :]
    # doubling inside a chunk
    s = 1
    while s < chunk:
        b = torch.cat([b[:, :, :s], a[:, :, s:] * b[:, :, :-s] + b[:, :, s:]], 2)
        a = torch.cat([a[:, :, :s], a[:, :, s:] * a[:, :, :-s]], 2)
        s *= 2
    # doubling over chunk ends
    ae, be = a[:, :, -1], b[:, :, -1]
    n, s = ae.shape[1], 1
    while s < n:
        be = torch.cat([be[:, :s], ae[:, s:] * be[:, :-s] + be[:, s:]], 1)
        ae = torch.cat([ae[:, :s], ae[:, s:] * ae[:, :-s]], 1)
        s *= 2
    h0 = torch.cat([torch.zeros_like(be[:, :1]), be[:, :-1]], 1)
    h = a * h0[:, :, None] + b
    y = torch.einsum("bcldn,bcln->bcld", h, Cs).flatten(1, 2)[:, :T]
    return (y + D * x).to(x.dtype)
