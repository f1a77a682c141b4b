"""The rows of cos are found by 32-bit offsets; those of q and k by 64-bit ones."""

import triton
import triton.language as tl


@triton.jit
def _all(Q, K, C, S, T, H, HK, half, q0, q1, k0, k1, c0, s0, BH: tl.constexpr):
    side = tl.arange(0, 2)[:, None]
    i = tl.arange(0, BH)[None, :]
    for t in range(tl.program_id(0), T, tl.num_programs(0)):
        row = tl.cast(t, tl.int64)
        c = tl.load(C + t * c0 + i, mask=i < half, other=0.0).to(tl.float32)
        s = tl.load(S + row * s0 + i, mask=i < half, other=0.0).to(tl.float32)
        for h in range(H):
            P = Q + row * q0 + tl.cast(h, tl.int64) * q1
            lo = tl.load(P + i, mask=i < half, other=0.0).to(tl.float32)
            hi = tl.load(P + half + i, mask=i < half, other=0.0).to(tl.float32)
            both = tl.where(side == 0, lo * c - hi * s, hi * c + lo * s)
            tl.store(P + side * half + i, both.to(Q.dtype.element_ty), mask=i < half)
        for h in range(HK):
            P = K + row * k0 + tl.cast(h, tl.int64) * k1
            lo = tl.load(P + i, mask=i < half, other=0.0).to(tl.float32)
            hi = tl.load(P + half + i, mask=i < half, other=0.0).to(tl.float32)
            both = tl.where(side == 0, lo * c - hi * s, hi * c + lo * s)
            tl.store(P + side * half + i, both.to(K.dtype.element_ty), mask=i < half)


def rope_(q, k, cos, sin):
    T, H, d = q.shape
    _all[(min(T, 16),)](
        q,
        k,
        cos,
        sin,
        T,
        H,
        k.shape[1],
        d // 2,
        q.stride(0),
        q.stride(1),
        k.stride(0),
        k.stride(1),
        cos.stride(0),
        sin.stride(0),
        BH=triton.next_power_of_2(d // 2),
        num_warps=1,
    )
