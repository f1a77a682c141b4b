"""A row in four quarter blocks kept in registers, each behind a constexpr flag."""

import triton
import triton.language as tl


@triton.jit
def piece(x, r, h, at, D):
    ok = at < D
    v = tl.load(x + at, mask=ok, other=0.0, eviction_policy="evict_first").to(tl.float32)
    v += tl.load(r + at, mask=ok, other=0.0, eviction_policy="evict_first").to(tl.float32)
    tl.store(h + at, v.to(h.dtype.element_ty), mask=ok)
    return v


@triton.jit
def kernel(x, r, w, y, h, sx, sr, D, eps, C: tl.constexpr, PARTS: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, C)
    a = piece(x + t * sx, r + t * sr, h + t * D, at, D)
    squares = a * a
    if PARTS >= 2:
        b = piece(x + t * sx, r + t * sr, h + t * D, at + C, D)
        squares += b * b
    if PARTS >= 3:
        c = piece(x + t * sx, r + t * sr, h + t * D, at + 2 * C, D)
        squares += c * c
    if PARTS == 4:
        d = piece(x + t * sx, r + t * sr, h + t * D, at + 3 * C, D)
        squares += d * d
    root = tl.sqrt(tl.sum(squares, 0) / D + eps)
    y += t * D
    tl.store(y + at, a / root * tl.load(w + at, mask=at < D, other=0.0), mask=at < D)
    if PARTS >= 2:
        at += C
        tl.store(y + at, b / root * tl.load(w + at, mask=at < D, other=0.0), mask=at < D)
    if PARTS >= 3:
        at += C
        tl.store(y + at, c / root * tl.load(w + at, mask=at < D, other=0.0), mask=at < D)
    if PARTS == 4:
        at += C
        tl.store(y + at, d / root * tl.load(w + at, mask=at < D, other=0.0), mask=at < D)


def add_rmsnorm(x, residual, weight, eps=1e-6):
    T, D = x.shape
    y = x.new_empty((T, D))
    h = x.new_empty((T, D))
    C = max(1, triton.next_power_of_2(D) // 4)
    kernel[T,](
        x,
        residual,
        weight,
        y,
        h,
        x.stride(0),
        residual.stride(0),
        D,
        eps,
        C=C,
        PARTS=triton.cdiv(D, C),
        num_warps=max(4, min(16, C // 256)),
    )
    return y, h
