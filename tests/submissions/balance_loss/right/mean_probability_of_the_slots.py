"""Right: loss as mean over slots of mean probability looked up: E * mean_slots P[i]"""

from __future__ import annotations

import torch
from torch import Tensor


def _counts(indices, n_experts):
    return torch.bincount(indices.flatten(), minlength=n_experts)


def load_balancing_loss(probs, indices):
    N, E = probs.shape
    if N == 0:
        raise ValueError(f"N={N}")
    P = torch.mean(probs, 0, dtype=torch.float64)
    return torch.take(P, indices).mean().mul(E).to(probs.dtype)


def expert_usage_fraction(indices, n_experts):
    if indices.numel() == 0:
        raise ValueError("no token")
    return _counts(indices, n_experts).float() / indices.numel()


def masked_load_balancing_loss(probs, indices, token_mask):
    if not bool(token_mask.any()):
        raise ValueError("no real token")
    return load_balancing_loss(probs[token_mask], indices[token_mask])


def token_fraction_loss(logits, k, coef=0.01):
    N, E = logits.shape
    if N == 0 or k > E:
        raise ValueError(f"N={N}, k={k}, E={E}")
    indices = logits.topk(k, dim=-1).indices
    p = torch.softmax(logits.double(), 1)
    hits = torch.zeros_like(p).scatter_(1, indices, 1.0).mean(0)
    return (coef * E * torch.inner(hits, p.mean(0))).to(logits.dtype)
