"""Softmax of rows of any length

Milakov and Gimelshein 2018, Online normalizer calculation for softmax, arXiv:1805.02867, algorithm 3

Part 1 (4 points)  Rows that fit on chip: softmax
Part 2 (3 points)  Longer rows, -inf, any layout and dtype: softmax
Part 3 (3 points)  Bytes, sectors, and real GPUs: softmax

Target: part 1 in 20 minutes, from memory.

    kit show softmax     the statement
    kit grade softmax    the verdict (--part 1 for one part)
    kit hint softmax     a nudge
"""

import torch
import triton
import triton.language as tl


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension.

    Args:
        x: (M, N), float32, float16 or bfloat16, any M and N from 1 on.  The last dimension is contiguous; rows may lie
            any distance apart.  Entries may be -inf (they get probability 0); a row of only -inf does not occur.

    Returns:
        (M, N), contiguous, x's dtype; the arithmetic is float32.

    Cost: a row whose length, padded to a power of two, is at most 32768 is read once.  A longer one may be read twice.
    """
    raise NotImplementedError("parts 1, 2, 3: write softmax")
