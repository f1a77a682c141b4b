"""Gathers the targets with the ignored ones clamped to 0, and leaves those out afterwards."""

import torch
from torch.nn import functional as F


def _sum_and_count(logits, tokens, ignore_index):
    goal = tokens[:, 1:]
    real = goal != ignore_index
    logp = logits[:, :-1].log_softmax(-1)
    picked = logp.gather(-1, goal.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -picked.where(real, 0.0).sum(), real.sum()


def causal_lm_loss(logits, tokens, ignore_index=-100):
    total, count = _sum_and_count(logits.double(), tokens, ignore_index)
    return (total / count.clamp(min=1)).to(logits.dtype)


def accumulated_loss(micro_batches):
    parts = [_sum_and_count(l.double(), t, -100) for l, t in micro_batches]
    total = sum(p[0] for p in parts)
    count = sum(p[1] for p in parts)
    return (total / count.clamp(min=1)).to(micro_batches[0][0].dtype)


def perplexity(loss):
    return loss.exp()
