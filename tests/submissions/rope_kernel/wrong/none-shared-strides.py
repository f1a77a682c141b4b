"""Keys are walked with the queries' strides."""

import torch
import triton
import triton.language as tl


@triton.jit
def rot(u, c, s, ut, uh, ct, st, half, B: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, B)
    m = j < half
    co = tl.load(c + t * ct + j, mask=m, other=0).to(tl.float32)
    si = tl.load(s + t * st + j, mask=m, other=0).to(tl.float32)
    p = u + t * ut + tl.program_id(1) * uh + j
    a = tl.load(p, mask=m, other=0).to(tl.float32)
    b = tl.load(p + half, mask=m, other=0).to(tl.float32)
    tl.store(p, a * co - b * si, mask=m)
    tl.store(p + half, b * co + a * si, mask=m)


def rope_(q, k, cos, sin):
    half = q.shape[2] // 2
    for u in (q, k):
        rot[(u.shape[0], u.shape[1])](
            u, cos, sin, q.stride(0), q.stride(1), cos.stride(0), sin.stride(0), half, B=triton.next_power_of_2(half)
        )
