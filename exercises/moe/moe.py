"""Sparse mixture of experts

Shazeer et al. 2017, arXiv:1701.06538; Fedus et al. 2021, Switch Transformers, arXiv:2101.03961, eq. 4-6; Jiang et al.
2024, Mixtral, arXiv:2401.04088

Part 1 (2 points)  Top-k router: TopKRouter
Part 2 (2 points)  Balance loss: load_balancing_loss
Part 3 (3 points)  Experts and the layer: Expert, MoELayer
Part 4 (3 points)  Capacity and shared experts: MoELayer

Target: part 1 in 25 minutes, from memory.

    kit show moe     the statement
    kit grade moe    the verdict (--part 1 for one part)
    kit hint moe     a nudge
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TopKRouter(nn.Module):
    """Chooses k of n_experts experts for every token.

    Args:
        d_model: width of a token.
        n_experts: E, experts to choose from.
        k: experts per token.

    Attributes:
        gate: nn.Linear(d_model, n_experts) without bias; its output is the router's logits.

    Raises:
        ValueError: k > n_experts.
    """

    def __init__(self, d_model: int, n_experts: int, k: int) -> None:
        raise NotImplementedError("part 1: write TopKRouter.__init__")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Route N tokens.

        Args:
            x: (N, d_model), any floating dtype.

        Returns:
            weights: (N, k), x's dtype; each row sums to 1, also for k = 1.
            indices: (N, k), int64; the chosen experts of each token, all different and in any order;
                weights[n, j] belongs to indices[n, j].
            probs: (N, E), x's dtype; the router's softmax over all experts.
        """
        raise NotImplementedError("part 1: write TopKRouter.forward")


def load_balancing_loss(probs: Tensor, indices: Tensor) -> Tensor:
    """Auxiliary balance loss E * sum_i f_i P_i, not scaled by any coefficient.

    f_i is the share of the N*k slots that expert i was given (sums to 1), P_i its mean router probability. The loss is
    1 when the load is balanced. Gradients reach ``probs`` through P only.

    Args:
        probs: (N, E), the router's probabilities over all experts.
        indices: (N, k), int64, the chosen experts of each token.

    Returns:
        Scalar tensor of probs' dtype.
    """
    raise NotImplementedError("part 2: write load_balancing_loss")


class Expert(nn.Module):
    """A two-layer MLP, w2(silu(w1(x))).

    Args:
        d_model: width in and out.
        d_ff: hidden width.

    Attributes:
        w1: nn.Linear(d_model, d_ff) with bias.
        w2: nn.Linear(d_ff, d_model) with bias.
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        raise NotImplementedError("part 3: write Expert.__init__")

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., d_model) to (..., d_model)."""
        raise NotImplementedError("part 3: write Expert.forward")


class MoELayer(nn.Module):
    """Mixture-of-experts feed-forward layer.

    Args:
        d_model: width of a token.
        d_ff: hidden width of every expert, shared ones too.
        n_experts: E, routed experts.
        k: routed experts per token.
        n_shared: experts that every token passes through, ungated, added to the routed sum.
        capacity_factor: None: no token is dropped. Otherwise an expert takes at most
            ceil(capacity_factor * N * k / E) of the N = B*T tokens of one forward: the first that chose it, in token
            order. A slot beyond that adds 0 to its token, and the weights of the token's other slots stay as they are.

    Attributes:
        router: TopKRouter(d_model, n_experts, k).
        experts: nn.ModuleList of n_experts Expert.
        shared: nn.ModuleList of n_shared Expert.
        last_usage: (E,), how many tokens each routed expert really processed in the last forward.

    Raises:
        ValueError: k > n_experts.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        n_experts: int,
        k: int = 2,
        n_shared: int = 0,
        capacity_factor: float | None = None,
    ) -> None:
        raise NotImplementedError("parts 3, 4: write MoELayer.__init__")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the layer.

        Args:
            x: (B, T, d_model).

        Returns:
            y: (B, T, d_model), x's dtype; the layer's output without the residual.
            aux: scalar, load_balancing_loss of the router's choice before any slot is dropped, not scaled.

        Raises:
            ValueError: no token (B*T = 0).
        """
        raise NotImplementedError("parts 3, 4: write MoELayer.forward")
