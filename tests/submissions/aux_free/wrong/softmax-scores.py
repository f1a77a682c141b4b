"""Softmax in place of the sigmoid.

Written as: take_along_dim, F.normalize, comparison counts, a new tensor copied into the buffer.
"""

import torch
from torch import nn


class BiasBalancedRouter(nn.Module):
    def __init__(self, d_model, n_experts, k, bias_step=1e-3):
        super().__init__()
        if n_experts < k:
            raise ValueError(f"{n_experts} experts are fewer than k = {k}")
        self.k, self.bias_step = k, bias_step
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.register_buffer("bias", torch.zeros(n_experts))

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        _, indices = torch.add(scores.detach(), self.bias).topk(self.k)
        chosen = torch.take_along_dim(scores, indices, dim=1)
        return nn.functional.normalize(chosen, p=1, dim=1, eps=0), indices, scores

    def update_bias(self, indices):
        experts = torch.arange(len(self.bias), device=indices.device)
        load = (indices.reshape(-1, 1) == experts).sum(dim=0)
        mean = load.double().mean()
        step = torch.where(load > mean, -self.bias_step, torch.where(load < mean, self.bias_step, 0.0))
        step = torch.where((load - mean).abs() < 1e-9, torch.zeros_like(step), step)
        self.bias.copy_(self.bias + step.to(self.bias.dtype))
