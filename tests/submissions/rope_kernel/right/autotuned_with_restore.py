"""Autotuned with restore_value; both halves as one tile, taken apart by sums over the pair axis."""

import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"LOOP": n}, num_warps=w) for n, w in ((1, 4), (2, 4))], key=["d", "H", "G"], restore_value=["q", "k"])
@triton.jit
def turn(q, k, c, s, H, G, d, qt, qh, kt, kh, ct, st, LOOP: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BD)[None, None, :]
    part = tl.arange(0, 2)[None, :, None]
    half = d // 2
    cos = tl.load(c + t * ct + i, mask=i < half, other=0.0).to(tl.float32)
    sin = tl.load(s + t * st + i, mask=i < half, other=0.0).to(tl.float32)
    for first in tl.range(0, H, BH, num_stages=LOOP):
        h = first + tl.arange(0, BH)[:, None, None]
        spot = q + t * qt + h * qh + part * half + i
        ok = (h < H) & (i < half)
        u = tl.load(spot, mask=ok & (part < 2), other=0.0).to(tl.float32)
        x = tl.sum(tl.where(part == 0, u, 0.0), 1, keep_dims=True)
        y = tl.sum(tl.where(part == 1, u, 0.0), 1, keep_dims=True)
        tl.store(spot, tl.where(part == 0, x * cos - y * sin, y * cos + x * sin), mask=ok & (part < 2))
    for first in tl.range(0, G, BH, num_stages=LOOP):
        h = first + tl.arange(0, BH)[:, None, None]
        spot = k + t * kt + h * kh + part * half + i
        ok = (h < G) & (i < half)
        u = tl.load(spot, mask=ok & (part < 2), other=0.0).to(tl.float32)
        x = tl.sum(tl.where(part == 0, u, 0.0), 1, keep_dims=True)
        y = tl.sum(tl.where(part == 1, u, 0.0), 1, keep_dims=True)
        tl.store(spot, tl.where(part == 0, x * cos - y * sin, y * cos + x * sin), mask=ok & (part < 2))


def rope_(q, k, cos, sin):
    T, H, d = q.shape
    BD = triton.next_power_of_2(d // 2)
    turn[(T,)](q, k, cos, sin, H, k.shape[1], d, *q.stride()[:2], *k.stride()[:2], cos.stride(0), sin.stride(0), BH=max(1, min(4, 512 // BD)), BD=BD)
