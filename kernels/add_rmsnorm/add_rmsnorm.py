"""Residual add and RMSNorm, fused

Zhang and Sennrich 2019, Root Mean Square Layer Normalization, arXiv:1910.07467, equation 4

Part 1 (4 points)  Values at every width: add_rmsnorm
Part 2 (3 points)  Strided rows, half precision, extremes: add_rmsnorm
Part 3 (3 points)  Bytes, sectors, and real GPUs: add_rmsnorm

Target: part 1 in 15 minutes, from memory.

    kit show add_rmsnorm     the statement
    kit grade add_rmsnorm    the verdict (--part 1 for one part)
    kit hint add_rmsnorm     a nudge
"""

import torch
import triton
import triton.language as tl


def add_rmsnorm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add the residual, then normalise by the root mean square.

    h = x + residual and y = weight * h / sqrt(mean(h^2) + eps), the mean over the D numbers of a row.

    Args:
        x: (T, D), float32, float16 or bfloat16, D up to 16384.  The last dimension is contiguous; rows may lie any
            distance apart.
        residual: (T, D), x's dtype, with a row stride of its own.
        weight: (D,), contiguous, x's dtype or float32.
        eps: added to the mean square.

    Returns:
        y and h, each (T, D), contiguous, x's dtype.  Sum, square and mean are float32 whatever the dtype.

    Cost: x and residual are read once, y and h written once; the weight may be read again for every row.
    """
    raise NotImplementedError("parts 1, 2, 3: write add_rmsnorm")
