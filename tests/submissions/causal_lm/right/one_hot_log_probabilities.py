"""Log-probabilities in float64, picked by a table of comparisons."""

import math, torch
import torch.nn.functional as F

def _sum_count(logits, tokens, ignore_index):
    tg = tokens[:, 1:]
    real = tg != ignore_index
    lp = torch.log_softmax(logits[:, :-1].double(), -1)
    pick = torch.arange(logits.shape[-1], device=logits.device) == tg[..., None]
    pick = pick & real[..., None]
    return -torch.where(pick, lp, 0.0).sum(), real.sum()

def causal_lm_loss(logits, tokens, ignore_index=-100):
    s, n = _sum_count(logits, tokens, ignore_index)
    return (s / n.clamp_min(1)).to(logits.dtype)

def accumulated_loss(micro_batches):
    parts = [_sum_count(l, t, -100) for l, t in micro_batches]
    total = sum(s for s, _ in parts)
    count = sum(n for _, n in parts)
    return (total / count.clamp_min(1)).to(micro_batches[0][0].dtype)

def perplexity(loss):
    return torch.exp(loss)
