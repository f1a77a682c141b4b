"""A probability with an eps."""

import math

import torch


def causal_lm_loss(logits, tokens, ignore_index=-100):
    targets = tokens[:, 1:].unsqueeze(-1)
    mask = targets.ne(ignore_index)
    log_probs = (logits[:, :-1].softmax(dim=-1) + 1e-9).log()
    picked = log_probs.gather(-1, targets.masked_fill(~mask, 0))
    losses = torch.where(mask, picked, torch.zeros_like(picked)).neg()
    return losses.sum() / mask.sum().clamp_min(1)


def accumulated_loss(micro_batches):
    longest = max(tokens.size(1) for _, tokens in micro_batches)
    all_logits, all_tokens = [], []
    for logits, tokens in micro_batches:
        missing = longest - tokens.size(1)
        all_logits.append(torch.nn.functional.pad(logits, (0, 0, 0, missing)))
        all_tokens.append(torch.nn.functional.pad(tokens, (0, missing), value=-100))
    return causal_lm_loss(torch.cat(all_logits), torch.cat(all_tokens))


def perplexity(loss):
    return torch.pow(math.e, loss)
