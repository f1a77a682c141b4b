"""Wrong: only the first 8 pieces count"""

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
    total, count = _sums(logits, tokens, ignore_index)
    return (total / count.clamp(min=1)).to(logits.dtype)


def accumulated_loss(micro_batches):
    pairs = [_sums(*piece) for piece in micro_batches[:8]]
    total = sum(pair[0] for pair in pairs)
    count = sum(pair[1] for pair in pairs)
    return (total / count.clamp(min=1)).to(micro_batches[0][0].dtype)


def perplexity(loss):
    return loss.exp()
