"""Balancing without an auxiliary loss

Wang et al. 2024, Auxiliary-Loss-Free Load Balancing, arXiv:2408.15664, algorithm 1; DeepSeek-V3, arXiv:2412.19437,
section 2.1.2

Part 1 (6 points)  Select with the bias, weigh without it: BiasBalancedRouter
Part 2 (4 points)  Update the bias: BiasBalancedRouter

Target: part 1 in 15 minutes, from memory.

    kit show aux_free     the statement
    kit grade aux_free    the verdict (--part 1 for one part)
    kit hint aux_free     a nudge
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
        raise NotImplementedError("parts 1, 2: write BiasBalancedRouter.__init__")

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
        raise NotImplementedError("parts 1, 2: write BiasBalancedRouter.forward")

    def update_bias(self, indices: Tensor) -> None:
        """Move the bias by one step towards balance, in place.

        The bias of an expert whose load is above the mean load falls by bias_step, below the mean it rises by
        bias_step, and at the mean it stays. The load of an expert is the number of slots it was given.

        Args:
            indices: (N, k), int64, the experts chosen since the last update.
        """
        raise NotImplementedError("parts 1, 2: write BiasBalancedRouter.update_bias")
