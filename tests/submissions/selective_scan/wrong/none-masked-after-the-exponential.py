"""Wrong: mask after the exponential: NaN gradients"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, softplus


def cell(h: Tensor, x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
    h = h * torch.exp(delta.unsqueeze(-1) * A) + delta.unsqueeze(-1) * B.unsqueeze(-2) * x.unsqueeze(-1)
    return h, torch.matmul(h, C.unsqueeze(-1)).squeeze(-1) + D * x


def selective_scan(x, delta, A, B, C, D):
    h = x.new_zeros(x.shape[0], *A.shape)
    ys = []
    for now in zip(*(u.unbind(1) for u in (x, delta, B, C))):
        h, y = cell(h, now[0], now[1], A, now[2], now[3], D)
        ys.append(y)
    return torch.stack(ys, dim=1).to(x.dtype)


class SelectiveSSM(nn.Module):
    def __init__(self, d_model: int, d_state: int) -> None:
        super().__init__()
        self.A_log = nn.Parameter(torch.log(torch.ones(d_model, d_state).cumsum(1)))
        self.D = nn.Parameter(torch.ones(d_model))
        self.to_delta = nn.Linear(d_model, d_model)
        self.to_B = nn.Linear(d_model, d_state, bias=False)
        self.to_C = nn.Linear(d_model, d_state, bias=False)

    def inputs(self, x):
        return x, softplus(self.to_delta(x)), -torch.exp(self.A_log), self.to_B(x), self.to_C(x), self.D

    def forward(self, x):
        return chunked_selective_scan(*self.inputs(x), 16)

    def step(self, x_t, h):
        h, y = cell(h, *self.inputs(x_t))
        return y, h


def chunked_selective_scan(x, delta, A, B, C, D, chunk):
    if not chunk >= 1:
        raise ValueError(f"chunk={chunk}")
    bsz, T, d = x.shape
    size = max(min(chunk, 16), 1) if T > 16 else min(chunk, T)
    size = max(size, 8) if T > 8 else size
    more = -T % size
    x_, delta_, B_, C_ = (pad(u, (0, 0, 0, more)).unflatten(1, (-1, size)) for u in (x, delta, B, C))
    cum = torch.cumsum(delta_, 2)
    gap = cum.unsqueeze(3) - cum.unsqueeze(2)
    lower = torch.ones(size, size, dtype=torch.bool, device=x.device).tril()
    decay = torch.exp(gap.unsqueeze(-1) * A).masked_fill(~lower[:, :, None, None], 0.0)
    write = (delta_ * x_).unsqueeze(-1) * B_.unsqueeze(-2)
    h = torch.einsum("bkijdn,bkjdn->bkidn", decay, write)
    ends, through = h[:, :, -1], torch.exp(cum[:, :, -1].unsqueeze(-1) * A)
    carry, into = torch.zeros_like(ends[:, 0]), []
    for k in range(ends.shape[1]):
        into.append(carry)
        carry = torch.addcmul(ends[:, k], through[:, k], carry)
    h = h + torch.exp(cum.unsqueeze(-1) * A) * torch.stack(into, 1).unsqueeze(2)
    y = torch.einsum("bkidn,bkin->bkid", h, C_).flatten(1, 2)[:, :T]
    return (y + D * x).to(x.dtype)
