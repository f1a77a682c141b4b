"""A LayerNorm without bias."""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm(x, r, w, y, h, sx, sr, D, eps, B: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, B)
    m = j < D
    s = tl.load(x + i * sx + j, mask=m, other=0).to(tl.float32) + tl.load(r + i * sr + j, mask=m, other=0).to(
        tl.float32
    )
    tl.store(h + i * D + j, s, mask=m)
    mu = tl.sum(s) / D
    c = tl.where(m, s - mu, 0.0)
    var = tl.sum(c * c) / D
    tl.store(y + i * D + j, c / tl.sqrt(var + eps) * tl.load(w + j, mask=m, other=0).to(tl.float32), mask=m)


def add_rmsnorm(x, residual, weight, eps=1e-6):
    T, D = x.shape
    y, h = x.new_empty((T, D)), x.new_empty((T, D))
    B = triton.next_power_of_2(D)
    layer_norm[(T,)](x, residual, weight, y, h, x.stride(0), residual.stride(0), D, eps, B=B, num_warps=8)
    return y, h
