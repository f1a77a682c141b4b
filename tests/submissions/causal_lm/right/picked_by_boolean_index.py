"""Right: places picked by boolean indexing; sums of means weighted by counts"""

import math

import torch
from torch.nn import functional as F


def _sums(logits, tokens, ignore_index=-100):
    goal = F.pad(tokens, (0, 1), value=ignore_index)[..., 1:]
    keep = goal.ne(ignore_index)
    rows = logits[keep]
    lse = torch.logsumexp(rows.double(), -1)
    own = torch.take_along_dim(rows.double(), goal[keep][:, None], -1).squeeze(-1)
    return (lse - own).sum(), keep.count_nonzero()


def causal_lm_loss(logits, tokens, ignore_index=-100):
    total, count = _sums(logits, tokens, ignore_index)
    return (total / count.clamp(min=1)).to(logits.dtype)


def accumulated_loss(micro_batches):
    pairs = [_sums(*piece) for piece in micro_batches]
    total = sum(pair[0] for pair in pairs)
    count = sum(pair[1] for pair in pairs)
    return (total / count.clamp(min=1)).to(micro_batches[0][0].dtype)


def perplexity(loss):
    return torch.pow(math.e, loss)
