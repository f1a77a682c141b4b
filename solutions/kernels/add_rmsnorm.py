"""Residual add and RMSNorm in one kernel: the pair that opens every half of a transformer block.

Zhang and Sennrich 2019, Root Mean Square Layer Normalization, arXiv:1910.07467, equation 4.

    T   rows (tokens)        D   width of a row        e   bytes of one number

    h = x + residual
    y = weight * h / sqrt(mean(h^2) + eps)

Apart they read x, residual and h and write h and y: 5 T D e.  Fused, h stays in registers between the sum and the norm:
4 T D e, and the weight, which every program reads again, comes from the L2 cache.

One program holds one row, padded to a power of two.  The padding is loaded as 0, adds nothing to the sum of squares,
and must not count in the mean: the divisor is D.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _add_rmsnorm_kernel(
    x_ptr, residual_ptr, weight_ptr, y_ptr, h_ptr, x_stride, residual_stride, out_stride, D, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)  # (BLOCK,)
    inside = columns < D
    x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + row * residual_stride + columns, mask=inside, other=0.0).to(tl.float32)
    h = x + residual
    tl.store(h_ptr + row * out_stride + columns, h.to(h_ptr.dtype.element_ty), mask=inside)
    mean_square = tl.sum(h * h, axis=0) / D
    scale = 1.0 / tl.sqrt(mean_square + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    y = weight * h * scale
    tl.store(y_ptr + row * out_stride + columns, y.to(y_ptr.dtype.element_ty), mask=inside)


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
    T, D = x.shape
    y = torch.empty((T, D), dtype=x.dtype, device=x.device)
    h = torch.empty((T, D), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(D)
    warps = min(16, max(1, block // 512))
    _add_rmsnorm_kernel[(T,)](
        x, residual, weight, y, h, x.stride(0), residual.stride(0), y.stride(0), D, eps, BLOCK=block, num_warps=warps
    )
    return y, h
