"""Right: sorted slots, searchsorted borders, differences are the counts; @ product."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def load_balancing_loss(probs: Tensor, indices: Tensor) -> Tensor:
    if indices.numel() == 0 or probs.shape[0] == 0:
        raise ValueError("no token (N = 0)")
    f = expert_usage_fraction(indices, probs.shape[1])
    p = probs.float().mean(0) if probs.dtype != torch.float64 else probs.mean(0)
    return (probs.shape[1] * torch.dot(f.to(p.dtype), p)).to(probs.dtype)


def expert_usage_fraction(indices: Tensor, n_experts: int) -> Tensor:
    if indices.numel() == 0:
        raise ValueError("no token (N = 0)")
    borders = torch.searchsorted(indices.reshape(-1).sort().values, torch.arange(n_experts + 1, device=indices.device))
    n = borders.diff()
    return n.float() / indices.numel()


def masked_load_balancing_loss(probs: Tensor, indices: Tensor, token_mask: Tensor) -> Tensor:
    if not token_mask.any():
        raise ValueError("no real token (0)")
    return load_balancing_loss(probs[token_mask], indices[token_mask])


def token_fraction_loss(logits: Tensor, k: int, coef: float = 0.01) -> Tensor:
    if k > logits.shape[1] or logits.shape[0] == 0:
        raise ValueError(f"k {k}, logits {tuple(logits.shape)}")
    wide = logits if logits.dtype == torch.float64 else logits.float()
    probs = wide.softmax(-1)
    indices = logits.topk(k, -1).indices
    return (coef * k * load_balancing_loss(probs, indices)).to(logits.dtype)
