"""Balancing without an auxiliary loss: a bias per expert that enters the selection and nothing else.

Papers: Wang et al. 2024, Auxiliary-Loss-Free Load Balancing, arXiv:2408.15664, algorithm 1; DeepSeek-AI 2024,
DeepSeek-V3, arXiv:2412.19437, section 2.1.2, eq. 12-16 (sigmoid scores, selection with s + b, gates from s alone).

    s_i = sigmoid((x W_g)_i)             K = the k experts with the largest s_i + b_i
    g_i = s_i / sum_{j in K} s_j         b_i <- b_i + step * sign(mean load - load_i), once per training step

N tokens, E experts, k experts per token. An auxiliary loss pulls on the router with a gradient of its own, against the
language-model loss; the bias moves the decision and leaves every gradient alone. Its cost is one all-reduce of E counts
per step. The sign makes the step independent of batch size and of how badly an expert is off.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BiasBalancedRouter(nn.Module):
    """Top-k router whose selection is balanced by a bias per expert.

    Args:
        d_model: width of a token.
        n_experts: E.
        k: experts per token.
        bias_step: how far the bias of an expert moves per update.

    Attributes:
        gate: nn.Linear(d_model, n_experts) without bias.
        bias: (E,), a buffer (in the state dict, moved with the module), zeros at first, never reached by a gradient.

    Raises:
        ValueError: k > n_experts.
    """

    def __init__(self, d_model: int, n_experts: int, k: int, bias_step: float = 1e-3) -> None:
        super().__init__()
        if not 1 <= k <= n_experts:
            raise ValueError(f"k must be between 1 and n_experts, got k={k} and n_experts={n_experts}")
        self.k, self.bias_step = k, bias_step
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.register_buffer("bias", torch.zeros(n_experts))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Route N tokens.

        Args:
            x: (N, d_model).

        Returns:
            weights: (N, k), x's dtype; the chosen experts' scores, without the bias, divided by their sum.
            indices: (N, k), int64; the k experts with the largest score + bias, all different and in any order;
                weights[n, j] belongs to indices[n, j].
            scores: (N, E), x's dtype; sigmoid of the gate's output, without the bias.
        """
        wide = torch.promote_types(x.dtype, torch.float32)
        logits = self.gate(x).to(wide)  # (N, E)
        scores = torch.sigmoid(logits)
        selection = scores.detach() + self.bias  # decides, and is then forgotten
        indices = selection.topk(self.k, dim=-1).indices  # (N, k)
        chosen = scores.gather(1, indices)  # gathered, not selection - bias: that would lose small scores
        weights = chosen / chosen.sum(dim=-1, keepdim=True)
        return weights.to(x.dtype), indices, scores.to(x.dtype)

    def update_bias(self, indices: Tensor) -> None:
        """Move the bias by one step towards balance, in place.

        The bias of an expert whose load is above the mean load falls by bias_step, below the mean it rises by
        bias_step, and at the mean it stays. The load of an expert is the number of slots it was given.

        Args:
            indices: (N, k), int64, the experts chosen since the last update.
        """
        n_experts = self.bias.numel()
        load = torch.bincount(indices.reshape(-1), minlength=n_experts)  # (E,)
        excess = load * n_experts - indices.numel()  # E (load - mean) in integers: equal means exactly equal
        direction = -torch.sign(excess)
        with torch.no_grad():
            self.bias += self.bias_step * direction.to(self.bias.dtype)
