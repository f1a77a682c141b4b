"""step lacks the skip."""

import torch
from torch import nn


def _segment_sums(log_decay):
    """(..., T) -> (..., T, T): entry [t, s] is the sum over s < i <= t, minus infinity above the diagonal."""
    T = log_decay.shape[-1]
    repeated = log_decay.unsqueeze(-1).expand(*log_decay.shape, T)
    below = torch.ones(T, T, dtype=torch.bool, device=log_decay.device).tril(-1)
    sums = repeated.masked_fill(~below, 0).cumsum(-2)
    return sums.masked_fill(~below.logical_or(torch.eye(T, dtype=torch.bool, device=below.device)), -torch.inf)


def _states(log_decay, write):
    """Both (batch, d, N, T): the state after each step, from zero."""
    return torch.einsum("...ts,...s->...t", _segment_sums(log_decay).exp(), write)


def _prepare(x, delta, A, B):
    log_decay = torch.einsum("btd,dn->bdnt", delta, A)
    write = torch.einsum("btd,btd,btn->bdnt", delta, x, B)
    return log_decay, write


def selective_scan(x, delta, A, B, C, D):
    dtype = x.dtype
    x, delta, A, B, C, D = (v.float() if v.dtype != torch.float64 else v for v in (x, delta, A, B, C, D))
    h = _states(*_prepare(x, delta, A, B))
    return (torch.einsum("bdnt,btn->btd", h, C) + D * x).to(dtype)


class SelectiveSSM(nn.Module):
    def __init__(self, d_model, d_state):
        super().__init__()
        self.A_log = nn.Parameter(torch.stack([torch.log(torch.tensor(range(1, d_state + 1)).float())] * d_model))
        self.D = nn.Parameter(torch.full((d_model,), 1.0))
        self.to_delta = nn.Linear(d_model, d_model, bias=True)
        self.to_B = nn.Linear(d_model, d_state, bias=False)
        self.to_C = nn.Linear(d_model, d_state, bias=False)

    def _rates(self):
        return self.A_log.exp().neg()

    def forward(self, x):
        raw = torch.nn.functional.linear(x, self.to_delta.weight)
        delta = nn.functional.softplus(raw + self.to_delta.bias)
        return selective_scan(x, delta, self._rates(), self.to_B(x), self.to_C(x), self.D)

    def step(self, x_t, h):
        delta = nn.functional.softplus(self.to_delta(x_t))[..., None]
        h = torch.exp(delta * self._rates()) * h + delta * self.to_B(x_t)[:, None] * x_t[..., None]
        return torch.matmul(h, self.to_C(x_t)[..., None])[..., 0], h


def chunked_selective_scan(x, delta, A, B, C, D, chunk):
    if not chunk >= 1:
        raise ValueError(f"need chunk >= 1, got {chunk}")
    dtype, T = x.dtype, x.shape[1]
    x, delta, A, B, C, D = (v.float() if v.dtype != torch.float64 else v for v in (x, delta, A, B, C, D))
    pieces, carried = [], None
    for start in range(0, T, chunk):
        part = slice(start, min(start + chunk, T))
        log_decay, write = _prepare(x[:, part], delta[:, part], A, B[:, part])
        h = _states(log_decay, write)
        if carried is not None:
            h = h + log_decay.cumsum(-1).exp() * carried[..., None]
        carried = h[..., -1]
        pieces.append(torch.einsum("bdnt,btn->btd", h, C[:, part]))
    return (torch.cat(pieces, 1) + D * x).to(dtype)
