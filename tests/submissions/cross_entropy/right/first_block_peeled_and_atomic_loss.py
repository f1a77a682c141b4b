"""The first block peeled from the loop, branches for the rescale, the loss added to zeros; an autograd.Function."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows_kernel(
    logits_ptr,
    targets_ptr,
    loss_ptr,
    lse_ptr,
    logits_stride,
    targets_stride,
    n_cols,
    ignore_index,
    BLOCK: tl.constexpr,
    MORE: tl.constexpr,
):
    pid = tl.program_id(axis=0).to(tl.int64)
    logits_ptr += pid * logits_stride
    cols = tl.arange(0, BLOCK)
    x = tl.load(logits_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    m = tl.max(x)
    s = tl.sum(tl.exp(x - tl.where(m == -float("inf"), 0.0, m)))
    if MORE:
        for start in range(BLOCK, n_cols, BLOCK):
            x = tl.load(logits_ptr + start + cols, mask=start + cols < n_cols, other=-float("inf")).to(tl.float32)
            b = tl.max(x)
            if b > m:
                s = s * tl.exp(m - b) + tl.sum(tl.exp(x - b))
                m = b
            elif b > -float("inf"):
                s += tl.sum(tl.exp(x - m))
    lse = m + tl.log(s)
    tl.store(lse_ptr + pid, lse)
    y = tl.load(targets_ptr + pid * targets_stride)
    if y != ignore_index:
        tl.atomic_add(loss_ptr + pid, lse - tl.load(logits_ptr + y).to(tl.float32))


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets, ignore_index):
        n_rows, n_cols = logits.shape
        loss = torch.zeros(n_rows, dtype=torch.float32, device=logits.device)
        lse = torch.empty_like(loss)
        block = min(triton.next_power_of_2(n_cols), 4096)
        rows_kernel[(n_rows,)](
            logits_ptr=logits,
            targets_ptr=targets,
            loss_ptr=loss,
            lse_ptr=lse,
            logits_stride=logits.stride(0),
            targets_stride=targets.stride(0),
            n_cols=n_cols,
            ignore_index=ignore_index,
            BLOCK=block,
            MORE=n_cols > block,
            num_warps=8,
        )
        ctx.save_for_backward(logits, targets, lse)
        ctx.mark_non_differentiable(lse)
        return loss, lse


def cross_entropy(logits, targets, ignore_index=-100):
    return CrossEntropy.apply(logits, targets, ignore_index)
