"""Cross-entropy per token, straight from the logits, in one pass over the vocabulary.

The online log-sum-exp of Milakov and Gimelshein 2018, arXiv:1805.02867; the saved lse is what a backward pass needs.

    M   tokens        V   vocabulary        e   bytes of one logit

    lse_i = log sum_v exp(x_iv)         loss_i = lse_i - x_{i, target_i}

Through log_softmax the logits are read, a second array of their size is written, and one number in V of it is used.
Here they are read once: M V e, and 16 M for an int64 target, a loss and an lse.  With V = 128k and e = 2 the saving is
most of the memory of a training step.
"""

import torch
import triton
import triton.language as tl

BLOCK_COLUMNS = 4096


@triton.jit
def _cross_entropy_kernel(
    logits_ptr, targets_ptr, loss_ptr, lse_ptr, logits_stride, targets_stride, V, ignore_index, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)  # (BLOCK,)
    row_ptr = logits_ptr + row * logits_stride
    top = tl.full([BLOCK], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, V, BLOCK):
        here = start + columns
        x = tl.load(row_ptr + here, mask=here < V, other=-float("inf")).to(tl.float32)
        new_top = tl.maximum(top, x)
        # A lane that has seen only -inf (padding, a forbidden token) has no maximum to subtract.
        safe_top = tl.where(new_top == -float("inf"), 0.0, new_top)
        total = total * tl.exp(top - safe_top)
        total = total + tl.exp(x - safe_top)
        top = new_top
    row_top = tl.max(top, axis=0)
    lse = row_top + tl.log(tl.sum(total * tl.exp(top - row_top), axis=0))
    tl.store(lse_ptr + row, lse)
    target = tl.load(targets_ptr + row * targets_stride)
    counted = target != ignore_index
    # An ignored target is no column: its logit is not read.
    picked = tl.load(row_ptr + target, mask=counted, other=0.0).to(tl.float32)
    loss = tl.where(counted, lse - picked, 0.0)
    tl.store(loss_ptr + row, loss)


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
    M, V = logits.shape
    loss = torch.empty(M, dtype=torch.float32, device=logits.device)
    lse = torch.empty(M, dtype=torch.float32, device=logits.device)
    block = min(BLOCK_COLUMNS, triton.next_power_of_2(V))
    _cross_entropy_kernel[(M,)](
        logits, targets, loss, lse, logits.stride(0), targets.stride(0), V, ignore_index, BLOCK=block, num_warps=8
    )
    return loss, lse
