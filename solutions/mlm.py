"""BERT's two pretraining objectives (Devlin et al. 2019, section 3.1 and appendix A.1).

    masking   each ordinary token is a target with probability p = 0.15; a target is shown to the model
              as [MASK] (80%), as a uniformly drawn id (10%), or as it is (10%)
    MLM       L = -1/|M| Σ_{i∈M} log softmax(logits_i)[x_i]        M the targets, all three kinds of them
    NSP       L = mean_b softplus(-s_b z_b)                        z = h_CLS · w,  s = +1 really next, -1 not

The three kinds are there because [MASK] never occurs in fine-tuning: a model that saw only masks at scored places
could ignore every other position, whereas now any token may be scored and any token may be false.

Cost: three random draws a token, made where the generator lives and moved once; the losses are one pass over the
logits, of which 85% are not scored, so a real head gathers the targets first and projects only those.
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
    shape, device = tokens.shape, tokens.device
    # All draws come from the one generator, on its device; drawing for every token keeps the stream's length fixed.
    chance = torch.rand(shape, generator=generator, device=generator.device).to(device)
    role = torch.rand(shape, generator=generator, device=generator.device).to(device)
    random_ids = torch.randint(0, vocab_size, shape, generator=generator, device=generator.device).to(device)

    is_target = (chance < mask_prob) & ~special_mask
    becomes_mask = is_target & (role < 0.8)
    becomes_random = is_target & (role >= 0.8) & (role < 0.9)

    # The labels are read off before anything is overwritten, and the last tenth has labels too.
    labels = torch.where(is_target, tokens, -100)
    inputs = torch.where(becomes_mask, mask_id, tokens)
    inputs = torch.where(becomes_random, random_ids, inputs)
    return inputs, labels


def mlm_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over the targets.

    Args:
        logits: (..., V).
        labels: (...) int64, the right id at targets and -100 elsewhere.

    Returns:
        A scalar in logits' dtype, natural logarithm.  Without a single target it is 0 and its gradient is 0.
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    scores = logits.reshape(-1, logits.shape[-1]).to(wide)  # (n, V)
    targets = labels.reshape(-1)  # (n,)
    is_target = targets != -100
    total = F.cross_entropy(scores, targets, ignore_index=-100, reduction="sum")
    # A mean over nothing would be 0/0; the sum over nothing is already the 0 we want, still in the graph.
    count = is_target.sum().clamp(min=1)
    return (total / count).to(logits.dtype)


def nsp_loss(cls_hidden: Tensor, weight: Tensor, is_next: Tensor) -> Tensor:
    """Binary cross-entropy of next-sentence prediction.

    Args:
        cls_hidden: (batch, d) hidden state at [CLS].
        weight: (d,) classifier; the logit that the second sentence really is next is their inner product.
        is_next: (batch,) bool, int or float; 1 = really the next sentence.

    Returns:
        A scalar in cls_hidden's dtype: the mean over the batch, exact for logits of any size.
    """
    if cls_hidden.shape[0] == 0:
        raise ValueError(f"the mean over a batch of {cls_hidden.shape[0]} sentence pairs is not defined")
    logit = cls_hidden @ weight  # (Bsz,)
    is_true = is_next.to(logit.dtype)  # (Bsz,)
    # -log σ(z) = softplus(-z) and -log(1 - σ(z)) = softplus(z); neither forms a probability that could round to 0 or 1.
    losses = is_true * F.softplus(-logit) + (1 - is_true) * F.softplus(logit)  # (Bsz,)
    return losses.mean()
