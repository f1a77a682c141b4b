"""No gradient through the weights.

Written as: row by row in Python, counters for the loads.
"""

from collections import Counter

import torch
from torch import nn


class BiasBalancedRouter(nn.Module):
    def __init__(self, d_model, n_experts, k, bias_step=1e-3):
        super().__init__()
        if k > n_experts:
            raise ValueError(f"cannot choose {k} of {n_experts} experts")
        self.k = k
        self.bias_step = bias_step
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.register_buffer("bias", torch.zeros(n_experts))

    def forward(self, x):
        scores = torch.sigmoid(self.gate(x))
        weights, indices = [], []
        for row in scores:
            rank = (row.detach().float() + self.bias.float()).tolist()
            chosen = sorted(range(len(rank)), key=rank.__getitem__)[-self.k :]
            picked = torch.stack([row.detach()[i] for i in chosen])
            weights.append(picked / sum(picked))
            indices.append(torch.tensor(chosen, device=x.device))
        return torch.stack(weights), torch.stack(indices), scores

    def update_bias(self, indices):
        load = Counter(indices.flatten().tolist())
        mean = indices.numel() / len(self.bias)
        for i in range(len(self.bias)):
            if abs(load[i] - mean) > 1e-9:
                self.bias[i] += self.bias_step if load[i] < mean else -self.bias_step
