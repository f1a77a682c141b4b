"""All pairs of a tensor flattened; division and remainder give token, head and pair."""

import triton
import triton.language as tl


@triton.jit
def _flat(U, C, S, N, H, half, u0, u1, c0, s0, BLOCK: tl.constexpr):
    n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = n < N
    i = n % half
    h = (n // half) % H
    t = n // half // H
    at = t * u0 + h * u1 + i
    lo = tl.load(U + at, ok, 0.0).to(tl.float32)
    hi = tl.load(U + at + half, ok, 0.0).to(tl.float32)
    c = tl.load(C + t * c0 + i, ok, 0.0).to(tl.float32)
    s = tl.load(S + t * s0 + i, ok, 0.0).to(tl.float32)
    tl.store(U + at, tl.fma(lo, c, -hi * s).to(U.type.element_ty), ok)
    tl.store(U + at + half, tl.fma(hi, c, lo * s).to(U.type.element_ty), ok)


class Rope:
    block = 1024

    def __init__(self, cos, sin):
        self.cos, self.sin = cos, sin

    def __call__(self, u):
        n = u.numel() // 2
        _flat[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](
            u,
            self.cos,
            self.sin,
            n,
            u.size(1),
            u.size(2) // 2,
            u.stride(0),
            u.stride(1),
            self.cos.stride(0),
            self.sin.stride(0),
            BLOCK=self.block,
            num_warps=4,
        )


def rope_(q, k, cos, sin):
    turn = Rope(cos, sin)
    turn(q)
    turn(k)
