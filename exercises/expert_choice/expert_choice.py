"""Expert-choice routing

Zhou et al. 2022, Mixture-of-Experts with Expert Choice Routing, arXiv:2202.09368, section 3.2

Part 1 (4 points)  Route and combine: ExpertChoiceMoE
Part 2 (3 points)  Loads, loss, tokens nobody takes: ExpertChoiceMoE, experts_per_token
Part 3 (3 points)  Why it is not causal: leaking_example

Given whole: Expert

Target: part 1 in 20 minutes, from memory.

    kit show expert_choice     the statement
    kit grade expert_choice    the verdict (--part 1 for one part)
    kit hint expert_choice     a nudge
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Expert(nn.Module):
    """A two-layer MLP, w2(silu(w1(x))), as in the exercise `moe`."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., d_model) to (..., d_model)."""
        return self.w2(F.silu(self.w1(x)))


class ExpertChoiceMoE(nn.Module):
    """Mixture-of-experts layer in which every expert chooses its tokens.

    Args:
        d_model: width of a token.
        d_ff: hidden width of every expert.
        n_experts: E.
        capacity_factor: each expert takes C = min(N, ceil(capacity_factor * N / E)) of N tokens.

    Attributes:
        gate: nn.Linear(d_model, n_experts) without bias.
        experts: nn.ModuleList of n_experts Expert.
    """

    def __init__(self, d_model: int, d_ff: int, n_experts: int, capacity_factor: float = 1.0) -> None:
        raise NotImplementedError("parts 1, 2: write ExpertChoiceMoE.__init__")

    def route(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Let every expert choose its tokens.

        Args:
            flat: (N, d_model).

        Returns:
            weights: (E, C), flat's dtype; the token's router probability for this expert, not renormalised.
            token_indices: (E, C), int64; the C tokens with the largest probability for each expert, all different
                within a row and in any order; weights[e, c] belongs to token_indices[e, c].
        """
        raise NotImplementedError("parts 1, 2: write ExpertChoiceMoE.route")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the layer to all B*T tokens as one group.

        Args:
            x: (B, T, d_model).

        Returns:
            y: (B, T, d_model), x's dtype; the sum of weight * expert output over the experts that took the token, 0 for
                a token that none took; without the residual.
            aux: scalar, x's dtype; sum_i P_i with P_i the mean probability of expert i.
        """
        raise NotImplementedError("parts 1, 2: write ExpertChoiceMoE.forward")


def experts_per_token(token_indices: Tensor, n_tokens: int) -> Tensor:
    """How many experts took each token.

    Args:
        token_indices: (E, C), int64, the tokens each expert took.
        n_tokens: N.

    Returns:
        (N,), int64; 0 for a token that nobody took.
    """
    raise NotImplementedError("part 2: write experts_per_token")


def leaking_example(n_experts: int, capacity: int) -> tuple[Tensor, Tensor]:
    """Two tables of router probabilities which show that expert choice is not causal.

    The tables are equal in every row but the last. When each expert takes the `capacity` largest entries of its
    column, row 0 is taken by different experts in the two.

    Args:
        n_experts: E >= 2.
        capacity: C >= 1, tokens each expert takes.

    Returns:
        before, after: (N, E) each with any N > capacity; all entries positive.
    """
    raise NotImplementedError("part 3: write leaking_example")
