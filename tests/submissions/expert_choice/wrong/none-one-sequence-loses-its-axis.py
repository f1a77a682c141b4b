"""Wrong: batch of one returned without its axis"""
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Expert(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)))


class ExpertChoiceMoE(nn.Module):
    def __init__(self, d_model: int, d_ff: int, n_experts: int, capacity_factor: float = 1.0) -> None:
        super().__init__()
        self.factor = capacity_factor
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_experts))

    def _choose(self, flat):
        n, e = flat.shape[0], len(self.experts)
        c = min(n, math.ceil(self.factor * n / e))
        p = self.gate(flat).log_softmax(-1).exp()
        rows = p.detach().argsort(0, descending=True)[:c].mT
        return p.mT.gather(1, rows), rows, p

    def route(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        return self._choose(flat)[:2]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.flatten(0, -2)
        w, rows, p = self._choose(flat)
        stack = lambda f: torch.stack([f(e) for e in self.experts])
        h = torch.baddbmm(stack(lambda e: e.w1.bias)[:, None], flat[rows], stack(lambda e: e.w1.weight).mT)
        out = torch.baddbmm(stack(lambda e: e.w2.bias)[:, None], F.silu(h), stack(lambda e: e.w2.weight).mT)
        y = torch.zeros_like(flat).index_put((rows,), out * w.unsqueeze(-1), accumulate=True)
        return y.unflatten(0, x.shape[:-1]) if x.shape[0] > 1 else y, p.mean(0).sum()


def experts_per_token(token_indices: Tensor, n_tokens: int) -> Tensor:
    flat = token_indices.reshape(-1)
    return flat.new_zeros(n_tokens).scatter_add(0, flat, torch.ones_like(flat))


def leaking_example(n_experts: int, capacity: int) -> tuple[Tensor, Tensor]:
    n = capacity + 1
    ladder = torch.linspace(2.0, 3.0, n)
    before = torch.softmax(torch.randn(n, n_experts, generator=torch.Generator().manual_seed(1)) * 1e-3 - ladder.flip(0)[:, None], -1)
    before = ladder[:, None].expand(n, n_experts).clone()
    before[-1] = 1.0
    after = before.clone()
    after[-1, ::2] = 4.0
    return before / 8, after / 8
