"""f adds up probabilities of the chosen in place of counting them.

Written as: scatter_add counts in float32, sums over products in place of means.
"""

import torch
from torch import Tensor


def _count(indices: Tensor, weights: Tensor, n_experts: int) -> Tensor:
    counts = torch.zeros(n_experts, device=indices.device)
    return counts.scatter_add_(0, indices.flatten(), weights)


def load_balancing_loss(probs: Tensor, indices: Tensor) -> Tensor:
    n, e = probs.shape
    if n < 1:
        raise ValueError(f"need tokens, got {n}")
    counts = _count(indices, probs.gather(1, indices).flatten().float(), e)
    total = probs.sum(0, dtype=torch.promote_types(probs.dtype, torch.float32))
    return (counts * total).sum().mul(e / (n * indices.numel())).to(probs.dtype)


def expert_usage_fraction(indices: Tensor, n_experts: int) -> Tensor:
    if indices.numel() < 1:
        raise ValueError(f"need tokens, got {indices.shape[0]}")
    return _count(indices, torch.full((indices.numel(),), 1.0, device=indices.device), n_experts) / indices.numel()


def masked_load_balancing_loss(probs: Tensor, indices: Tensor, token_mask: Tensor) -> Tensor:
    e, k = probs.shape[1], indices.shape[1]
    keep = token_mask.to(torch.float32)
    n = keep.sum()
    if n < 1:
        raise ValueError(f"need real tokens, got 0 of {token_mask.numel()}")
    f = _count(indices, keep.repeat_interleave(k), e) / (n * k)
    wide = probs.to(torch.promote_types(probs.dtype, torch.float32))
    P = wide.masked_fill(~token_mask[:, None], 0).sum(0) / n
    return ((f * P).sum() * e).to(probs.dtype)


def token_fraction_loss(logits: Tensor, k: int, coef: float = 0.01) -> Tensor:
    n, e = logits.shape
    if n < 1 or k > e:
        raise ValueError(f"need tokens and k <= E, got n={n}, k={k}, E={e}")
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    probs = (wide - wide.logsumexp(-1, keepdim=True)).exp()
    f = _count(wide.topk(k).indices, torch.ones(n * k, device=logits.device), e) / n
    P = probs.mean(0)
    return ((f * P).sum() * e * coef).to(logits.dtype)
