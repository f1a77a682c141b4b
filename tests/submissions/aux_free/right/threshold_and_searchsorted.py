"""Right: threshold mask, nonzero, searchsorted loads, torch.where chain, copy_"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class BiasBalancedRouter(nn.Module):
    def __init__(self, d_model, n_experts, k, bias_step=1e-3):
        super().__init__()
        if k > n_experts:
            raise ValueError(f"k={k} > n_experts={n_experts}")
        self.k, self.n, self.bias_step = k, n_experts, bias_step
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.register_buffer("bias", torch.zeros(n_experts))

    def forward(self, x):
        scores = torch.sigmoid(self.gate(x))
        key = scores.detach() + self.bias
        cut = key.kthvalue(self.n - self.k + 1, dim=1, keepdim=True).values
        indices = (key >= cut).nonzero()[:, 1].view(-1, self.k)
        chosen = scores.gather(1, indices)
        return chosen / chosen.sum(-1, keepdim=True), indices, scores

    @torch.no_grad()
    def update_bias(self, indices):
        flat = indices.flatten().sort().values
        edges = torch.searchsorted(flat, torch.arange(self.n + 1, device=flat.device))
        load = edges[1:] - edges[:-1]
        mean = indices.numel() / self.n
        step = torch.full_like(self.bias, self.bias_step)
        delta = torch.where(load > mean, -step, torch.where(load < mean, step, torch.zeros_like(step)))
        self.bias.copy_(self.bias + delta)
