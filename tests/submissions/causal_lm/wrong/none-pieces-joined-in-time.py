"""Wrong: pieces of one row are joined in time."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


def _padded(micro_batches):
    time = max(lg.shape[1] for lg, _ in micro_batches)
    lgs = [F.pad(lg.to(micro_batches[0][0].dtype), (0, 0, 0, time - lg.shape[1])) for lg, _ in micro_batches]
    tks = [F.pad(tk, (0, time - tk.shape[1]), value=-100) for _, tk in micro_batches]
    return torch.cat(lgs), torch.cat(tks)


def causal_lm_loss(logits: Tensor, tokens: Tensor, ignore_index: int = -100) -> Tensor:
    vocab = logits.shape[-1]
    goal = tokens.roll(-1, dims=1)
    keep = (goal != ignore_index).clone()
    keep[:, -1] = False
    onehot = (goal.unsqueeze(-1) == torch.arange(vocab, device=tokens.device)) & keep.unsqueeze(-1)
    logp = torch.log_softmax(logits, dim=-1)
    total = -torch.where(onehot, logp, 0.0).sum()
    return total / keep.sum().clamp_min(1)


def accumulated_loss(micro_batches) -> Tensor:
    if not micro_batches:
        raise ValueError(f"empty list {micro_batches}")
    if all(len(tk) == 1 for _, tk in micro_batches):
        return causal_lm_loss(torch.cat([a for a, _ in micro_batches], 1), torch.cat([b for _, b in micro_batches], 1))
    return causal_lm_loss(*_padded(micro_batches))


def perplexity(loss: Tensor) -> Tensor:
    return torch.expm1(loss) + 1
