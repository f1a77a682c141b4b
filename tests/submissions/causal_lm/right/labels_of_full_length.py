"""Labels of full length, the last one ignored."""

import math, torch
import torch.nn.functional as F

def _sum_count(logits, tokens, ignore_index):
    lab = torch.full_like(tokens, ignore_index)
    lab[:, :-1] = tokens[:, 1:]
    s = F.cross_entropy(logits.transpose(1, 2), lab, ignore_index=ignore_index, reduction="none").sum()
    return s, (lab != ignore_index).sum()

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
