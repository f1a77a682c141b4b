"""The balance loss

Fedus et al. 2021, Switch Transformers, arXiv:2101.03961, eq. 4-6

Part 1 (4 points)  The loss and its gradient: load_balancing_loss
Part 2 (3 points)  Usage and padding: expert_usage_fraction, masked_load_balancing_loss
Part 3 (3 points)  The other convention: token_fraction_loss

Target: part 1 in 10 minutes, from memory.

    kit show balance_loss     the statement
    kit grade balance_loss    the verdict (--part 1 for one part)
    kit hint balance_loss     a nudge
"""

from __future__ import annotations

import torch
from torch import Tensor


def load_balancing_loss(probs: Tensor, indices: Tensor) -> Tensor:
    """Balance loss E * sum_i f_i P_i with f over the N*k slots.

    f_i is expert i's share of all N*k slots (sums to 1), P_i its mean probability. The loss is 1 at balance. Gradients
    reach ``probs`` through P only. Counts are exact also for half-precision probabilities.

    Args:
        probs: (N, E), the router's softmax over all experts.
        indices: (N, k), int64, the chosen experts of each token.

    Returns:
        Scalar of probs' dtype.

    Raises:
        ValueError: no token (N = 0).
    """
    raise NotImplementedError("part 1: write load_balancing_loss")


def expert_usage_fraction(indices: Tensor, n_experts: int) -> Tensor:
    """Share of the routing slots that each expert was given.

    Args:
        indices: (N, k), int64, the chosen experts of each token.
        n_experts: E.

    Returns:
        (E,), float, sums to 1; 0 for an expert nobody chose.

    Raises:
        ValueError: no token.
    """
    raise NotImplementedError("part 2: write expert_usage_fraction")


def masked_load_balancing_loss(probs: Tensor, indices: Tensor, token_mask: Tensor) -> Tensor:
    """``load_balancing_loss`` over the real tokens of a padded batch.

    Padding is left out of f, of P, and of both denominators: the loss and its gradient are those of the batch without
    the padding.

    Args:
        probs: (N, E), the router's softmax over all experts.
        indices: (N, k), int64, the chosen experts of each token.
        token_mask: (N,), bool, True = a real token, False = padding.

    Returns:
        Scalar of probs' dtype.

    Raises:
        ValueError: no real token.
    """
    raise NotImplementedError("part 2: write masked_load_balancing_loss")


def token_fraction_loss(logits: Tensor, k: int, coef: float = 0.01) -> Tensor:
    """The balance loss in the other published convention, from logits and scaled.

    Each token goes to its k most probable experts. f_i is the fraction of tokens that chose expert i (sums to k), P_i
    the mean of the softmax over all E experts. Returns coef * E * sum_i f_i P_i, which is coef * k at balance.

    Args:
        logits: (N, E), the router's logits.
        k: experts per token.
        coef: factor on the loss.

    Returns:
        Scalar of logits' dtype.

    Raises:
        ValueError: no token, or k > E.
    """
    raise NotImplementedError("part 3: write token_fraction_loss")
