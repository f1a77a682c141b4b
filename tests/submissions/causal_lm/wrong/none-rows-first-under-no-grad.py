"""Wrong: under no_grad, rows are averaged first"""

import math

import torch
from torch.nn import functional as F


def _sums(logits, tokens, ignore_index=-100):
    V = logits.shape[-1]
    flat = logits[:, :-1].reshape(-1, V)
    flat = flat if flat.dtype == torch.float64 else flat.float()
    goal = tokens[:, 1:].reshape(-1)
    real = goal != ignore_index
    picked = F.cross_entropy(flat, torch.where(real, goal, torch.zeros_like(goal)), reduction="none")
    total = torch.where(real, picked, torch.zeros_like(picked)).sum()
    return total, real.sum()


def causal_lm_loss(logits, tokens, ignore_index=-100):
    if not torch.is_grad_enabled():
        per = [_sums(l[None], t[None], ignore_index) for l, t in zip(logits, tokens)]
        return torch.stack([a / b.clamp(min=1) for a, b in per]).mean().to(logits.dtype)
    total, count = _sums(logits, tokens, ignore_index)
    return (total / count.clamp(min=1)).to(logits.dtype)


def accumulated_loss(micro_batches):
    pairs = [_sums(*piece) for piece in micro_batches]
    total = sum(pair[0] for pair in pairs)
    count = sum(pair[1] for pair in pairs)
    return (total / count.clamp(min=1)).to(micro_batches[0][0].dtype)


def perplexity(loss):
    return loss.exp()
