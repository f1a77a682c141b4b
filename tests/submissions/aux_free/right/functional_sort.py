"""Right: stable sort, functional_call of the gate, integers compared as E * load against N * k."""

from __future__ import annotations

import torch
import torch.nn.functional as F
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
        logits = torch.func.functional_call(self.gate, dict(self.gate.named_parameters()), (x,))
        scores = torch.special.expit(logits)
        with torch.inference_mode(False), torch.no_grad():
            order = torch.sort(scores.detach() + self.bias, dim=-1, descending=True, stable=True).indices
        indices = order[:, : self.k].contiguous()
        rows = torch.arange(x.shape[0], device=x.device)[:, None]
        chosen = scores[rows, indices]
        return F.normalize(chosen, p=1.0, dim=-1, eps=0.0), indices, scores

    def update_bias(self, indices: Tensor) -> None:
        load = torch.zeros(self.n_experts, dtype=torch.long, device=indices.device)
        load.index_add_(0, indices.reshape(-1), torch.ones_like(indices).reshape(-1))
        short = indices.numel() - self.n_experts * load
        self.bias.add_(short.sign(), alpha=self.bias_step)
