"""Wrong: loads in the dtype of the bias: bfloat16 module."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BiasBalancedRouter(nn.Module):
    def __init__(self, d_model: int, n_experts: int, k: int, bias_step: float = 1e-3) -> None:
        super().__init__()
        if k > n_experts:
            raise ValueError(f"k {k} > n_experts {n_experts}")
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.register_buffer("bias", torch.zeros(n_experts))
        self.k, self.n_experts, self.bias_step = k, n_experts, bias_step

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scores = self.gate(x).sigmoid()
        indices = (scores + self.bias).topk(self.k, -1).indices
        chosen = scores.gather(1, indices)
        return chosen / chosen.sum(-1, keepdim=True), indices, scores

    @torch.no_grad()
    def update_bias(self, indices: Tensor) -> None:
        load = torch.zeros_like(self.bias).scatter_add_(0, indices.flatten(), self.bias.new_ones(indices.numel()))
        self.bias += self.bias_step * torch.sign(load.mean() - load).to(self.bias.dtype)
