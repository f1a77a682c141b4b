"""The next-token loss, whole and accumulated

Radford, Narasimhan, Salimans, Sutskever 2018, Improving Language Understanding by Generative Pre-Training, equation 1

Part 1 (5 points)  The loss: causal_lm_loss
Part 2 (4 points)  Accumulation over ragged micro-batches: accumulated_loss
Part 3 (1 points)  Perplexity: perplexity

Target: part 1 in 10 minutes, from memory.

    kit show causal_lm     the statement
    kit grade causal_lm    the verdict (--part 1 for one part)
    kit hint causal_lm     a nudge
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
    raise NotImplementedError("part 1: write causal_lm_loss")


def accumulated_loss(micro_batches: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The loss of one large batch that comes in pieces.

    Args:
        micro_batches: list of (logits (batch, T, V), tokens (batch, T)); batch and T may differ between the pieces,
            and a piece may hold no real target.  The token -100 is ignored.

    Returns:
        A scalar in the first logits' dtype: the mean over all real targets of all pieces, or 0 with a gradient of 0
        when there is none.
    """
    raise NotImplementedError("part 2: write accumulated_loss")


def perplexity(loss: Tensor) -> Tensor:
    """The perplexity that belongs to a mean loss in nats.

    Args:
        loss: a scalar (or any shape) in nats.

    Returns:
        A tensor of loss's shape and dtype.
    """
    raise NotImplementedError("part 3: write perplexity")
