"""Right: own autograd.Function whose backward is the same recurrence run backwards, with saved states; chunks advance together, ends by doubling"""
import torch
from torch import Tensor, nn
import torch.nn.functional as F


def sweep(a, b):
    """(B, T, ...) by doubling over axis 1, never in place."""
    s = 1
    while s < a.size(1):
        b = torch.cat([b[:, :s], b[:, s:] + a[:, s:] * b[:, :-s]], 1)
        a = torch.cat([a[:, :s], a[:, s:] * a[:, :-s]], 1)
        s <<= 1
    return b


class Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        h = sweep(a, b)
        ctx.save_for_backward(a, h)
        return h

    @staticmethod
    def backward(ctx, g):
        a, h = ctx.saved_tensors
        shifted = torch.cat([a[:, 1:], torch.zeros_like(a[:, :1])], 1).flip(1)
        gb = sweep(shifted, g.flip(1)).flip(1)
        ga = gb * torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], 1)
        return ga, gb


def selective_scan(x, delta, A, B, C, D):
    d4 = delta.unsqueeze(-1)
    h = Recurrence.apply((d4 * A).exp(), (d4 * B.unsqueeze(2)) * x.unsqueeze(-1))
    return torch.sum(h * C.unsqueeze(2), -1).addcmul(x, D)


class SelectiveSSM(nn.Module):
    def __init__(self, d_model: int, d_state: int) -> None:
        super().__init__()
        rows = [[float(n) for n in range(1, d_state + 1)]] * d_model
        self.A_log = nn.Parameter(torch.tensor(rows).log_())
        self.D = nn.Parameter(torch.ones(d_model))
        self.to_delta = nn.Linear(d_model, d_model)
        self.to_B = nn.Linear(d_model, d_state, bias=False)
        self.to_C = nn.Linear(d_model, d_state, bias=False)

    def forward(self, x):
        dt = F.relu(z := self.to_delta(x)) + torch.log1p(torch.exp(-z.abs()))
        return selective_scan(x, dt, -self.A_log.exp(), self.to_B(x), self.to_C(x), self.D)

    def step(self, x_t, h):
        z = self.to_delta(x_t)
        dt = -F.logsigmoid(-z)
        new = h * torch.exp(-dt[:, :, None] * self.A_log.exp()) + torch.einsum("bd,bd,bn->bdn", dt, x_t, self.to_B(x_t))
        return (new * self.to_C(x_t)[:, None, :]).sum(-1) + x_t * self.D, new


def chunked_selective_scan(x, delta, A, B, C, D, chunk: int):
    if chunk <= 0:
        raise ValueError(f"no chunk of {chunk} steps")
    b, T, d = x.shape
    K = min(chunk, T)
    n = (T + K - 1) // K
    extra = n * K - T
    xs, ds, Bs, Cs = (torch.cat([t, t.new_zeros(b, extra, t.size(2))], 1).reshape(b, n, K, -1) for t in (x, delta, B, C))
    a = torch.exp(ds[..., None] * A)
    u = (ds * xs)[..., None] * Bs[..., None, :]
    inner = Recurrence.apply(a.flatten(0, 1), u.flatten(0, 1)).view_as(u)
    total = torch.exp(ds.sum(2)[..., None] * A)
    ends = Recurrence.apply(total, inner[:, :, -1])
    start = torch.cat([torch.zeros_like(ends[:, :1]), ends[:, :-1]], 1)
    h = inner + torch.exp(ds.cumsum(2)[..., None] * A) * start[:, :, None]
    y = torch.einsum("bckdn,bckn->bckd", h, Cs).flatten(1, 2)[:, :T]
    return y + D * x
