"""Style: the mean of P over the slots, without a count."""

import torch
import torch.nn.functional as F

def _counts(indices, n_experts):
    return torch.bincount(indices.reshape(-1), minlength=n_experts)

def load_balancing_loss(probs, indices):
    N, E = probs.shape
    if N == 0:
        raise ValueError(f"no tokens: {tuple(probs.shape)}")
    f = _counts(indices, E).double() / indices.numel()
    # sum_n sum_slots P[idx] without ever building f
    P = probs.double().mean(dim=0)
    return (E * P.take(indices.flatten()).mean()).to(probs.dtype)

def expert_usage_fraction(indices, n_experts):
    if indices.numel() == 0:
        raise ValueError("no token: 0")
    return _counts(indices, n_experts).double() / indices.numel()

def masked_load_balancing_loss(probs, indices, token_mask):
    if not token_mask.any():
        raise ValueError(f"no real token among {token_mask.numel()}")
    return load_balancing_loss(probs[token_mask], indices[token_mask])

def token_fraction_loss(logits, k, coef=0.01):
    N, E = logits.shape
    if N == 0:
        raise ValueError("no tokens: 0")
    if k > E:
        raise ValueError(f"k {k} > E {E}")
    probs = logits.double().softmax(-1)
    idx = logits.topk(k, dim=-1).indices
    f = _counts(idx, E).double() / N
    return (coef * E * (f * probs.mean(0)).sum()).to(logits.dtype)
