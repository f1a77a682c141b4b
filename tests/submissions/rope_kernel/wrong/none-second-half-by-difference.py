"""The second half is carried as (first + second) - first."""

import torch
import triton
import triton.language as tl


@triton.jit
def cmul(x, y):
    (ar, ai), (br, bi) = x, y
    return ar * br - ai * bi, ar * bi + ai * br


@triton.jit
def phase(re, im, c, s, T, H, half, ut, uh, ct, st, BT: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr):
    t = (tl.program_id(0) * BT + tl.arange(0, BT))[:, None, None]
    h = (tl.program_id(1) * BH + tl.arange(0, BH))[None, :, None]
    i = tl.arange(0, BD)[None, None, :]
    far = t.to(tl.int64)
    ang = (t < T) & (i < half)
    ok = ang & (h < H)
    w = tl.load(c + far * ct + i, mask=ang, other=0.0).to(tl.float32), tl.load(s + far * st + i, mask=ang, other=0.0).to(tl.float32)
    at = far * ut + h * uh + i
    first = tl.load(re + at, mask=ok, other=0.0).to(tl.float32)
    both = first + tl.load(im + at, mask=ok, other=0.0).to(tl.float32)
    z = first, both - first
    x, y = cmul(z, w)
    tl.store(re + at, x, mask=ok)
    tl.store(im + at, y, mask=ok)


def rope_(q, k, cos, sin):
    for u in (q, k):
        re, im = u.unflatten(-1, (2, -1)).unbind(-2)
        T, H, half = re.shape
        BD = triton.next_power_of_2(half)
        BH = min(8, triton.next_power_of_2(H))
        BT = max(1, min(4, 1024 // (BD * BH)))
        phase[(triton.cdiv(T, BT), triton.cdiv(H, BH))](
            re, im, cos, sin, T, H, half, re.stride(0), re.stride(1), cos.stride(0), sin.stride(0), BT=BT, BH=BH, BD=BD)
