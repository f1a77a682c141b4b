"""Angles and halves stay in the dtype of q all along; several heads a program."""

import triton
import triton.language as tl


@triton.jit
def _rotate(lo, hi, c, s):
    return lo * c - hi * s, hi * c + lo * s


@triton.jit
def _k(U, C, S, H, half, ut, uh, ct, st, HB: tl.constexpr, B: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1) * HB + tl.arange(0, HB)
    i = tl.arange(0, B)
    c = tl.load(C + t * ct + i, mask=i < half, other=0.0).to(U.dtype.element_ty)[None, :]
    s = tl.load(S + t * st + i, mask=i < half, other=0.0).to(U.dtype.element_ty)[None, :]
    ok = (h < H)[:, None] & (i < half)[None, :]
    at = U + t * ut + h.to(tl.int64)[:, None] * uh + i[None, :]
    lo = tl.load(at, mask=ok, other=0.0)
    hi = tl.load(at + half, mask=ok, other=0.0)
    a, b = _rotate(lo, hi, c, s)
    tl.store(at, a.to(U.dtype.element_ty), mask=ok)
    tl.store(at + half, b.to(U.dtype.element_ty), mask=ok)


def _turn(u, cos, sin):
    T, H, d = u.shape
    hb = min(8, triton.next_power_of_2(H))
    _k[(T, triton.cdiv(H, hb))](
        u,
        cos,
        sin,
        H,
        d // 2,
        u.stride(0),
        u.stride(1),
        cos.stride(0),
        sin.stride(0),
        HB=hb,
        B=triton.next_power_of_2(d // 2),
    )


def rope_(q, k, cos, sin):
    for u in (q, k):
        _turn(u, cos, sin)
