"""The bias is clipped to [-10, 10] by the update."""

from __future__ import annotations
import torch
from torch import Tensor, nn


class BiasBalancedRouter(nn.Module):
    def __init__(self, d_model, n_experts, k, bias_step=1e-3):
        super().__init__()
        if k > n_experts:
            raise ValueError(f"k={k} > n_experts={n_experts}")
        self.k, self.bias_step = k, bias_step
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.register_buffer("bias", torch.zeros(n_experts))

    def forward(self, x):
        scores = torch.sigmoid(self.gate(x))
        indices = (scores + self.bias).topk(self.k, dim=-1).indices
        chosen = scores.gather(1, indices)
        weights = chosen / chosen.sum(dim=-1, keepdim=True)
        return weights, indices, scores

    @torch.no_grad()
    def update_bias(self, indices):
        E = self.bias.shape[0]
        load = torch.bincount(indices.reshape(-1), minlength=E)
        mean = indices.numel() / E
        self.bias += self.bias_step * torch.sign(mean - load.double()).to(self.bias.dtype)
        self.bias.clamp_(-10, 10)
