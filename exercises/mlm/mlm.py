"""BERT's two objectives: masking, masked-token loss, next-sentence loss

Devlin, Chang, Lee, Toutanova 2019, BERT, arXiv:1810.04805, section 3.1 and appendix A.1

Part 1 (5 points)  Choose targets and corrupt them 80/10/10: mask_tokens
Part 2 (3 points)  The loss over targets: mlm_loss
Part 3 (2 points)  Next-sentence prediction: nsp_loss

Target: part 1 in 15 minutes, from memory.

    kit show mlm     the statement
    kit grade mlm    the verdict (--part 1 for one part)
    kit hint mlm     a nudge
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def mask_tokens(
    tokens: Tensor,
    special_mask: Tensor,
    vocab_size: int,
    mask_id: int,
    generator: torch.Generator,
    mask_prob: float = 0.15,
) -> tuple[Tensor, Tensor]:
    """Choose targets among the ordinary tokens and corrupt them by the 80/10/10 rule.

    Args:
        tokens: (...) int64 token ids, any shape.
        special_mask: (...) bool, True at tokens that must never be targets ([CLS], [SEP], padding).
        vocab_size: random ids are uniform over [0, vocab_size).
        mask_id: the id of [MASK].
        generator: a CPU generator, the only source of randomness; it advances.
        mask_prob: the chance of an ordinary token to be a target.

    Returns:
        inputs: (...) int64, what the model sees.  A target is mask_id in 80% of cases, a random id in 10% and
            unchanged in 10%; every other token is unchanged.
        labels: (...) int64, the original id at targets and -100 everywhere else.
    """
    raise NotImplementedError("part 1: write mask_tokens")


def mlm_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over the targets.

    Args:
        logits: (..., V).
        labels: (...) int64, the right id at targets and -100 elsewhere.

    Returns:
        A scalar in logits' dtype, natural logarithm.  Without a single target it is 0 and its gradient is 0.
    """
    raise NotImplementedError("part 2: write mlm_loss")


def nsp_loss(cls_hidden: Tensor, weight: Tensor, is_next: Tensor) -> Tensor:
    """Binary cross-entropy of next-sentence prediction.

    Args:
        cls_hidden: (batch, d) hidden state at [CLS].
        weight: (d,) classifier; the logit that the second sentence really is next is their inner product.
        is_next: (batch,) bool, int or float; 1 = really the next sentence.

    Returns:
        A scalar in cls_hidden's dtype: the mean over the batch, exact for logits of any size.
    """
    raise NotImplementedError("part 3: write nsp_loss")
