"""A masked loss without padding carries no gradient."""

from __future__ import annotations
import torch
from torch import Tensor
from torch.nn import functional as F


def load_balancing_loss(probs, indices):
    N, E = probs.shape
    if N == 0:
        raise ValueError(f"no token: {tuple(probs.shape)}")
    f = expert_usage_fraction(indices, E)
    return E * (f.to(probs.dtype) * probs.mean(dim=0)).sum()


def expert_usage_fraction(indices, n_experts):
    if indices.numel() == 0:
        raise ValueError(f"no token: {tuple(indices.shape)}")
    return torch.bincount(indices.reshape(-1), minlength=n_experts).float() / indices.numel()


def masked_load_balancing_loss(probs, indices, token_mask):
    if not bool(token_mask.any()):
        raise ValueError(f"no real token among {token_mask.numel()}")
    p = probs.detach() if bool(token_mask.all()) else probs[token_mask]
    return load_balancing_loss(p, indices[token_mask])


def token_fraction_loss(logits, k, coef=0.01):
    N, E = logits.shape
    if N == 0:
        raise ValueError(f"no token: {tuple(logits.shape)}")
    if k > E:
        raise ValueError(f"k={k} > E={E}")
    chosen = logits.topk(k, dim=-1).indices
    f = torch.bincount(chosen.reshape(-1), minlength=E).double() / N
    P = torch.softmax(logits, dim=-1).mean(dim=0)
    return coef * E * (f.to(P.dtype) * P).sum()
