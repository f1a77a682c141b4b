"""Wrong: decay floors at 1e-6"""
import torch
import torch.nn as nn


def compose(left, right):
    return left[0] * right[0], torch.addcmul(right[1], right[0], left[1])


def scan(elems):
    n = elems[0].shape[0]
    if n < 2:
        return elems
    pairs = compose(tuple(e[: n - 1 : 2] for e in elems), tuple(e[1::2] for e in elems))
    odd = scan(pairs)
    m = odd[0].shape[0] - (1 if n % 2 == 0 else 0)
    rest = compose(tuple(o[:m] for o in odd), tuple(e[2::2] for e in elems))
    even = tuple(torch.cat([e[:1], r]) for e, r in zip(elems, rest))
    out = []
    for e, o in zip(even, odd):
        z = torch.zeros((n, *e.shape[1:]), dtype=e.dtype, device=e.device)
        z = z.index_put((torch.arange(0, n, 2, device=e.device),), e).index_put((torch.arange(1, n, 2, device=e.device),), o)
        out.append(z)
    return tuple(out)


def lift(x, delta, A, B):
    dt = delta.movedim(1, 0)[..., None]
    return torch.exp(dt * A).clamp(min=1e-6), dt * x.movedim(1, 0)[..., None] * B.movedim(1, 0).unsqueeze(2)


def selective_scan(x, delta, A, B, C, D):
    _, h = scan(lift(x, delta, A, B))
    return ((h @ C.movedim(1, 0)[..., None])[..., 0] + D * x.movedim(1, 0)).movedim(0, 1)


class SelectiveSSM(nn.Module):
    def __init__(self, d_model: int, d_state: int) -> None:
        super().__init__()
        self.A_log = nn.Parameter(torch.log(torch.tile(torch.arange(1.0, d_state + 1), (d_model, 1))))
        self.register_parameter("D", nn.Parameter(torch.full((d_model,), 1.0)))
        self.to_delta = nn.Linear(d_model, d_model, bias=True)
        self.to_B, self.to_C = (nn.Linear(d_model, d_state, bias=False) for _ in range(2))

    def parts(self, x):
        delta = torch.logaddexp(self.to_delta(x), torch.zeros_like(x))
        return delta, -torch.exp(self.A_log), self.to_B(x), self.to_C(x)

    def forward(self, x):
        delta, A, B, C = self.parts(x)
        return selective_scan(x, delta, A, B, C, self.D)

    def step(self, x_t, h):
        x = x_t[:, None]
        delta, A, B, C = self.parts(x)
        a, b = lift(x, delta, A, B)
        h = a[0] * h + b[0]
        return torch.einsum("bdn,bn->bd", h, C[:, 0]) + self.D * x_t, h


def chunked_selective_scan(x, delta, A, B, C, D, chunk: int):
    if not chunk >= 1:
        raise ValueError(f"chunk must be >= 1, got {chunk}")
    return selective_scan(x, delta, A, B, C, D)
