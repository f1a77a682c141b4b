"""Long rows: the guarded maximum (0) is kept as the maximum after leading blocks of -inf, so a row far below 0 then underflows."""

import torch
import triton
import triton.language as tl


@triton.jit
def _short(x_ptr, y_ptr, stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < N
    x = tl.load(x_ptr + row * stride + cols, mask=inside, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    e = tl.exp(x - m)
    s = tl.sum(e, axis=0)
    tl.store(y_ptr + row * N + cols, (e / s).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _long(x_ptr, y_ptr, stride, N, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + r * stride
    y_row = y_ptr + r * N
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    s = 0.0
    for start in range(0, N, BLOCK):
        here = start + lanes
        b = tl.load(x_row + here, mask=here < N, other=-float("inf")).to(tl.float32)
        new_m = tl.maximum(m, tl.max(b, axis=0))
        safe = tl.where(new_m == -float("inf"), 0.0, new_m)
        s = s * tl.exp(m - safe) + tl.sum(tl.exp(b - safe), axis=0)
        m = safe
    for start in range(0, N, BLOCK):
        at = start + lanes
        b = tl.load(x_row + at, mask=at < N, other=-float("inf")).to(tl.float32)
        p = tl.exp(b - m) / s
        tl.store(y_row + at, p.to(y_ptr.dtype.element_ty), mask=at < N)


def softmax(x: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(N)
    if block <= 32768:
        _short[(M,)](x, y, x.stride(0), N, BLOCK=block, num_warps=min(32, max(1, block // 512)))
    else:
        _long[(M,)](x, y, x.stride(0), N, BLOCK=4096, num_warps=8)
    return y
