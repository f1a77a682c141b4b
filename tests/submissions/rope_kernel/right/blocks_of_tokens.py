"""A program takes a block of tokens and one head; three-dimensional thinking flattened to (tokens, d/2)."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(u, cos, sin, T, s_t, s_h, c_t, n_t, half, TB: tl.constexpr, DB: tl.constexpr):
    t = (tl.program_id(0) * TB + tl.arange(0, TB)).to(tl.int64)[:, None]
    j = tl.arange(0, DB)[None, :]
    ok = (t < T) & (j < half)
    c = tl.load(cos + t * c_t + j, mask=ok, other=0.0).to(tl.float32)
    s = tl.load(sin + t * n_t + j, mask=ok, other=0.0).to(tl.float32)
    base = u + t * s_t + tl.program_id(1) * s_h + j
    a = tl.load(base, mask=ok, other=0.0).to(tl.float32)
    b = tl.load(base + half, mask=ok, other=0.0).to(tl.float32)
    tl.store(base, a * c - b * s, mask=ok)
    tl.store(base + half, b * c + a * s, mask=ok)


def rope_(q, k, cos, sin):
    half = q.shape[-1] // 2

    def launch(u):
        T, H, _ = u.shape
        kernel[(triton.cdiv(T, 8), H)](
            u,
            cos,
            sin,
            T,
            u.stride(0),
            u.stride(1),
            cos.stride(0),
            sin.stride(0),
            half,
            TB=8,
            DB=triton.next_power_of_2(half),
        )

    launch(q)
    launch(k)
