"""Wrong: softplus with threshold 5"""
import torch
from torch import nn
from torch.nn import functional as F


def recur(a, b):
    """a, b (..., T): h_t = a_t h_{t-1} + b_t"""
    n = a.shape[-1]
    m = torch.eye(n, dtype=a.dtype, device=a.device) - F.pad(torch.diag_embed(a[..., 1:], offset=-1), (0, 0, 0, 0))
    return torch.linalg.solve_triangular(m, b.unsqueeze(-1), upper=False, unitriangular=True).squeeze(-1)


def maps(x, delta, A, B):
    a = torch.einsum("btd,dn->bdnt", delta, A).exp()
    b = torch.einsum("btd,btn->bdnt", delta * x, B)
    return a, b


def wide(*ts):
    kind = torch.promote_types(ts[0].dtype, torch.float32)
    return [t.to(kind) for t in ts]


def selective_scan(x, delta, A, B, C, D):
    a, b = maps(*wide(x, delta, A, B))
    y = torch.einsum("bdnt,btn->btd", recur(a, b), C.to(a.dtype))
    return (y + x * D).to(x.dtype)


class SelectiveSSM(nn.Module):
    def __init__(self, d_model: int, d_state: int) -> None:
        super().__init__()
        self.A_log = nn.Parameter(torch.ones(d_model, d_state).cumsum(1).log())
        self.D = nn.Parameter(torch.ones(d_model))
        self.to_delta = nn.Linear(d_model, d_model)
        self.to_B = nn.Linear(d_model, d_state, bias=False)
        self.to_C = nn.Linear(d_model, d_state, bias=False)

    def _inputs(self, x):
        return F.softplus(self.to_delta(x), threshold=5), self.A_log.exp().neg(), self.to_B(x), self.to_C(x)

    def forward(self, x):
        return chunked_selective_scan(x, *self._inputs(x), self.D, 8)

    def step(self, x_t, h):
        dt, A, B, C = self._inputs(x_t)
        h = torch.addcmul((dt * x_t)[..., None] * B[:, None], (dt[..., None] * A).exp(), h)
        return torch.baddbmm((self.D * x_t)[..., None], h, C[..., None])[..., 0], h


def chunked_selective_scan(x, delta, A, B, C, D, chunk: int):
    if chunk < 1:
        raise ValueError(f"chunk is {chunk}")
    T = x.shape[1]
    k = min(chunk, T)
    a, b = maps(*wide(x, delta, A, B))
    pad = -T % k
    a, b = (F.pad(t, (0, pad)).unflatten(-1, (-1, k)) for t in (a, b))  # (B, d, N, chunks, k)
    own = recur(a, b)
    through = a.cumprod(-1)
    ends = recur(through[..., -1], own[..., -1])
    start = F.pad(ends[..., :-1], (1, 0))
    h = torch.addcmul(own, through, start[..., None]).flatten(-2)[..., :T]
    return (torch.einsum("bdnt,btn->btd", h, C.to(h.dtype)) + x * D).to(x.dtype)
