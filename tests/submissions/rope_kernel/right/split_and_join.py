"""A block of heads as one tile of pairs, taken apart by tl.split and put together by tl.join; tuples in helpers."""

import triton
import triton.language as tl


@triton.jit
def _times(x, z):
    return x[0] * z[0] - x[1] * z[1], x[1] * z[0] + x[0] * z[1]


@triton.jit
def _one(u, t, z, half, HB: tl.constexpr, B: tl.constexpr):
    P, heads, st, sh = u
    i = tl.arange(0, B)[None, :, None]
    side = tl.arange(0, 2)[None, None, :]
    for h0 in range(0, heads, HB):
        h = (h0 + tl.arange(0, HB))[:, None, None]
        ok = (h < heads) & (i < half) & (side >= 0)
        at = P + t * st + h.to(tl.int64) * sh + side * half + i
        re, im = tl.split(tl.load(at, mask=ok, other=0.0).to(tl.float32))
        re, im = _times((re, im), z)
        tl.store(at, tl.join(re, im).to(P.dtype.element_ty), mask=ok)


@triton.jit
def _k(Q, K, C, S, QH, KH, q0, q1, k0, k1, cs, ss, half, HB: tl.constexpr, B: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, B)
    z = (
        tl.load(C + t * cs + i, mask=i < half, other=1.0).to(tl.float32)[None, :],
        tl.load(S + t * ss + i, mask=i < half, other=0.0).to(tl.float32)[None, :],
    )
    _one((Q, QH, q0, q1), t, z, half, HB, B)
    _one((K, KH, k0, k1), t, z, half, HB, B)


def rope_(q, k, cos, sin):
    _k[(q.shape[0],)](
        q, k, cos, sin, q.shape[1], k.shape[1], q.stride(0), q.stride(1), k.stride(0), k.stride(1),
        cos.stride(0), sin.stride(0), q.shape[2] // 2, HB=4, B=triton.next_power_of_2(q.shape[2] // 2),
    )  # fmt: skip
