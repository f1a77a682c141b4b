"""Wrong: load in bfloat16."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class BiasBalancedRouter(nn.Module):
    """float64 inside, dense mask."""

    bias: Tensor

    def __init__(self, d_model: int, n_experts: int, k: int, bias_step: float = 1e-3) -> None:
        if n_experts < k:
            raise ValueError(f"{k} of {n_experts}")
        super().__init__()
        self.register_buffer("bias", torch.zeros((n_experts,)))
        self.gate = nn.Linear(d_model, n_experts, False)
        self.n_experts, self.k, self.step = n_experts, k, bias_step

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s = F.linear(x.double(), self.gate.weight.double()).sigmoid()
        key = s.detach() + self.bias.double()
        indices = key.topk(self.k, sorted=False).indices
        on = torch.zeros_like(key).scatter(1, indices, 1.0)
        w = s * on / torch.sum(s * on, 1, keepdim=True)
        return w.gather(1, indices).to(x.dtype), indices, s.to(x.dtype)

    def update_bias(self, indices: Tensor) -> None:
        load = torch.bincount(indices.reshape(-1), minlength=self.n_experts).bfloat16()
        mean = indices.numel() / self.n_experts
        delta = (load < mean).to(self.bias.dtype) - (load > mean).to(self.bias.dtype)
        self.bias.add_(delta, alpha=self.step)
