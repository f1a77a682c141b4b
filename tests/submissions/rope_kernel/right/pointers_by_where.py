"""Heads of q and k in one block: the pointer of each is chosen by tl.where; tokens in a while loop."""

import torch
import triton
import triton.language as tl


@triton.jit
def spin(q, k, c, s, T, H, N, half, qt, qh, kt, kh, ct, st, BN: tl.constexpr, BD: tl.constexpr):
    n = tl.arange(0, BN)
    i = tl.arange(0, BD)
    t = tl.program_id(0).to(tl.int64)
    while t < T:
        ok = i < half
        cos = tl.load(c + t * ct + i, mask=ok, other=1.0).to(tl.float32)[None, :]
        sin = tl.load(s + t * st + i, mask=ok, other=0.0).to(tl.float32)[None, :]
        row = tl.where(n < H, q + t * qt + n * qh, k + t * kt + (n - H) * kh)
        lo = row[:, None] + i[None, :]
        keep = (n < N)[:, None] & ok[None, :]
        a = tl.load(lo, mask=keep, other=0.0).to(tl.float32)
        b = tl.load(lo + half, mask=keep, other=0.0).to(tl.float32)
        tl.store(lo, (a * cos - b * sin).to(q.dtype.element_ty), mask=keep)
        tl.store(lo + half, (b * cos + a * sin).to(q.dtype.element_ty), mask=keep)
        t += tl.num_programs(0)


def rope_(q, k, cos, sin):
    T, H, d = q.shape
    N = H + k.shape[1]
    P = triton.next_power_of_2
    spin[(min(T, 60),)](q, k, cos, sin, T, H, N, d // 2, q.stride(0), q.stride(1), k.stride(0), k.stride(1), cos.stride(0), sin.stride(0), BN=P(N), BD=P(d // 2), num_warps=8)
