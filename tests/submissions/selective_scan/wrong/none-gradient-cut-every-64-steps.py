"""Wrong: state cut from the graph every 64 steps (truncated BPTT)"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def selective_scan(x, delta, A, B, C, D):
    b, T, d = x.shape
    h = x.new_zeros(b, d, A.shape[1])
    ys = []
    for t in range(T):
        if t and t % 64 == 0:
            h = h.detach()
        decay = torch.exp(delta[:, t, :, None] * A)
        h = decay * h + (delta[:, t] * x[:, t])[..., None] * B[:, t, None, :]
        ys.append((h * C[:, t, None, :]).sum(-1) + D * x[:, t])
    return torch.stack(ys, dim=1)


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
        delta = F.softplus(self.to_delta(x_t))
        decay = torch.exp(delta[..., None] * -torch.exp(self.A_log))
        new = decay * h + (delta * x_t)[..., None] * self.to_B(x_t)[:, None, :]
        y = (new * self.to_C(x_t)[:, None, :]).sum(-1) + self.D * x_t
        return y, new


def chunked_selective_scan(x, delta, A, B, C, D, chunk):
    if chunk < 1:
        raise ValueError(f"chunk={chunk}")
    b, T, d = x.shape
    N = A.shape[1]
    L = min(chunk, T)
    pad = -T % L
    n = (T + pad) // L
    decay = torch.exp(delta[..., None] * A)
    write = (delta * x)[..., None] * B[:, :, None, :]
    decay = F.pad(decay, (0, 0, 0, 0, 0, pad), value=1.0).reshape(b, n, L, d, N)
    write = F.pad(write, (0, 0, 0, 0, 0, pad)).reshape(b, n, L, d, N)
    a, h = _prefix(decay, write, 2)
    ea, eh = _prefix(a[:, :, -1], h[:, :, -1], 1)
    start = torch.cat((torch.zeros_like(eh[:, :1]), eh[:, :-1]), 1)
    h = h + a * start[:, :, None]
    h = h.reshape(b, n * L, d, N)[:, :T]
    return torch.einsum("btdn,btn->btd", h, C) + D * x


def _prefix(a, h, dim):
    s = 1
    while s < a.shape[dim]:
        a0, a1 = a.narrow(dim, 0, s), a.narrow(dim, s, a.shape[dim] - s)
        h0, h1 = h.narrow(dim, 0, s), h.narrow(dim, s, h.shape[dim] - s)
        m = a.shape[dim] - s
        h = torch.cat((h0, h1 + a1 * h.narrow(dim, 0, m)), dim)
        a = torch.cat((a0, a1 * a.narrow(dim, 0, m)), dim)
        s *= 2
    return a, h
