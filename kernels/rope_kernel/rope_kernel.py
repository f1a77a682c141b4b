"""Rotary embedding in place

Su et al. 2021, RoFormer, arXiv:2104.09864, equation 34

Part 1 (4 points)  Rotate queries and keys: rope_
Part 2 (3 points)  Any stride, half precision, far tokens: rope_
Part 3 (3 points)  Bytes, sectors, and real GPUs: rope_

Target: part 1 in 20 minutes, from memory.

    kit show rope_kernel     the statement
    kit grade rope_kernel    the verdict (--part 1 for one part)
    kit hint rope_kernel     a nudge
"""

import torch
import triton
import triton.language as tl


def rope_(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Rotate queries and keys in place, half-split pairs (i, i + d/2).

    For each token and head, u[i] becomes u[i] cos[i] - u[i + d/2] sin[i], and u[i + d/2] becomes
    u[i + d/2] cos[i] + u[i] sin[i], for 0 <= i < d/2.

    Args:
        q: (T, H, d), float32, float16 or bfloat16; d is even.  The last dimension is contiguous, the other two have
            any stride.  Changed in place.
        k: (T, H_kv, d), q's dtype, with strides of its own.  Changed in place.
        cos: (T, d // 2), float32 or q's dtype; rows may lie any distance apart.
        sin: (T, d // 2), as cos.

    The arithmetic is float32 whatever the dtype.

    Cost: each number of q and k is read once and written once.  cos and sin may be read again.
    """
    raise NotImplementedError("parts 1, 2, 3: write rope_")
