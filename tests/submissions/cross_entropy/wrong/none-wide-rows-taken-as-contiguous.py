"""The kernel for wide rows takes them to lie V apart."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _fold(ma, sa, mb, sb):
    m = tl.maximum(ma, mb)
    u = tl.where(m == float("-inf"), 0.0, m)
    return m, sa * tl.exp2((ma - u) * LOG2E) + sb * tl.exp2((mb - u) * LOG2E)


@triton.jit
def _finish(L, T, LOSS, LSE, row, m, s, ls, ts, ignore):
    lse = m + tl.log2(s) * LN2
    t = tl.load(T + row * ts).to(tl.int64)
    tl.store(LSE + row, lse)
    if t == ignore:
        tl.store(LOSS + row, 0.0)
    else:
        tl.store(LOSS + row, lse - tl.load(L + row * ls + t).to(tl.float32))


@triton.jit
def _small(L, T, LOSS, LSE, M, V, ls, ts, ignore, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    for i in tl.range(tl.program_id(0), M, tl.num_programs(0), num_stages=3):
        row = i.to(tl.int64)
        v = tl.load(L + row * ls + c, mask=c < V, other=float("-inf")).to(tl.float32)
        m = tl.max(v, 0)
        _finish(L, T, LOSS, LSE, row, m, tl.sum(tl.exp2((v - m) * LOG2E), 0), ls, ts, ignore)


@triton.jit
def _part(L, PART, V, ls, SHARE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0)
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    s = tl.full([BLOCK], 0.0, tl.float32)
    one = tl.full([BLOCK], 1.0, tl.float32)
    for i in tl.static_range(SHARE // BLOCK):
        c = p * SHARE + i * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(L + row * V + c, mask=c < V, other=float("-inf")).to(tl.float32)
        m, s = _fold(m, s, v, one)
    m, s = tl.reduce((m, s), 0, _fold)
    at = PART + (row * tl.num_programs(0) + p) * 2
    tl.store(at, m)
    tl.store(at + 1, s)


@triton.jit
def _merge(L, T, PART, LOSS, LSE, parts, ls, ts, ignore, P: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    p = tl.arange(0, P)
    at = PART + (row * parts + p) * 2
    m = tl.load(at, mask=p < parts, other=float("-inf"))
    s = tl.load(at + 1, mask=p < parts, other=0.0)
    m, s = tl.reduce((m, s), 0, _fold)
    _finish(L, T, LOSS, LSE, row, m, s, ls, ts, ignore)


def cross_entropy(logits, targets, ignore_index=-100):
    M, V = logits.shape
    loss, lse = (logits.new_empty((M,), dtype=torch.float32) for _ in range(2))
    tail = (logits.stride(0), targets.stride(0), ignore_index)
    if V <= 1024:
        block = triton.next_power_of_2(V)
        _small[(min(M, 11),)](logits, targets, loss, lse, M, V, *tail, BLOCK=block, num_warps=4)
        return loss, lse
    share = 1024
    parts = triton.cdiv(V, share)
    scratch = torch.empty((M, parts, 2), dtype=torch.float32, device=logits.device)
    _part[(parts, M)](logits, scratch, V, logits.stride(0), SHARE=share, BLOCK=512, num_warps=4)
    _merge[(M,)](logits, targets, scratch, loss, lse, parts, *tail, P=triton.next_power_of_2(parts))
    return loss, lse
