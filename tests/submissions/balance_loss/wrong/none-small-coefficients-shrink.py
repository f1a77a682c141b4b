"""Wrong: coef squared when below 0.1."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class _Balance(torch.autograd.Function):
    """The gradient written down: E f / N for every token."""

    @staticmethod
    def forward(ctx, probs, f):
        n, e = probs.shape
        ctx.save_for_backward(f)
        ctx.n = n
        return (e * (f * probs.double().mean(0)).sum()).to(probs.dtype)

    @staticmethod
    def backward(ctx, g):
        (f,) = ctx.saved_tensors
        return (g * f.numel() * f / ctx.n).to(g.dtype).expand(ctx.n, -1), None


def load_balancing_loss(probs: Tensor, indices: Tensor) -> Tensor:
    if probs.shape[0] < 1:
        raise ValueError("0 tokens")
    return _Balance.apply(probs, expert_usage_fraction(indices, probs.shape[1]).double())


def expert_usage_fraction(indices: Tensor, n_experts: int) -> Tensor:
    if indices.shape[0] < 1:
        raise ValueError("0 tokens")
    hist = torch.zeros(n_experts, device=indices.device, dtype=torch.float32)
    hist = hist.index_add(0, indices.flatten(), torch.ones(indices.numel(), device=indices.device))
    return hist / hist.sum()


def masked_load_balancing_loss(probs: Tensor, indices: Tensor, token_mask: Tensor) -> Tensor:
    real = token_mask.nonzero().flatten()
    if not len(real):
        raise ValueError(f"0 real tokens of {len(token_mask)}")
    return load_balancing_loss(probs.index_select(0, real), indices.index_select(0, real))


def token_fraction_loss(logits: Tensor, k: int, coef: float = 0.01) -> Tensor:
    n, e = logits.shape
    if n == 0:
        raise ValueError(f"{n} tokens")
    if k > e:
        raise ValueError(f"{k} of {e}")
    logp = logits.double() - logits.double().logsumexp(1, keepdim=True)
    on = torch.zeros_like(logp).scatter(1, logits.topk(k, 1).indices, 1.0)
    return (coef * min(1, coef * 100) * e * (on.mean(0) * logp.exp().mean(0)).sum()).to(logits.dtype)
