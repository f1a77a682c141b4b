"""Hillis-Steele with clones updated in place, chunk after chunk; the step reuses the scan with the state folded into its write."""

import torch
import torch.nn as nn
import torch.nn.functional as F


@torch.no_grad()
def _rates_init(d_model, d_state):
    return torch.log(torch.linspace(1, d_state, d_state)).repeat(d_model, 1)


def _scan_chunk(decay, write, start):
    write = torch.cat([(write[:, :1] + decay[:, :1] * start[:, None]), write[:, 1:]], dim=1)
    reach = 1
    while reach < decay.shape[1]:
        new_write, new_decay = write.clone(), decay.clone()
        new_write[:, reach:] += decay[:, reach:] * write[:, :-reach]
        new_decay[:, reach:] *= decay[:, :-reach]
        write, decay = new_write, new_decay
        reach += reach
    return write


def _all(x, delta, A, B, C, D, chunk, start=None):
    kind = x.dtype
    wide = torch.float64 if kind == torch.float64 else torch.float32
    x, delta, A, B, C, D = [v.to(wide) for v in (x, delta, A, B, C, D)]
    decay = torch.exp(torch.einsum("btd,dn->btdn", delta, A))
    write = torch.einsum("btd,btn->btdn", delta * x, B)
    h = torch.zeros_like(write[:, 0]) if start is None else start
    states = []
    for decay_part, write_part in zip(decay.split(chunk, 1), write.split(chunk, 1)):
        states.append(_scan_chunk(decay_part, write_part, h))
        h = states[-1][:, -1]
    y = torch.einsum("btdn,btn->btd", torch.cat(states, 1), C) + D * x
    return y.to(kind), h


def selective_scan(x, delta, A, B, C, D):
    return _all(x, delta, A, B, C, D, chunk=x.shape[1])[0]


class SelectiveSSM(nn.Module):
    def __init__(self, d_model, d_state):
        super().__init__()
        self.A_log = nn.Parameter(_rates_init(d_model, d_state))
        self.D = nn.Parameter(torch.ones(d_model))
        self.to_delta = nn.Linear(d_model, d_model)
        self.to_B = nn.Linear(d_model, d_state, bias=False)
        self.to_C = nn.Linear(d_model, d_state, bias=False)

    def _arguments(self, x):
        z = self.to_delta(x)
        delta = torch.logaddexp(z, torch.zeros_like(z))
        return x, delta, torch.exp(self.A_log) * -1, self.to_B(x), self.to_C(x), self.D

    def forward(self, x):
        return selective_scan(*self._arguments(x))

    def step(self, x_t, h):
        y, state = _all(*self._arguments(x_t[:, None]), chunk=1, start=h)
        return y[:, 0], state


def chunked_selective_scan(x, delta, A, B, C, D, chunk):
    if chunk < 1:
        raise ValueError("a chunk has at least one step, got %d" % chunk)
    return _all(x, delta, A, B, C, D, chunk)[0]
