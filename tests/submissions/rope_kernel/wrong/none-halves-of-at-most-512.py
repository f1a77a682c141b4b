"""Halves of at most 512 numbers."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl




class Side(NamedTuple):
    data: torch.Tensor
    heads: int
    token: int
    head: int


@triton.jit
def one(u, t, h, heads, token, head, cos, sin, half, BD: tl.constexpr):
    i = tl.arange(0, BD)
    ok = (h < heads)[:, None] & (i < half)[None, :]
    at = u + t * token + h[:, None] * head + i[None, :]
    x = tl.load(at, mask=ok, eviction_policy="evict_first").to(tl.float32)
    y = tl.load(at + half, mask=ok, eviction_policy="evict_first").to(tl.float32)
    tl.store(at, tl.fma(x, cos, -(y * sin)), mask=ok)
    tl.store(at + half, tl.fma(y, cos, x * sin), mask=ok)


@triton.jit
def both(Q, K, cp, sp, ct, st, half, BH: tl.constexpr, BD: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    i = tl.arange(0, BD)
    cos = tl.load(cp + t * ct + i, mask=i < half, other=0.0, eviction_policy="evict_last").to(tl.float32)[None, :]
    sin = tl.load(sp + t * st + i, mask=i < half, other=0.0, eviction_policy="evict_last").to(tl.float32)[None, :]
    if tl.program_id(2) == 0:
        one(Q[0], t, h, Q[1], Q[2], Q[3], cos, sin, half, BD)
    else:
        one(K[0], t, h, K[1], K[2], K[3], cos, sin, half, BD)


def rope_(q, k, cos, sin):
    T, _, d = q.shape
    sides = [Side(u, u.size(1), u.stride(0), u.stride(1)) for u in (q, k)]
    grid = lambda meta: (T, triton.cdiv(max(s.heads for s in sides), meta["BH"]), 2)
    both[grid](Q=tuple(sides[0]), K=tuple(sides[1]), cp=cos, sp=sin, ct=cos.stride(0), st=sin.stride(0), half=d // 2, BH=8, BD=min(512, triton.next_power_of_2(d // 2)))
