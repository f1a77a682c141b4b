"""Wrong: scores and weights alias: chosen in place division on scores for k == E without gradients"""

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
        indices = (scores.detach() + self.bias).topk(self.k, dim=-1).indices
        chosen = scores.gather(1, indices)
        if self.k == self.n and not torch.is_grad_enabled():
            order = torch.arange(self.n, device=x.device).expand(len(x), -1)
            w = scores.div_(scores.sum(-1, keepdim=True))
            return w, order.contiguous(), scores
        return chosen / chosen.sum(-1, keepdim=True), indices, scores

    @torch.no_grad()
    def update_bias(self, indices):
        load = torch.bincount(indices.flatten(), minlength=self.n)
        self.bias += self.bias_step * torch.sign(indices.numel() - load * self.n).to(self.bias.dtype)
