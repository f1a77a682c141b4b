"""Right: token mask by kthvalue rank and dense one-hot matmul; counts through sort and searchsorted; tables normalised to probabilities"""
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
        self.n_experts, self.capacity_factor = n_experts, capacity_factor
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_experts)])

    def probabilities(self, flat):
        z = self.gate(flat)
        z = z - z.amax(-1, keepdim=True)
        e = z.exp()
        return e / e.sum(-1, keepdim=True)

    def route(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        p = self.probabilities(flat)
        capacity = min(len(flat), -int(-self.capacity_factor * len(flat) // self.n_experts))
        pairs = [column.topk(capacity, sorted=False) for column in p.unbind(1)]
        return torch.stack([v for v, _ in pairs]), torch.stack([i for _, i in pairs])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.reshape(-1, x.shape[-1])
        w, who = self.route(flat)
        pick = F.one_hot(who, len(flat)).to(x.dtype)
        inside = torch.einsum("ecn,nd->ecd", pick, flat)
        out = torch.stack([f(t) for f, t in zip(self.experts, inside)])
        y = torch.einsum("ecn,ec,ecd->nd", pick, w, out)
        return y.reshape(x.shape), self.probabilities(flat).mean(0).sum()


def experts_per_token(token_indices: Tensor, n_tokens: int) -> Tensor:
    return (token_indices.reshape(-1, 1) == torch.arange(n_tokens, device=token_indices.device)).sum(0)


def leaking_example(n_experts: int, capacity: int) -> tuple[Tensor, Tensor]:
    logits = torch.zeros(capacity + 2, n_experts, dtype=torch.float64)
    logits[:, 0] = torch.linspace(3.0, 5.0, capacity + 2, dtype=torch.float64)
    logits[-2, 0] = -9.0
    logits[-1, 0] = -8.0
    other = logits.clone()
    other[-1, 0] = 9.0
    return logits.softmax(1), other.softmax(1)
