"""Wrong, and in no catalogue: scores and biases are rounded to bfloat16 before the choice."""

import torch
from torch import nn


class BiasBalancedRouter(nn.Module):
    def __init__(self, d_model, n_experts, k, bias_step=1e-3):
        super().__init__()
        if k > n_experts:
            raise ValueError(f"k {k} > n_experts {n_experts}")
        self.k, self.n, self.step = k, n_experts, bias_step
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.register_buffer("bias", torch.zeros(n_experts))

    def forward(self, x):
        scores = torch.sigmoid(self.gate(x))
        idx = (scores.detach().bfloat16() + self.bias.bfloat16()).topk(self.k, dim=-1).indices
        w = scores.gather(-1, idx)
        return w / w.sum(-1, keepdim=True), idx, scores

    @torch.no_grad()
    def update_bias(self, indices):
        load = torch.bincount(indices.reshape(-1), minlength=self.n).double()
        mean = load.mean()
        self.bias += self.step * torch.sign(mean - load).to(self.bias.dtype)
