"""The auxiliary balance loss of sparse mixtures, its masked form, and the two conventions that are in use.

Papers: Shazeer et al. 2017, arXiv:1701.06538 (the collapse it fights); Lepikhin et al. 2020, GShard, arXiv:2006.16668;
Fedus et al. 2021, Switch Transformers, arXiv:2101.03961, eq. 4-6. The token convention is that of the `transformers`
library for Mixtral, where f sums to k.

    L = E sum_i f_i P_i      f_i share of expert i in the routing, P_i = (1/N) sum_n p_i(x_n)

Why a product: f is a count and has no gradient; P is smooth. dL/dp_i(x_n) = E f_i / N, so every token is pushed away
from expert i in proportion to how busy it is. With f and P ordered alike, Chebyshev's sum inequality gives
sum f P >= 1/E, with equality for uniform load: the slot convention bottoms out at 1, the token convention at k.

N tokens, E experts, k experts per token. Cost: O(N (E + k)) elementwise work and no matrix product; it never shows in
a profile. What costs is the all-reduce of f across data-parallel ranks, if balance is wanted over the global batch.
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
    n_tokens, n_experts = probs.shape
    if n_tokens == 0:
        raise ValueError(f"the balance loss needs at least one token, got probs of shape {tuple(probs.shape)}")
    wide = torch.promote_types(probs.dtype, torch.float32)  # half precision cannot count beyond 256 (or 2048)
    counts = torch.bincount(indices.reshape(-1), minlength=n_experts)  # (E,) integers, no gradient
    f = counts.to(wide) / indices.numel()  # (E,), sums to 1
    P = probs.to(wide).mean(dim=0)  # (E,), sums to 1
    loss = n_experts * (f * P).sum()
    return loss.to(probs.dtype)


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
    if indices.numel() == 0:
        raise ValueError(f"usage needs at least one token, got indices of shape {tuple(indices.shape)}")
    slots = torch.bincount(indices.reshape(-1), minlength=n_experts)  # (E,)
    return slots.to(torch.float32) / indices.numel()


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
    n_experts = probs.shape[1]
    n_real = int(token_mask.sum())
    if n_real == 0:
        raise ValueError(f"the balance loss needs at least one real token, got 0 of {token_mask.numel()}")
    wide = torch.promote_types(probs.dtype, torch.float32)
    real_indices = indices[token_mask]  # (n_real, k)
    real_probs = probs[token_mask].to(wide)  # (n_real, E)
    real_counts = torch.bincount(real_indices.reshape(-1), minlength=n_experts)  # (E,)
    real_f = real_counts.to(wide) / (n_real * indices.shape[1])
    real_P = real_probs.sum(dim=0) / n_real
    masked_loss = n_experts * (real_f * real_P).sum()
    return masked_loss.to(probs.dtype)


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
    tokens, experts = logits.shape
    if tokens == 0:
        raise ValueError(f"the balance loss needs at least one token, got logits of shape {tuple(logits.shape)}")
    if not 1 <= k <= experts:
        raise ValueError(f"k must be between 1 and E, got k={k} and E={experts}")
    wide = torch.promote_types(logits.dtype, torch.float32)
    all_probs = torch.softmax(logits.to(wide), dim=-1)  # (N, E)
    chosen = logits.topk(k, dim=-1).indices  # (N, k)
    chosen_by = torch.bincount(chosen.reshape(-1), minlength=experts)  # (E,)
    token_f = chosen_by.to(wide) / tokens  # (E,), sums to k
    mean_prob = all_probs.mean(dim=0)  # (E,), sums to 1
    unscaled = experts * (token_f * mean_prob).sum()
    return (coef * unscaled).to(logits.dtype)
