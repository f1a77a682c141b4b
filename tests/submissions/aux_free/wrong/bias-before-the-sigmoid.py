"""The bias is added to the logits.

Written as: -inf outside the chosen, normalised dense table, then gathered.
"""

import torch
from torch import nn


class BiasBalancedRouter(nn.Module):
    def __init__(self, d_model, n_experts, k, bias_step=1e-3):
        super().__init__()
        if k > n_experts:
            raise ValueError(f"k={k} of {n_experts}")
        self.k, self.step = k, bias_step
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.register_buffer("bias", torch.zeros(n_experts))

    def forward(self, x):
        scores = 1 / (1 + torch.exp(-self.gate(x)))
        with torch.no_grad():
            picked = (self.gate(x) + self.bias).sigmoid().argsort(dim=-1, descending=True)[:, : self.k]
            chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, picked, True)
        table = torch.where(chosen, scores, 0)
        table = table / table.sum(-1, keepdim=True)
        return table.gather(1, picked), picked, scores

    @torch.no_grad()
    def update_bias(self, indices):
        load = torch.nn.functional.one_hot(indices, self.bias.numel()).sum((0, 1)).double()
        error = load.sum() / load.numel() - load
        error[error.abs() < 1e-9] = 0
        self.bias.add_(self.step * error.sign().to(self.bias.dtype))
