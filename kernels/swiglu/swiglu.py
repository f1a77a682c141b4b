"""Fused SwiGLU gate

Shazeer 2020, GLU Variants Improve Transformer, arXiv:2002.05202, equation 6

Part 1 (4 points)  Values at every size: swiglu
Part 2 (3 points)  Strided rows, half precision, far rows: swiglu
Part 3 (3 points)  Bytes, sectors, and real GPUs: swiglu

Target: part 1 in 15 minutes, from memory.

    kit show swiglu     the statement
    kit grade swiglu    the verdict (--part 1 for one part)
    kit hint swiglu     a nudge
"""

import torch
import triton
import triton.language as tl


def swiglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """silu(a) * b, where silu(a) = a * sigmoid(a).

    Args:
        a: (T, D), float32, float16 or bfloat16.  The last dimension is contiguous; rows may lie any distance apart,
            as when a and b are the halves of one (T, 2 D) tensor.
        b: (T, D), a's dtype, with a row stride of its own.

    Returns:
        (T, D), contiguous, a's dtype.  The arithmetic is float32 whatever the dtype.

    Cost: each element of a and b is read once and each of y written once, straight from the tensors as they lie.
    """
    raise NotImplementedError("parts 1, 2, 3: write swiglu")
