"""The backward takes a softmax without subtracting the maximum: NaN gradients for logits of 10,000."""

import math
import torch
from torch import Tensor
from torch.nn import functional as F


class _CE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, lo, ta, ignore):
        keep = ta != ignore
        ctx.save_for_backward(lo, ta.masked_fill(~keep, 0), keep)
        return F.cross_entropy(lo, ta, ignore_index=ignore, reduction="sum")
    @staticmethod
    def backward(ctx, g):
        lo, ta, keep = ctx.saved_tensors
        p = lo.exp() / lo.exp().sum(-1, keepdim=True)
        p = p - F.one_hot(ta, lo.shape[-1]).to(p.dtype)
        return g * p * keep[:, None].to(p.dtype), None, None



def _sum(logits, tokens, ignore):
    V = logits.shape[-1]
    lo = logits[:, :-1].reshape(-1, V)
    ta = tokens[:, 1:].reshape(-1)
    total = _CE.apply(lo, ta, ignore)
    return total, (ta != ignore).sum()


def causal_lm_loss(logits: Tensor, tokens: Tensor, ignore_index: int = -100) -> Tensor:
    total, count = _sum(logits, tokens, ignore_index)
    return total / count.clamp(min=1)


def accumulated_loss(micro_batches: list[tuple[Tensor, Tensor]]) -> Tensor:
    total, count = 0.0, 0
    for logits, tokens in micro_batches:
        s, n = _sum(logits, tokens, -100)
        total = total + s
        count = count + n
    return (total / count.clamp(min=1)).to(micro_batches[0][0].dtype)


def perplexity(loss: Tensor) -> Tensor:
    return torch.exp(loss)
