"""Autotuned over warps only, scaled before squaring to keep the squares small."""

import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({}, num_warps=8), triton.Config({}, num_warps=16)], key=["D"])
@triton.jit
def kern(X, R, W, Y, H, sx, sr, D, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    live = col < D
    h = tl.load(X + row * sx + col, mask=live, other=0.0).to(tl.float32)
    h += tl.load(R + row * sr + col, mask=live, other=0.0).to(tl.float32)
    mean_square = tl.sum(h * (h / D), axis=0)
    y = h * tl.rsqrt(mean_square + eps)
    tl.store(H + row * D + col, h, mask=live)
    tl.store(Y + row * D + col, y * tl.load(W + col, mask=live, other=0.0).to(tl.float32), mask=live)


def add_rmsnorm(x, residual, weight, eps=1e-6):
    T, D = x.shape
    y, h = x.new_empty((T, D)), x.new_empty((T, D))
    kern[(T,)](x, residual, weight, y, h, x.stride(0), residual.stride(0), D, eps, BLOCK=triton.next_power_of_2(D))
    return y, h
