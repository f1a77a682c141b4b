"""A grid over tokens and all heads; a program rotates one head, queries first, keys behind them."""

import torch
import triton
import triton.language as tl


@triton.jit
def rot(q, k, c, s, qt, qh, kt, kh, ct, st, H, half, B: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1)
    j = tl.arange(0, B)
    m = j < half
    co = tl.load(c + t * ct + j, mask=m, other=0).to(tl.float32)
    si = tl.load(s + t * st + j, mask=m, other=0).to(tl.float32)
    if h < H:
        p = q + t * qt + h * qh
    else:
        p = k + t * kt + (h - H) * kh
    u = tl.load(p + j, mask=m, other=0).to(tl.float32)
    v = tl.load(p + half + j, mask=m, other=0).to(tl.float32)
    tl.store(p + j, u * co - v * si, mask=m)
    tl.store(p + half + j, v * co + u * si, mask=m)


def rope_(q, k, cos, sin):
    T, H, d = q.shape
    rot[(T, H + k.shape[1])](
        q,
        k,
        cos,
        sin,
        q.stride(0),
        q.stride(1),
        k.stride(0),
        k.stride(1),
        cos.stride(0),
        sin.stride(0),
        H,
        d // 2,
        B=triton.next_power_of_2(d // 2),
        num_warps=1,
    )
