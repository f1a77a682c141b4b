"""Persistent programs of four rows, base-2 exponentials, the loss as log(s) - (x_t - m)."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def kernel(
    logits, targets, loss, lse, ls: tl.int64, ts: tl.int64, M, V, ignore: tl.int64, R: tl.constexpr, C: tl.constexpr
):
    for first in tl.range(tl.program_id(0) * R, M, tl.num_programs(0) * R):
        rows = first.to(tl.int64) + tl.arange(0, R)
        inside = rows < M
        t = tl.load(targets + rows * ts, mask=inside, other=ignore).to(tl.int64)
        counts = t != ignore
        base = logits + (rows * ls)[:, None]
        m = tl.full((R,), float("-inf"), tl.float32)
        s = tl.zeros((R,), tl.float32)
        k = 0
        while k < V:
            at = (k + tl.arange(0, C))[None, :]
            v = tl.load(base + at, mask=inside[:, None] & (at < V), other=float("-inf")).to(tl.float32)
            hi = tl.maximum(m, tl.max(v, 1))
            ref = tl.where(hi == float("-inf"), 0.0, hi)
            s = s * tl.exp2((m - ref) * LOG2E) + tl.sum(tl.exp2((v - ref[:, None]) * LOG2E), 1)
            m = hi
            k += C
        xt = tl.load(logits + rows * ls + t, mask=inside & counts, other=0.0).to(tl.float32)
        ln = tl.log2(s) * LN2
        tl.store(lse + rows, m + ln, mask=inside)
        tl.store(loss + rows, tl.where(counts, ln - (xt - m), 0.0), mask=inside)


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor, ignore_index: int = -100):
    M, V = logits.shape
    loss, lse = (logits.new_empty(M, dtype=torch.float32) for _ in range(2))
    R = 4
    C = min(1024, triton.next_power_of_2(V))
    grid = lambda meta: (min(triton.cdiv(M, meta["R"]), 24),)
    kernel[grid](logits, targets, loss, lse, logits.stride(0), targets.stride(0), M, V, ignore_index, R=R, C=C)
    return loss, lse
