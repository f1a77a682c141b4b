"""Right: python over places, float64."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


def _nll_rows(logits, tokens, ignore):
    """Python over places: the nll of every scored place, one number each, in float64."""
    out = []
    for row, ids in zip(logits, tokens):
        for t, nxt in enumerate(ids.tolist()[1:]):
            if nxt != ignore:
                z = row[t].double()
                z = z - z.max().detach()
                out.append(torch.log(torch.exp(z).sum()) - z[nxt])
    return out


def causal_lm_loss(logits: Tensor, tokens: Tensor, ignore_index: int = -100) -> Tensor:
    rows = _nll_rows(logits, tokens, ignore_index)
    if rows:
        return torch.stack(rows).mean().to(logits.dtype)
    return logits.sum() * 0


def accumulated_loss(micro_batches) -> Tensor:
    if not len(micro_batches):
        raise ValueError("micro_batches is empty (length 0)")
    numbers = []
    zero = 0
    for lg, tk in micro_batches:
        numbers.extend(_nll_rows(lg, tk, -100))
        zero = zero + (lg * 0).sum().to(micro_batches[0][0].dtype)
    if not numbers:
        return zero
    return zero + torch.stack(numbers).mean().to(micro_batches[0][0].dtype)


def perplexity(loss: Tensor) -> Tensor:
    return 1 / torch.exp(-loss)
