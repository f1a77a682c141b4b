"""Padding is counted in f.

Written as: one-hot tables and matrix products.
"""

import torch
import torch.nn.functional as F


def load_balancing_loss(probs, indices):
    n, e = probs.shape
    if n == 0:
        raise ValueError(f"no tokens: {tuple(probs.shape)}")
    table = F.one_hot(indices, e).sum(dim=1)  # (N, E)
    share = table.sum(dim=0).double() / table.sum()
    return ((share @ probs.double().mean(dim=0)) * e).to(probs.dtype)


def expert_usage_fraction(indices, n_experts):
    if indices.shape[0] == 0:
        raise ValueError("0 tokens")
    return F.one_hot(indices, n_experts).float().mean(dim=(0, 1))


def masked_load_balancing_loss(probs, indices, token_mask):
    e, k = probs.shape[1], indices.shape[1]
    real = token_mask.sum()
    if real == 0:
        raise ValueError(f"0 real tokens of {len(token_mask)}")
    keep = token_mask.double()
    table = F.one_hot(indices, e).double().sum(dim=1)
    share = table.mean(dim=0) / k
    mean = (keep @ probs.double()) / real
    return (e * (share @ mean)).to(probs.dtype)


def token_fraction_loss(logits, k, coef=0.01):
    n, e = logits.shape
    if n == 0 or k > e:
        raise ValueError(f"bad sizes: n={n}, k={k}, e={e}")
    chosen = torch.topk(logits, k, dim=1)[1]
    fraction = F.one_hot(chosen, e).sum(dim=1).double().mean(dim=0)
    mean = F.softmax(logits.double(), dim=1).mean(dim=0)
    return (coef * e * (fraction @ mean)).to(logits.dtype)
