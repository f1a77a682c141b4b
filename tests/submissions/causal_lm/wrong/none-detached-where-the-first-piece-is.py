"""All pieces are detached when the first one needs no gradient."""

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
    g = micro_batches[0][0].requires_grad
    for logits, tokens in micro_batches:
        logits = logits if g else logits.detach()
        s, n = _sum(logits, tokens, -100)
        total = total + s
        count = count + n
    return (total / count.clamp(min=1)).to(micro_batches[0][0].dtype)


def perplexity(loss: Tensor) -> Tensor:
    return torch.exp(loss)
