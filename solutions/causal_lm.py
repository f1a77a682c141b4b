"""The next-token loss, whole and accumulated (Radford et al. 2018, equation 1).

    L = -1/|R| Σ_{(b,t)∈R} log softmax(logits[b, t])[tokens[b, t+1]]         R: places whose next token is a real one
    perplexity = e^L

Symbols: Bsz batch, T time, V vocabulary, R the real targets of the batch.

Position t predicts token t + 1, so T tokens give T - 1 predictions a row and the last logits are not scored.  The loss
is a mean over tokens, not over rows and not over micro-batches: ragged micro-batches must therefore add up their sums
and their counts, and divide once.  (The mean of the micro-batches' means weighs a token by how short its micro-batch
is; that was a bug of several training libraries until 2024.)

Cost: the logits dominate: B·T·V numbers forward, as many again for the gradient.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def causal_lm_loss(logits: Tensor, tokens: Tensor, ignore_index: int = -100) -> Tensor:
    """Mean cross-entropy of each next token.

    Args:
        logits: (batch, T, V); those at position t predict the token at t + 1.
        tokens: (batch, T) int64, NOT shifted; the same ids that the model read.
        ignore_index: id that is no target where it stands, such as padding.

    Returns:
        A scalar in logits' dtype, natural logarithm: the mean over real targets.  Without a single real target
        (everything ignored, or T = 1) it is 0 and its gradient is 0.
    """
    total, count = _sum_and_count(logits, tokens, ignore_index)
    return (total / count.clamp(min=1)).to(logits.dtype)


def accumulated_loss(micro_batches: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The loss of one large batch that comes in pieces.

    Args:
        micro_batches: list of (logits (batch, T, V), tokens (batch, T)); batch and T may differ between the pieces,
            and a piece may hold no real target.  The token -100 is ignored.

    Returns:
        A scalar in the first logits' dtype: the mean over all real targets of all pieces, or 0 with a gradient of 0
        when there is none.
    """
    if len(micro_batches) == 0:
        raise ValueError(f"the mean over {len(micro_batches)} micro-batches is not defined")
    pieces = [_sum_and_count(logits, tokens, -100) for logits, tokens in micro_batches]
    total = torch.stack([piece_total for piece_total, _ in pieces]).sum()
    count = torch.stack([piece_count for _, piece_count in pieces]).sum()
    # One division for the whole batch.
    loss = total / count.clamp(min=1)
    return loss.to(micro_batches[0][0].dtype)


def perplexity(loss: Tensor) -> Tensor:
    """The perplexity that belongs to a mean loss in nats.

    Args:
        loss: a scalar (or any shape) in nats.

    Returns:
        A tensor of loss's shape and dtype.
    """
    return torch.exp(loss)


def _sum_and_count(logits: Tensor, tokens: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Summed loss over the real targets (float32 at least) and how many there are."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    predictions = logits[:, :-1].to(wide)  # (Bsz, T-1, V)
    targets = tokens[:, 1:]  # (Bsz, T-1)
    # The shift comes before the flattening: row b's last position never predicts row b+1's first token.
    flat_predictions = predictions.reshape(-1, logits.shape[-1])  # (Bsz·(T-1), V)
    flat_targets = targets.reshape(-1)  # (Bsz·(T-1),)
    is_real = flat_targets != ignore_index
    total = F.cross_entropy(flat_predictions, flat_targets, ignore_index=ignore_index, reduction="sum")
    return total, is_real.sum()
