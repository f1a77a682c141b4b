"""Wrong: draws stay on the CPU."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


def mask_tokens(
    tokens: Tensor, special_mask: Tensor, vocab_size: int, mask_id: int, generator, mask_prob: float = 0.15
) -> tuple[Tensor, Tensor]:
    # one uniform number a token decides everything
    u = torch.rand(tokens.shape, generator=generator)
    ids = torch.randint(0, vocab_size, tokens.shape, generator=generator).to(tokens.device)
    target = (u < mask_prob) & ~special_mask
    masked = target & (u < 0.8 * mask_prob)
    randomised = target & (u >= 0.8 * mask_prob) & (u < 0.9 * mask_prob)
    inputs = torch.where(masked, mask_id, torch.where(randomised, ids, tokens))
    labels = torch.where(target, tokens, -100)
    return inputs, labels


def mlm_loss(logits: Tensor, labels: Tensor) -> Tensor:
    hit = labels != -100
    rows = logits[hit]
    if len(rows) == 0:
        return (logits * 0).sum()
    right = rows.gather(-1, labels[hit][:, None])[:, 0]
    return (rows.logsumexp(-1) - right).mean()


def nsp_loss(cls_hidden: Tensor, weight: Tensor, is_next: Tensor) -> Tensor:
    if cls_hidden.shape[0] == 0:
        raise ValueError("an empty batch (0 pairs)")
    z = torch.einsum("bd,d->b", cls_hidden, weight)
    sign = 1 - 2 * is_next.to(z.dtype)
    return torch.logaddexp(sign * z, torch.zeros_like(z)).mean()
