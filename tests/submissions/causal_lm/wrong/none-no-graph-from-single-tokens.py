"""Pieces of one token are skipped: from such pieces alone the loss has no graph, and backward() fails."""

import math
import torch
from torch import Tensor
from torch.nn import functional as F


def _sum(logits, tokens, ignore):
    V = logits.shape[-1]
    lo = logits[:, :-1].reshape(-1, V)
    ta = tokens[:, 1:].reshape(-1)
    total = F.cross_entropy(lo, ta, ignore_index=ignore, reduction="sum")
    return total, (ta != ignore).sum()


def causal_lm_loss(logits: Tensor, tokens: Tensor, ignore_index: int = -100) -> Tensor:
    total, count = _sum(logits, tokens, ignore_index)
    return total / count.clamp(min=1)


def accumulated_loss(micro_batches: list[tuple[Tensor, Tensor]]) -> Tensor:
    total, count = 0.0, 0
    for logits, tokens in micro_batches:
        if tokens.shape[1] < 2 and len(micro_batches) > 1:
            continue
        s, n = _sum(logits, tokens, -100)
        total = total + s
        count = count + n
    return (torch.as_tensor(total) / torch.as_tensor(count).clamp(min=1)).to(micro_batches[0][0].dtype)


def perplexity(loss: Tensor) -> Tensor:
    return torch.exp(loss)
