"""The running total is a number."""

import torch
from torch import Tensor


def _parts(logits: Tensor, tokens: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    targets = torch.roll(tokens, shifts=-1, dims=1)
    last = torch.arange(tokens.shape[1], device=tokens.device) == tokens.shape[1] - 1
    real = (targets != ignore_index) & ~last
    wide = logits.double()
    safe = torch.where(real, targets, torch.zeros_like(targets))
    one_hot = torch.nn.functional.one_hot(safe, logits.shape[-1]).to(wide.dtype)
    peak = wide.amax(-1, keepdim=True)
    losses = ((wide - peak).exp().sum(-1)).log() + peak.squeeze(-1) - torch.einsum("btv,btv->bt", wide, one_hot)
    return (losses * real).sum(), real.sum()


def causal_lm_loss(logits: Tensor, tokens: Tensor, ignore_index: int = -100) -> Tensor:
    total, count = _parts(logits, tokens, ignore_index)
    return (total / torch.clamp(count, min=1)).type_as(logits)


def accumulated_loss(micro_batches: list[tuple[Tensor, Tensor]]) -> Tensor:
    total, count = 0, 0
    for logits, tokens in micro_batches:
        piece = _parts(logits, tokens, -100)
        total, count = (total.detach() if torch.is_tensor(total) else total) + piece[0], count + piece[1]
    return (total / torch.clamp(count, min=1)).type_as(micro_batches[0][0])


def perplexity(loss: Tensor) -> Tensor:
    return loss.double().exp().to(loss.dtype)
