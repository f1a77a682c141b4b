"""Cross-entropy from logits

Milakov and Gimelshein 2018, Online normalizer calculation for softmax, arXiv:1805.02867, algorithm 3

Part 1 (4 points)  Loss and log-sum-exp per token: cross_entropy
Part 2 (3 points)  Ignored targets, -inf, any layout and dtype: cross_entropy
Part 3 (3 points)  Bytes, sectors, and real GPUs: cross_entropy

Target: part 1 in 25 minutes, from memory.

    kit show cross_entropy     the statement
    kit grade cross_entropy    the verdict (--part 1 for one part)
    kit hint cross_entropy     a nudge
"""

import torch
import triton
import triton.language as tl


def cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor, ignore_index: int = -100
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross-entropy of each token, and the log-sum-exp of its logits.

    Args:
        logits: (M, V), float32, float16 or bfloat16, any V.  The last dimension is contiguous; rows may lie any
            distance apart.  Entries may be -inf (a forbidden token), though never a whole row and never a target.
        targets: (M,), int64 or int32, with any stride: a column of the row, or ignore_index.
        ignore_index: the target of a token that has no loss.

    Returns:
        loss and lse, each (M,) float32 whatever the logits' dtype.  loss = lse - logits[target], 0 where ignored; lse
        is the log of the sum of exp(logits), of ignored rows too.

    Cost: the logits are read once.
    """
    raise NotImplementedError("parts 1, 2, 3: write cross_entropy")
