"""Probabilities of real targets, and their logs."""

import math, torch
import torch.nn.functional as F

def _sum_count(logits, tokens, ignore_index):
    tg = tokens[:, 1:]
    real = tg != ignore_index
    p = logits[:, :-1].softmax(-1).gather(-1, tg.clamp_min(0)[..., None])[..., 0]
    return -torch.log(p[real]).sum(), real.sum()

def causal_lm_loss(logits, tokens, ignore_index=-100):
    s, n = _sum_count(logits, tokens, ignore_index)
    return s / n.clamp_min(1)

def accumulated_loss(micro_batches):
    parts = [_sum_count(l, t, -100) for l, t in micro_batches]
    total = sum(s for s, _ in parts)
    count = sum(n for _, n in parts)
    return total / count.clamp_min(1)

def perplexity(loss):
    return torch.exp(loss)
