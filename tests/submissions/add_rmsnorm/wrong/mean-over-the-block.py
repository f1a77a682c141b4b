"""tl.sum over the block divided by its own length."""

import torch
import triton
import triton.language as tl


@triton.jit
def k(x, r, w, y, h, sx, sr, D, eps, B: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, B)
    m = j < D
    s = tl.load(x + i * sx + j, mask=m, other=0).to(tl.float32) + tl.load(r + i * sr + j, mask=m, other=0).to(
        tl.float32
    )
    variance = tl.sum(s * s, axis=0) / B
    out = s * tl.rsqrt(variance + eps) * tl.load(w + j, mask=m, other=0).to(tl.float32)
    tl.store(y + i * D + j, out, mask=m)
    tl.store(h + i * D + j, s, mask=m)


def add_rmsnorm(x, residual, weight, eps=1e-6):
    T, D = x.shape
    y, h = x.new_empty((T, D)), x.new_empty((T, D))
    B = triton.next_power_of_2(D)
    k[(T,)](x, residual, weight, y, h, x.stride(0), residual.stride(0), D, eps, B=B, num_warps=8)
    return y, h
