"""Right: a custom autograd.Function normalises the chosen scores; data attribute updated."""

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
        scores = (
            1 / (1 + torch.exp(-self.gate(x).float().clamp(min=-80))).to(torch.float32)
            if x.dtype == torch.float32
            else torch.sigmoid(self.gate(x))
        )
        scores = scores.to(x.dtype)
        _, indices = torch.topk(scores.detach() + self.bias, self.k, dim=1, sorted=False)
        return _Share.apply(torch.take_along_dim(scores, indices, 1)), indices, scores


class _Share(torch.autograd.Function):
    @staticmethod
    def forward(ctx, s):
        total = s.sum(-1, keepdim=True)
        w = s / total
        ctx.save_for_backward(w, total)
        return w

    @staticmethod
    def backward(ctx, g):
        w, total = ctx.saved_tensors
        return (g - (g * w).sum(-1, keepdim=True)) / total


class BiasBalancedRouter(BiasBalancedRouter):
    def update_bias(self, indices: Tensor) -> None:
        load = (indices[..., None] == torch.arange(self.n_experts, device=indices.device)).sum((0, 1))
        self.bias.data -= self.bias_step * (load * self.n_experts - indices.numel()).clamp(-1, 1)
