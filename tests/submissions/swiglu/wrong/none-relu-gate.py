"""The gate is a hard sigmoid times a, close to silu near 0 only."""

import torch
import triton
import triton.language as tl


@triton.jit
def k(a, b, y, sa, sb, n, B: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * B + tl.arange(0, B)
    m = c < n
    u = tl.load(a + r * sa + c, mask=m, other=0.0).to(tl.float32)
    v = tl.load(b + r * sb + c, mask=m, other=0.0).to(tl.float32)
    hard = tl.minimum(tl.maximum(u / 6 + 0.5, 0.0), 1.0)
    tl.store(y + r * n + c, u * hard * v, mask=m)


def swiglu(a, b):
    T, D = a.shape
    y = torch.empty((T, D), dtype=a.dtype, device=a.device)
    k[(T, triton.cdiv(D, 256))](a, b, y, a.stride(0), b.stride(0), D, B=256)
    return y
