"""Wrong: mean of the losses."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


def _sum_and_count(logits: Tensor, tokens: Tensor, ignore: int) -> tuple[Tensor, Tensor]:
    scores, goal = logits[:, :-1], tokens[:, 1:]
    real = goal != ignore
    picked = scores.gather(2, goal.masked_fill(~real, 0).unsqueeze(2)).squeeze(2)
    loss = (scores.logsumexp(2) - picked) * real
    return loss.sum(), real.sum()


def causal_lm_loss(logits: Tensor, tokens: Tensor, ignore_index: int = -100) -> Tensor:
    total, count = _sum_and_count(logits, tokens, ignore_index)
    return total / count.clamp(min=1).to(logits.dtype)


def accumulated_loss(micro_batches) -> Tensor:
    if not micro_batches:
        raise ValueError(f"{len(micro_batches)} micro-batches")
    pairs = [_sum_and_count(lg, tk, -100) for lg, tk in micro_batches]
    dtype = micro_batches[0][0].dtype
    total = torch.stack([s.to(dtype) for s, _ in pairs]).sum()
    count = torch.stack([c for _, c in pairs]).sum()
    return total / count.clamp(min=1).to(dtype)


def perplexity(loss: Tensor) -> Tensor:
    return loss.mean().exp()
