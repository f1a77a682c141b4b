"""Wrong: bias subtracted and updated the other way round."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BiasBalancedRouter(nn.Module):
    def __init__(self, d_model: int, n_experts: int, k: int, bias_step: float = 1e-3) -> None:
        super().__init__()
        if k > n_experts:
            raise ValueError(f"k = {k} > {n_experts}")
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.register_buffer("bias", torch.zeros(n_experts))
        self.k, self.bias_step = k, bias_step

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scores = 1 / (1 + torch.exp(-torch.einsum("nd,ed->ne", x, self.gate.weight)))
        with torch.no_grad():
            order = (scores - self.bias).argsort(-1, descending=True)
            indices = order[:, : self.k]
        chosen = scores.take_along_dim(indices, -1)
        return chosen / chosen.sum(-1, keepdim=True), indices, scores

    @torch.no_grad()
    def update_bias(self, indices: Tensor) -> None:
        e = self.bias.numel()
        load = torch.stack([(indices == i).sum() for i in range(e)])
        # load * E against N k: whole numbers
        self.bias += self.bias_step * torch.sign(load * e - indices.numel()).to(self.bias.dtype)
