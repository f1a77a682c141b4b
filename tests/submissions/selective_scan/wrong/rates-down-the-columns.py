"""The table of rates is transposed."""

import math

import torch
from torch import Tensor, nn


def _combine(first: tuple[Tensor, Tensor], then: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return first[0] * then[0], torch.addcmul(then[1], then[0], first[1])


def _tree(a: Tensor, b: Tensor, leaf: int) -> tuple[Tensor, Tensor]:
    """Inclusive scan over dimension 0."""
    length = a.shape[0]
    if length <= leaf:
        done = [(a[0], b[0])]
        for i in range(1, length):
            done.append(_combine(done[-1], (a[i], b[i])))
        return torch.stack([p for p, _ in done]), torch.stack([q for _, q in done])
    even = length - length % 2
    pairs = _combine((a[0:even:2], b[0:even:2]), (a[1:even:2], b[1:even:2]))
    odd_a, odd_b = _tree(*pairs, leaf)
    shifted = (
        torch.cat([torch.ones_like(a[:1]), odd_a])[: a[0::2].shape[0]],
        torch.cat([torch.zeros_like(b[:1]), odd_b])[: b[0::2].shape[0]],
    )
    even_a, even_b = _combine(shifted, (a[0::2], b[0::2]))
    out_a, out_b = torch.empty_like(a), torch.empty_like(b)
    out_a[0::2], out_b[0::2] = even_a, even_b
    out_a[1::2], out_b[1::2] = odd_a[: length // 2], odd_b[: length // 2]
    return out_a, out_b


def _run(x, delta, A, B, C, D, leaf):
    a = torch.exp(delta[..., None] * A).movedim(1, 0)
    b = ((delta * x)[..., None] * B[:, :, None]).movedim(1, 0)
    h = _tree(a, b, leaf)[1].movedim(0, 1)
    return (h @ C[..., None]).squeeze(-1) + D * x


def selective_scan(x, delta, A, B, C, D):
    return _run(x, delta, A, B, C, D, leaf=1)


class SelectiveSSM(nn.Module):
    def __init__(self, d_model: int, d_state: int):
        super().__init__()
        table = [[math.log(n)] * d_state for n in range(1, d_model + 1)]
        self.register_parameter("A_log", nn.Parameter(torch.tensor(table)))
        self.register_parameter("D", nn.Parameter(torch.ones(d_model)))
        self.to_delta = nn.Linear(d_model, d_model)
        self.to_B, self.to_C = (nn.Linear(d_model, d_state, bias=False) for _ in range(2))
        self.positive = nn.Softplus()

    def forward(self, x):
        return _run(x, self.positive(self.to_delta(x)), -torch.exp(self.A_log), self.to_B(x), self.to_C(x), self.D, 1)

    def step(self, x_t, h):
        x_t = x_t.unsqueeze(1)
        delta = self.positive(self.to_delta(x_t))
        now = torch.exp(delta[..., None] * -torch.exp(self.A_log)), (delta * x_t)[..., None] * self.to_B(x_t)[:, :, None]
        _, state = _combine((torch.ones_like(h), h), (now[0][:, 0], now[1][:, 0]))
        y = (state * self.to_C(x_t)).sum(-1) + self.D * x_t[:, 0]
        return y, state


def chunked_selective_scan(x, delta, A, B, C, D, chunk):
    if chunk <= 0:
        raise ValueError("chunk must be positive, not " + str(chunk))
    return _run(x, delta, A, B, C, D, leaf=max(1, min(chunk, 4)))
