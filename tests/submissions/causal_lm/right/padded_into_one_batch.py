"""Micro-batches are padded into one batch."""

import math, torch
import torch.nn.functional as F

def _sum_count(logits, tokens, ignore_index):
    B, T, V = logits.shape
    lg, tg = logits[:, :-1].reshape(-1, V), tokens[:, 1:].reshape(-1)
    real = tg != ignore_index
    s = F.cross_entropy(lg, tg, ignore_index=ignore_index, reduction="sum") if tg.numel() else (logits * 0).sum()
    return s, real.sum()

def causal_lm_loss(logits, tokens, ignore_index=-100):
    s, n = _sum_count(logits, tokens, ignore_index)
    return s / n.clamp_min(1)

def accumulated_loss(micro_batches):
    # pad everything into one batch
    T = max(t.shape[1] for _, t in micro_batches)
    ls = [F.pad(l, (0, 0, 0, T - l.shape[1])) for l, _ in micro_batches]
    ts = [F.pad(t, (0, T - t.shape[1]), value=-100) for _, t in micro_batches]
    return causal_lm_loss(torch.cat(ls), torch.cat(ts))

def perplexity(loss):
    return torch.exp(loss)
