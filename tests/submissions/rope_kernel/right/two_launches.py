"""One kernel for one tensor, launched for q and for k; complex multiplication written out in a helper."""

import torch
import triton
import triton.language as tl


@triton.jit
def times(re, im, c, s):
    return re * c - im * s, re * s + im * c


@triton.jit
def turn(u, cos, sin, ut, uh, ct, st, H, half, HB: tl.constexpr, DB: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1) * HB + tl.arange(0, HB)
    j = tl.arange(0, DB)
    keep = (h < H)[:, None] & (j < half)[None, :]
    at = u + t * ut + h[:, None] * uh + j[None, :]
    c = tl.load(cos + t * ct + j, mask=j < half)[None, :].to(tl.float32)
    s = tl.load(sin + t * st + j, mask=j < half)[None, :].to(tl.float32)
    re, im = times(tl.load(at, mask=keep).to(tl.float32), tl.load(at + half, mask=keep).to(tl.float32), c, s)
    tl.store(at, re.to(u.dtype.element_ty), mask=keep)
    tl.store(at + half, im.to(u.dtype.element_ty), mask=keep)


def rope_(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    for u in (q, k):
        T, H, d = u.shape
        turn[(T, triton.cdiv(H, 4))](
            u,
            cos,
            sin,
            u.stride(0),
            u.stride(1),
            cos.stride(0),
            sin.stride(0),
            H,
            d // 2,
            HB=4,
            DB=triton.next_power_of_2(d // 2),
        )
