"""Wrong: chosen places set to -1: keys below -1."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class _Gate(nn.Linear):
    def forward(self, x):
        return super().forward(x)


class BiasBalancedRouter(nn.Module):
    def __init__(self, d_model: int, n_experts: int, k: int, bias_step: float = 1e-3) -> None:
        super().__init__()
        if not k <= n_experts:
            raise ValueError(f"need k <= n_experts, got {k} and {n_experts}")
        self.k = k
        self.rate = bias_step
        self.gate = _Gate(d_model, n_experts, bias=False)
        self.register_buffer("bias", self.gate.weight.detach().new_zeros(n_experts))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = self.gate(x)
        scores = torch.sigmoid(z)
        left = (scores + self.bias).detach()
        columns = []
        for _ in range(self.k):
            best = left.argmax(-1)
            columns.append(best)
            left = left.index_put((torch.arange(len(x), device=x.device), best), left.new_tensor(-1.0))
        indices = torch.stack(columns, 1)
        # normalised in the log domain
        logs = F.logsigmoid(z).gather(1, indices)
        return logs.softmax(-1), indices, scores

    def update_bias(self, indices: Tensor) -> None:
        e = self.bias.shape[0]
        load = torch.zeros(e, dtype=torch.int64, device=indices.device)
        load.scatter_add_(0, indices.flatten(), torch.ones_like(indices.flatten()))
        mean = load.double().mean()
        move = torch.where(load > mean, -self.rate, torch.where(load < mean, self.rate, 0.0))
        self.bias.copy_(self.bias + move.to(self.bias))
