"""Wrong: the k-th is excluded."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def load_balancing_loss(probs: Tensor, indices: Tensor) -> Tensor:
    return masked_load_balancing_loss(probs, indices, torch.ones_like(probs[:, 0], dtype=torch.bool))


def expert_usage_fraction(indices: Tensor, n_experts: int) -> Tensor:
    flat = indices.flatten().tolist()
    if not flat:
        raise ValueError("no token, 0 slots")
    return torch.tensor([flat.count(e) / len(flat) for e in range(n_experts)], dtype=torch.float64, device=indices.device)


def masked_load_balancing_loss(probs: Tensor, indices: Tensor, token_mask: Tensor) -> Tensor:
    e = probs.shape[-1]
    if not token_mask.any():
        raise ValueError(f"no real token among {token_mask.numel()}")
    p = torch.where(token_mask[:, None], probs, 0.0).float()
    spot = torch.where(token_mask[:, None], indices, e)  # padding goes to a bin of its own
    bins = torch.bincount(spot.flatten(), minlength=e + 1)[:e]
    total = bins.sum()
    tokens = token_mask.sum()
    return (e * torch.dot(bins / total, p.sum(0) / tokens)).to(probs.dtype)


def token_fraction_loss(logits: Tensor, k: int, coef: float = 0.01) -> Tensor:
    if logits.size(0) == 0 or k > logits.size(1):
        raise ValueError(f"k={k} with logits {list(logits.shape)}")
    p = torch.softmax(logits, 1)
    edge = logits.detach().sort(1).values[:, logits.size(1) - k, None]
    f = (logits > edge).float().mean(0)
    return logits.size(1) * torch.matmul(f, p.float().mean(0)).to(logits.dtype) * coef
