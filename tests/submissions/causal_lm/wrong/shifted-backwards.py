"""Each position is scored against the token before it."""

import torch


def _row(logits, tokens, ignore_index):
    following = tokens[:-1]
    logits = logits[1:]
    real = (following != ignore_index).nonzero().squeeze(1)
    scores = logits[real]
    own = scores[torch.arange(real.numel(), device=real.device), following[real]]
    return torch.logsumexp(scores, dim=-1) - own


def _all_losses(logits, tokens, ignore_index=-100):
    return torch.cat([_row(*pair, ignore_index) for pair in zip(logits, tokens)])


def _mean_or_zero(losses):
    return losses.sum() / max(losses.numel(), 1)


def causal_lm_loss(logits, tokens, ignore_index=-100):
    return _mean_or_zero(_all_losses(logits, tokens, ignore_index))


def accumulated_loss(micro_batches):
    return _mean_or_zero(torch.cat([_all_losses(logits, tokens) for logits, tokens in reversed(micro_batches)]))


def perplexity(loss):
    return torch.exp2(loss / torch.log(torch.tensor(2.0, dtype=torch.float64)).item())
