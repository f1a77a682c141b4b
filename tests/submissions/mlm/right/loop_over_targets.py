"""Right: loop over targets; log1p."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


def _draw(generator, probability, shape):
    return torch.empty(shape).uniform_(generator=generator) < probability


def mask_tokens(
    tokens: Tensor, special_mask: Tensor, vocab_size: int, mask_id: int, generator, mask_prob: float = 0.15
) -> tuple[Tensor, Tensor]:
    target = torch.bernoulli(torch.full(tokens.shape, mask_prob, dtype=torch.float64), generator=generator).bool()
    target = target.to(tokens.device) & ~special_mask
    places = target.flatten().nonzero().squeeze(1)
    labels = tokens.new_full(tokens.shape, -100).flatten()
    labels[places] = tokens.flatten()[places]
    inputs = tokens.flatten().clone()
    for place in places.tolist():
        kind = torch.rand((), generator=generator).item()
        if kind < 0.8:
            inputs[place] = mask_id
        elif kind < 0.9:
            inputs[place] = torch.randint(vocab_size, (1,), generator=generator).item()
    return inputs.view(tokens.shape), labels.view(tokens.shape)


def mlm_loss(logits: Tensor, labels: Tensor) -> Tensor:
    on = labels.ne(-100)
    logp = logits - logits.logsumexp(-1, keepdim=True)
    safe = labels.masked_fill(~on, 0)
    picked = torch.take_along_dim(logp, safe.unsqueeze(-1), -1).squeeze(-1)
    return -torch.where(on, picked, 0.0).sum() / on.sum().clamp(min=1).to(logits.dtype)


def nsp_loss(cls_hidden: Tensor, weight: Tensor, is_next: Tensor) -> Tensor:
    batch, _ = cls_hidden.shape
    if batch < 1:
        raise ValueError(f"{batch} pairs")
    z = (cls_hidden * weight).sum(-1)
    y = is_next.to(z)
    per_pair = z.clamp(min=0) - z * y + torch.log1p(torch.exp(-z.abs()))
    return per_pair.sum() / batch
