"""Wrong: mask counted in int8 (sum) with wrap"""

from __future__ import annotations

import torch
from torch import Tensor


def _counts(indices, n_experts):
    return torch.bincount(indices.flatten(), minlength=n_experts)


def load_balancing_loss(probs, indices):
    N, E = probs.shape
    if N == 0:
        raise ValueError(f"N={N}")
    f = _counts(indices, E).double() / indices.numel()
    return (E * (f * probs.double().mean(0)).sum()).to(probs.dtype)


def expert_usage_fraction(indices, n_experts):
    if indices.numel() == 0:
        raise ValueError("no token")
    return _counts(indices, n_experts).float() / indices.numel()


def masked_load_balancing_loss(probs, indices, token_mask):
    if int(token_mask.to(torch.uint8).sum(dtype=torch.uint8)) == 0:
        raise ValueError("no real token")
    return load_balancing_loss(probs[token_mask], indices[token_mask])


def token_fraction_loss(logits, k, coef=0.01):
    N, E = logits.shape
    if N == 0 or k > E:
        raise ValueError(f"N={N}, k={k}, E={E}")
    indices = logits.topk(k, dim=-1).indices
    return coef * k * load_balancing_loss(torch.softmax(logits, -1), indices)
