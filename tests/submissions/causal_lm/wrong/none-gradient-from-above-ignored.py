"""The backward ignores the gradient from above: 3 times the loss has the gradient of the loss."""

import math
import torch
from torch import Tensor
from torch.nn import functional as F


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, lo, ta, ignore):
        keep = ta != ignore
        n = keep.sum().clamp(min=1)
        safe = ta.masked_fill(~keep, 0)
        ctx.save_for_backward((lo.softmax(-1) - F.one_hot(safe, lo.shape[-1]).to(lo.dtype)) * keep[:, None].to(lo.dtype) / n)
        return F.cross_entropy(lo, ta, ignore_index=ignore, reduction="sum") / n
    @staticmethod
    def backward(ctx, g):
        return ctx.saved_tensors[0], None, None


def _sum(logits, tokens, ignore):
    V = logits.shape[-1]
    lo = logits[:, :-1].reshape(-1, V)
    ta = tokens[:, 1:].reshape(-1)
    total = F.cross_entropy(lo, ta, ignore_index=ignore, reduction="sum")
    return total, (ta != ignore).sum()


def causal_lm_loss(logits: Tensor, tokens: Tensor, ignore_index: int = -100) -> Tensor:
    V = logits.shape[-1]
    return _Mean.apply(logits[:, :-1].reshape(-1, V), tokens[:, 1:].reshape(-1), ignore_index)


def accumulated_loss(micro_batches: list[tuple[Tensor, Tensor]]) -> Tensor:
    total, count = 0.0, 0
    for logits, tokens in micro_batches:
        s, n = _sum(logits, tokens, -100)
        total = total + s
        count = count + n
    return (total / count.clamp(min=1)).to(micro_batches[0][0].dtype)


def perplexity(loss: Tensor) -> Tensor:
    return torch.exp(loss)
