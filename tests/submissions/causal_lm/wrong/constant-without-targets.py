"""A new tensor where nothing is predicted."""

import torch
import torch.nn.functional as F


def causal_lm_loss(logits, tokens, ignore_index=-100):
    shift_logits = logits[:, :-1, :].contiguous()
    shift_labels = tokens[:, 1:].contiguous()
    if (shift_labels == ignore_index).all():
        return torch.tensor(0.0, dtype=logits.dtype, device=logits.device)
    return F.cross_entropy(
        shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1), ignore_index=ignore_index
    )


def accumulated_loss(micro_batches):
    total_targets = sum((tokens[:, 1:] != -100).sum() for _, tokens in micro_batches)
    loss = sum((logits.double() * 0).sum() for logits, _ in micro_batches)
    for logits, tokens in micro_batches:
        n = (tokens[:, 1:] != -100).sum()
        loss = loss + causal_lm_loss(logits.float() if logits.dtype != torch.float64 else logits, tokens) * (
            n / total_targets.clamp(min=1)
        )
    return loss.to(micro_batches[0][0].dtype)


def perplexity(loss):
    return loss.exp()
