"""The bias is not in the state dict.

Written as: experts sorted by number, logsigmoid and softmax for the weights, comparisons for the update.
"""

import torch
from torch import nn


class BiasBalancedRouter(nn.Module):
    def __init__(self, d_model, n_experts, k, bias_step=1e-3):
        super().__init__()
        if not 0 < k <= n_experts:
            raise ValueError(f"k must be in 1..{n_experts}, got {k}")
        self.n_experts, self.k, self.bias_step = n_experts, k, bias_step
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.register_buffer("bias", torch.zeros(n_experts), persistent=False)

    def forward(self, x):
        log_scores = nn.functional.logsigmoid(self.gate(x))
        scores = log_scores.exp()
        indices = torch.topk(scores + self.bias, self.k, dim=1, sorted=False).indices.sort(dim=1).values
        weights = torch.softmax(log_scores.gather(1, indices), dim=1)
        return weights, indices, scores

    def update_bias(self, indices):
        load = torch.bincount(indices.flatten(), minlength=self.n_experts)
        total = indices.numel()
        up, down = load * self.n_experts < total, load * self.n_experts > total
        self.bias += self.bias_step * (up.to(self.bias.dtype) - down.to(self.bias.dtype))
