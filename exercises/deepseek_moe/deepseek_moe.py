"""Fine-grained, shared and group-limited experts

Dai et al. 2024, DeepSeekMoE, arXiv:2401.06066, section 3; DeepSeek-V3, arXiv:2412.19437, section 2.1.2

Part 1 (5 points)  Fine-grained layer with shared experts: DeepSeekMoE
Part 2 (2 points)  Parameter arithmetic: moe_parameter_counts
Part 3 (3 points)  Group-limited routing: group_limited_topk

Given whole: SwiGLU

Target: part 1 in 25 minutes, from memory.

    kit show deepseek_moe     the statement
    kit grade deepseek_moe    the verdict (--part 1 for one part)
    kit hint deepseek_moe     a nudge
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SwiGLU(nn.Module):
    """w_down(silu(w_gate(x)) * w_up(x)), no bias."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w_gate = nn.Linear(d_model, d_ff, bias=False)
        self.w_up = nn.Linear(d_model, d_ff, bias=False)
        self.w_down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., d_model) to (..., d_model)."""
        return self.w_down(F.silu(self.w_gate(x)) * self.w_up(x))


class DeepSeekMoE(nn.Module):
    """Mixture-of-experts layer with fine-grained and shared experts.

    Args:
        d_model: width of a token.
        d_ff: hidden width of an expert before the split.
        n_experts: E, routed experts before the split.
        k: experts per token before the split.
        split: m; there are m * n_experts routed experts of width d_ff // m, of which a token uses m * k.
        n_shared: experts of width d_ff // m that every token passes through, added ungated.

    Attributes:
        gate: nn.Linear(d_model, m * n_experts) without bias.
        experts: nn.ModuleList of m * n_experts SwiGLU.
        shared: nn.ModuleList of n_shared SwiGLU.

    Raises:
        ValueError: d_ff is not a multiple of split, or k > n_experts.
    """

    def __init__(self, d_model: int, d_ff: int, n_experts: int, k: int, split: int = 1, n_shared: int = 1) -> None:
        raise NotImplementedError("part 1: write DeepSeekMoE.__init__")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the layer.

        Args:
            x: (B, T, d_model).

        Returns:
            y: (B, T, d_model), x's dtype; routed plus shared experts, without the residual.
            aux: scalar, x's dtype; n * sum_i f_i P_i over the n routed experts, f_i the share of the slots given to
                expert i (sums to 1), P_i its mean probability; not scaled by a coefficient.
        """
        raise NotImplementedError("part 1: write DeepSeekMoE.forward")


def moe_parameter_counts(d_model: int, d_ff: int, n_experts: int, k: int, n_shared: int = 0) -> tuple[int, int]:
    """Parameters of one layer's SwiGLU experts.

    Args:
        d_model: width of a token.
        d_ff: hidden width of one expert.
        n_experts: routed experts.
        k: routed experts per token.
        n_shared: experts that every token uses, of the same width.

    Returns:
        total: parameters of all expert matrices, routed and shared.
        active: those that one token's forward uses. Router, attention and embeddings are not counted.
    """
    raise NotImplementedError("part 2: write moe_parameter_counts")


def group_limited_topk(scores: Tensor, k: int, n_groups: int, top_groups: int) -> tuple[Tensor, Tensor]:
    """The k best experts of each token among those in its best groups.

    Experts lie in n_groups groups of consecutive numbers and equal size. A group's score is the sum of its two best
    experts' scores. Only experts of the top_groups best groups can be chosen.

    Args:
        scores: (N, E), non-negative.
        k: experts per token.
        n_groups: groups of E / n_groups experts each.
        top_groups: groups a token may use.

    Returns:
        weights: (N, k), scores' dtype; the chosen scores divided by their sum.
        indices: (N, k), int64; the chosen experts, all different and in any order; weights[n, j] belongs to
            indices[n, j].

    Raises:
        ValueError: E is not a multiple of n_groups, or k > E.
    """
    raise NotImplementedError("part 3: write group_limited_topk")
