"""The mean of the pieces' means."""

import torch
import torch.nn.functional as F


def causal_lm_loss(logits, tokens, ignore_index=-100):
    shift_logits = logits[:, :-1, :].contiguous()
    shift_labels = tokens[:, 1:].contiguous()
    if (shift_labels == ignore_index).all():
        return (logits * 0).sum()
    return F.cross_entropy(
        shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1), ignore_index=ignore_index
    )


def accumulated_loss(micro_batches):
    total_targets = sum((tokens[:, 1:] != -100).sum() for _, tokens in micro_batches)
    loss = 0.0
    for logits, tokens in micro_batches:
        n = (tokens[:, 1:] != -100).sum()
        loss = loss + causal_lm_loss(logits.float() if logits.dtype != torch.float64 else logits, tokens) / len(micro_batches)
    return loss.to(micro_batches[0][0].dtype)


def perplexity(loss):
    return loss.exp()
