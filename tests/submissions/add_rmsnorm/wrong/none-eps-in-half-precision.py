"""eps is rounded to the dtype of x before it is added."""

import torch
import triton
import triton.language as tl


@triton.jit
def _persist(X, R, W, H, Y, T, D, sx, sr, eps, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    keep = c < D
    w = tl.load(W + c, mask=keep, other=0.0).to(tl.float32)
    step = tl.num_programs(0).to(tl.int64)
    row = tl.program_id(0).to(tl.int64)
    while row < T:
        h = tl.load(X + row * sx + c, mask=keep, other=0.0).to(tl.float32) + tl.load(
            R + row * sr + c, mask=keep, other=0.0
        ).to(tl.float32)
        eps = tl.cast(eps, X.dtype.element_ty).to(tl.float32)
        inv = tl.rsqrt(tl.sum(tl.where(keep, h * h, 0.0), axis=0) / D + eps)
        tl.store(H + row * D + c, h.to(H.dtype.element_ty), mask=keep)
        tl.store(Y + row * D + c, (h * inv * w).to(Y.dtype.element_ty), mask=keep)
        row += step


def add_rmsnorm(x, residual, weight, eps=1e-6):
    T, D = x.shape
    out = torch.empty((2, T, D), dtype=x.dtype, device=x.device)
    B = max(16, triton.next_power_of_2(D))
    _persist[(min(T, 8),)](
        x,
        residual,
        weight,
        out[0],
        out[1],
        T,
        D,
        x.stride(0),
        residual.stride(0),
        eps,
        BLOCK=B,
        num_warps=min(32, max(2, B // 256)),
    )
    return out[1], out[0]
