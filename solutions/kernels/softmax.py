"""Softmax over the last dimension, any length: one pass while a row fits on chip, two when it does not.

Milakov and Gimelshein 2018, Online normalizer calculation for softmax, arXiv:1805.02867, algorithm 3.

    M   rows        N   length of a row        e   bytes of one number

    y_i = exp(x_i - m) / sum_j exp(x_j - m),    m = max_j x_j

The plain order (maximum, sum, division) reads a row three times: 4 M N e bytes with the write.  A row that fits in
registers is read once: 2 M N e.  A longer one is read twice: the first pass keeps a running maximum m and a running
sum s of exp(x - m), and rescales s by exp(m_old - m_new) whenever the maximum rises; the second divides.  3 M N e.
"""

import torch
import triton
import triton.language as tl

LONGEST_ROW = 32768  # numbers one program holds in registers
BLOCK_COLUMNS = 8192  # of a longer row


@triton.jit
def _one_pass_kernel(x_ptr, y_ptr, x_stride, y_stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)  # (BLOCK,)
    inside = columns < N
    # The padding is -inf: it loses every maximum, and its exponential is 0.
    x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    e = tl.exp(x - top)
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * y_stride + columns, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _two_pass_kernel(x_ptr, y_ptr, x_stride, y_stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    # Lane by lane, so that the loop holds no reduction; the lanes meet after it.
    top = tl.full([BLOCK], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        here = start + columns
        block = tl.load(x_ptr + row * x_stride + here, mask=here < N, other=-float("inf")).to(tl.float32)
        new_top = tl.maximum(top, block)
        # A lane that has seen only -inf has no maximum to subtract: -inf - -inf is NaN.
        safe_top = tl.where(new_top == -float("inf"), 0.0, new_top)
        total = total * tl.exp(top - safe_top)
        total = total + tl.exp(block - safe_top)
        top = new_top
    row_top = tl.max(top, axis=0)
    row_total = tl.sum(total * tl.exp(top - row_top), axis=0)
    for start in range(0, N, BLOCK):
        here = start + columns
        block = tl.load(x_ptr + row * x_stride + here, mask=here < N, other=-float("inf")).to(tl.float32)
        y = tl.exp(block - row_top) / row_total
        tl.store(y_ptr + row * y_stride + here, y.to(y_ptr.dtype.element_ty), mask=here < N)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension.

    Args:
        x: (M, N), float32, float16 or bfloat16, any M and N from 1 on.  The last dimension is contiguous; rows may lie
            any distance apart.  Entries may be -inf (they get probability 0); a row of only -inf does not occur.

    Returns:
        (M, N), contiguous, x's dtype; the arithmetic is float32.

    Cost: a row whose length, padded to a power of two, is at most 32768 is read once.  A longer one may be read twice.
    """
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(N)
    if block <= LONGEST_ROW:
        warps = min(32, max(1, block // 512))
        _one_pass_kernel[(M,)](x, y, x.stride(0), y.stride(0), N, BLOCK=block, num_warps=warps)
    else:
        _two_pass_kernel[(M,)](x, y, x.stride(0), y.stride(0), N, BLOCK=BLOCK_COLUMNS, num_warps=16)
    return y
