"""The loop over heads stops after 64."""

import triton
import triton.language as tl


@triton.jit
def _heads(U, t, i, ok, c, s, u0, u1, half, H: tl.constexpr):
    base = U + t.to(tl.int64)[:, None] * u0 + i[None, :]
    for _ in tl.range(min(H, 64)):
        lo = tl.load(base, mask=ok, other=0.0).to(tl.float32)
        hi = tl.load(base + half, mask=ok, other=0.0).to(tl.float32)
        tl.store(base + half, (lo * s + hi * c).to(U.dtype.element_ty), mask=ok)
        tl.store(base, (lo * c - hi * s).to(U.dtype.element_ty), mask=ok)
        base += u1


@triton.heuristics({"B": lambda a: triton.next_power_of_2(a["half"]), "TB": lambda a: 4 if a["T"] >= 4 else 1})
@triton.jit
def _k(
    Q, K, C, S, T, half, q0, q1, k0, k1, c0, s0, H: tl.constexpr, HK: tl.constexpr, B: tl.constexpr, TB: tl.constexpr
):
    t = tl.program_id(0) * TB + tl.arange(0, TB)
    i = tl.arange(0, B)
    ok = (t[:, None] < T) & (i[None, :] < half)
    t64 = t.to(tl.int64)[:, None]
    c = tl.load(C + t64 * c0 + i[None, :], mask=ok, other=0.0).to(tl.float32)
    s = tl.load(S + t64 * s0 + i[None, :], mask=ok, other=0.0).to(tl.float32)
    if tl.program_id(1) == 0:
        _heads(Q, t, i, ok, c, s, q0, q1, half, H)
    else:
        _heads(K, t, i, ok, c, s, k0, k1, half, HK)


def rope_(q, k, cos, sin):
    T, H, d = q.shape
    _k[lambda m: (triton.cdiv(T, m["TB"]), 2)](
        q,
        k,
        cos,
        sin,
        T,
        d // 2,
        q.stride(0),
        q.stride(1),
        k.stride(0),
        k.stride(1),
        cos.stride(0),
        sin.stride(0),
        H=H,
        HK=k.shape[1],
    )
