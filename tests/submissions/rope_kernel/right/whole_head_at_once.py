"""A head as one block of d: the partner is loaded by a second address, the sign comes from which half a lane is in."""

import torch
import triton
import triton.language as tl


@triton.jit
def spin(u, heads, ut, uh, t, cos, sin, ct, st, half, B: tl.constexpr):
    j = tl.arange(0, B)
    m = j < 2 * half
    i = tl.where(j < half, j, j - half)
    partner = tl.where(j < half, j + half, j - half)
    c = tl.load(cos + t * ct + i, mask=m, other=1.0).to(tl.float32)
    s = tl.load(sin + t * st + i, mask=m, other=0.0).to(tl.float32)
    s = tl.where(j < half, -s, s)
    for h in range(heads):
        p = u + t * ut + h * uh
        own = tl.load(p + j, mask=m, other=0.0)
        other = tl.gather(own, tl.where(m, partner, 0), 0)
        tl.store(p + j, own.to(tl.float32) * c + other.to(tl.float32) * s, mask=m)


@triton.jit
def both(q, k, cos, sin, H, K, qt, qh, kt, kh, ct, st, half, B: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    spin(q, H, qt, qh, t, cos, sin, ct, st, half, B)
    spin(k, K, kt, kh, t, cos, sin, ct, st, half, B)


def rope_(q, k, cos, sin):
    T, H, d = q.shape
    both[(T,)](
        q,
        k,
        cos,
        sin,
        H,
        k.shape[1],
        q.stride(0),
        q.stride(1),
        k.stride(0),
        k.stride(1),
        cos.stride(0),
        sin.stride(0),
        d // 2,
        B=triton.next_power_of_2(d),
    )
