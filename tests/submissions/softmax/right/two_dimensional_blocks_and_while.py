"""Short rows in two-dimensional blocks, base 2; long rows lane by lane in a while loop."""

import torch
import triton
import triton.language as tl


@triton.jit
def _shift(m):
    return tl.where(m == float("-inf"), 0.0, m)


@triton.jit
def _rows(X, Y, M, N, sx, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, BLOCK)[None, :]
    ok = (r < M) & (c < N)
    v = tl.load(X + r * sx + c, mask=ok, other=float("-inf")).to(tl.float32)
    m = _shift(tl.max(v, axis=1, keep_dims=True))
    e = tl.exp2((v - m) * 1.4426950408889634)
    z = tl.sum(e, axis=1, keep_dims=True)
    y = e / tl.where(r < M, z, 1.0)
    tl.store(Y + r * N + c, y.to(Y.dtype.element_ty), mask=ok)


@triton.jit
def _long(X, Y, N, sx, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    X += r * sx
    Y += r * N
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    s = tl.zeros([BLOCK], tl.float32)
    k = 0
    while k < N:
        c = k + tl.arange(0, BLOCK)
        v = tl.load(X + c, mask=c < N, other=float("-inf")).to(tl.float32)
        new = tl.maximum(m, v)
        s = s * tl.exp(m - _shift(new)) + tl.exp(v - _shift(new))
        m = new
        k += BLOCK
    top = tl.max(m, 0)
    z = tl.sum(s * tl.exp(m - top), 0)
    k = 0
    while k < N:
        c = k + tl.arange(0, BLOCK)
        v = tl.load(X + c, mask=c < N, other=float("-inf")).to(tl.float32)
        tl.store(Y + c, (tl.exp(v - top) / z).to(Y.dtype.element_ty), mask=c < N)
        k += BLOCK


def softmax(x: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(N)
    if block <= 32768:
        rows = max(1, min(8, 4096 // block))
        _rows[(triton.cdiv(M, rows),)](
            x, y, M, N, x.stride(0), rows, block, num_warps=max(1, min(32, block * rows // 256))
        )
    else:
        _long[(M,)](x, y, N, x.stride(0), 4096, num_warps=8)
    return y
