"""The launcher makes logits contiguous where V is past 8192."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(z, t, loss, lse, zs, ts, V, ignore, C: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, C)
    m = -float("inf")
    s = 0.0
    for k in range(0, V, C):
        v = tl.load(z + row * zs + k + c, mask=k + c < V, other=-float("inf")).to(tl.float32)
        hi = tl.maximum(m, tl.max(v, 0))
        ref = tl.where(hi == -float("inf"), 0.0, hi)
        s = s * tl.exp(m - ref) + tl.sum(tl.exp(v - ref), 0)
        m = hi
    out = m + tl.log(s)
    tl.store(lse + row, out)
    y = tl.load(t + row * ts)
    xt = tl.load(z + row * zs + y, mask=y != ignore, other=0.0).to(tl.float32)
    tl.store(loss + row, tl.where(y == ignore, 0.0, out - xt))


@triton.jit
def wide(z, t, loss, lse, zs, ts, V, ignore, C: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, C)
    m = -float("inf")
    s = 0.0
    for k in range(0, V, C):
        v = tl.load(z + row * zs + k + c, mask=k + c < V, other=-float("inf")).to(tl.float32)
        hi = tl.maximum(m, tl.max(v, 0))
        ref = tl.where(hi == -float("inf"), 0.0, hi)
        s = s * tl.exp(m - ref) + tl.sum(tl.exp(v - ref), 0)
        m = hi
    out = m + tl.log(s)
    tl.store(lse + row, out)
    y = tl.load(t + row * ts)
    xt = tl.load(z + row * zs + y, mask=y != ignore, other=0.0).to(tl.float32)
    tl.store(loss + row, tl.where(y == ignore, 0.0, out - xt))


def cross_entropy(logits, targets, ignore_index=-100):
    M, V = logits.shape
    if V > 8192:
        logits = logits.contiguous()
    loss = torch.empty((M,), dtype=torch.float32, device=logits.device)
    lse = torch.empty((M,), dtype=torch.float32, device=logits.device)
    C = min(2048, triton.next_power_of_2(V))
    run = kernel if V <= 16384 else wide
    run[(M,)](logits, targets, loss, lse, logits.stride(0), targets.stride(0), V, ignore_index, C=C, num_warps=4)
    return loss, lse
