"""Addresses clamped instead of masks, 17 persistent programs; a long row's last block overlaps the one before."""

import torch
import triton
import triton.language as tl

MINUS = tl.constexpr(float("-inf"))


@triton.jit
def once(x, y, xs, M, N, C: tl.constexpr):
    lane = tl.arange(0, C)
    for row in range(tl.program_id(0), M, tl.num_programs(0)):
        far = tl.cast(row, tl.int64)
        z = tl.load(x + far * xs + tl.minimum(lane, N - 1)).to(tl.float32)
        z = tl.where(lane < N, z, MINUS)
        e = tl.exp(z - tl.max(z))
        tl.store(y + far * N + lane, e * (1.0 / tl.sum(e)), mask=lane < N)


@triton.jit
def twice(x, y, xs, M, N, C: tl.constexpr):
    lane = tl.arange(0, C)
    for row in range(tl.program_id(0), M, tl.num_programs(0)):
        far = tl.cast(row, tl.int64)
        m = MINUS
        s = 0.0
        for k in range(0, N, C):
            at = tl.minimum(k, N - C) + lane
            z = tl.load(x + far * xs + at).to(tl.float32)
            z = tl.where(at >= k, z, MINUS)
            hi = tl.maximum(m, tl.max(z))
            if hi > MINUS:
                s = s * tl.exp(m - hi) + tl.sum(tl.exp(z - hi))
                m = hi
        for k in range(0, N, C):
            at = tl.minimum(k, N - C) + lane
            z = tl.load(x + far * xs + at).to(tl.float32)
            tl.store(y + far * N + at, tl.exp(z - m) / s, mask=at >= k)


def softmax(x: torch.Tensor) -> torch.Tensor:
    (m, n), out = x.shape, torch.empty_like(x, memory_format=torch.contiguous_format)
    block = triton.next_power_of_2(n)
    kernel, block = (once, block) if block <= 32768 else (twice, 4096)
    kernel[lambda meta: (min(m, 17), 1, 1)](
        x=x, y=out, xs=x.stride(0), M=m, N=n, C=block, num_warps=8 if block < 8192 else 32
    )
    return out
