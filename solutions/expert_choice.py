"""Expert-choice routing: every expert takes its best tokens, and why a causal model cannot route that way.

Paper: Zhou et al. 2022, Mixture-of-Experts with Expert Choice Routing, arXiv:2202.09368, section 3.2.

    P[n, e] = softmax over experts of (x_n W_g)_e
    expert e takes its C best tokens by P[:, e]      C = min(N, ceil(c N / E))
    y_n = sum over the experts e that took n of P[n, e] E_e(x_n)

N tokens, E experts, C tokens per expert, c capacity factor (the mean number of experts a token gets).

Load is equal by construction (f_i = 1/E), so the balance loss is E sum_i P_i / E = 1 and trains nothing. Cost: c N
expert rows (E C of them), one static (E, C, d) buffer, no padding and no dropped slot. What is given up: a token may
get no expert, and whether it gets one depends on every other token of the group, later ones too.
"""

from __future__ import annotations

import math

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
        super().__init__()
        self.capacity_factor = capacity_factor
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_experts))

    def route(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Let every expert choose its tokens.

        Args:
            flat: (N, d_model).

        Returns:
            weights: (E, C), flat's dtype; the token's router probability for this expert, not renormalised.
            token_indices: (E, C), int64; the C tokens with the largest probability for each expert, all different
                within a row and in any order; weights[e, c] belongs to token_indices[e, c].
        """
        n_tokens = flat.shape[0]
        wanted = math.ceil(self.capacity_factor * n_tokens / len(self.experts))
        capacity = min(n_tokens, wanted)
        probs = self._probabilities(flat)  # (N, E)
        weights, token_indices = probs.T.topk(capacity, dim=-1)  # (E, C) each: a top-k per column of probs
        return weights.to(flat.dtype), token_indices

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the layer to all B*T tokens as one group.

        Args:
            x: (B, T, d_model).

        Returns:
            y: (B, T, d_model), x's dtype; the sum of weight * expert output over the experts that took the token, 0 for
                a token that none took; without the residual.
            aux: scalar, x's dtype; sum_i P_i with P_i the mean probability of expert i.
        """
        B, T, d = x.shape
        if B * T == 0:
            raise ValueError(f"a batch without tokens cannot be routed, got x of shape {tuple(x.shape)}")
        flat = x.reshape(B * T, d)  # (N, d)
        weights, token_indices = self.route(flat)  # (E, C) each
        y = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            token = token_indices[e]  # (C,), distinct
            out = expert(flat[token])  # (C, d)
            gated = weights[e, :, None] * out
            y.index_add_(0, token, gated.to(y.dtype))  # a token may be taken by several experts
        P = self._probabilities(flat).mean(dim=0)  # (E,)
        aux = P.sum()  # E sum_i f_i P_i with f_i = 1/E: 1, whatever the router does
        return y.view(B, T, d), aux.to(x.dtype)

    def _probabilities(self, flat: Tensor) -> Tensor:
        """(N, E) softmax over the experts of each token, in at least float32."""
        logits = self.gate(flat)
        wide = torch.promote_types(flat.dtype, torch.float32)
        return torch.softmax(logits.to(wide), dim=-1)


def experts_per_token(token_indices: Tensor, n_tokens: int) -> Tensor:
    """How many experts took each token.

    Args:
        token_indices: (E, C), int64, the tokens each expert took.
        n_tokens: N.

    Returns:
        (N,), int64; 0 for a token that nobody took.
    """
    return torch.bincount(token_indices.reshape(-1), minlength=n_tokens)


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
    if n_experts < 2 or capacity < 1:
        raise ValueError(f"needs two experts and a capacity of at least 1, got {n_experts} and {capacity}")
    n_tokens = capacity + 1  # one token too many for every expert
    others = n_experts - 1
    likes_expert_0 = torch.full((n_tokens,), 0.6)
    likes_expert_0[0] = 0.5  # the first token stands last in the queue of expert 0
    likes_expert_0[-1] = 0.4  # and a place is left, as long as the last token wants it less
    before = torch.cat([likes_expert_0[:, None], ((1 - likes_expert_0) / others)[:, None].expand(-1, others)], dim=1)
    after = before.clone()
    after[-1, 0] = 0.8  # a later token that wants expert 0 more pushes the first one out
    after[-1, 1:] = 0.2 / others
    return before, after
