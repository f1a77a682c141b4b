"""The placing kernel takes no more than two chunks of its slots."""

import torch
import triton
import triton.language as tl


@triton.jit
def _choose(L, W, IDX, C, T, E, K, stride, BT: tl.constexpr, BE: tl.constexpr, BK: tl.constexpr):
    b = tl.program_id(0)
    t = b * BT + tl.arange(0, BT)
    e = tl.arange(0, BE)
    j = tl.arange(0, BK)
    live = t < T
    ok = live[:, None] & (e < E)[None, :]
    v = tl.load(L + t.to(tl.int64)[:, None] * stride + e[None, :], mask=ok, other=float("-inf"))
    count = tl.zeros([BE], tl.int32)
    best = tl.full([BT, BK], float("-inf"), tl.float32)
    who = tl.zeros([BT, BK], tl.int32)
    for c in range(K):
        m = tl.max(v, 1)
        a = tl.min(tl.where(v == m[:, None], e[None, :], BE), 1)
        hit = (e[None, :] == a[:, None]) & live[:, None]
        count += tl.sum(hit.to(tl.int32), 0)
        v = tl.where(e[None, :] == a[:, None], float("-inf"), v)
        best = tl.where((j == c)[None, :], m[:, None], best)
        who = tl.where((j == c)[None, :], a[:, None], who)
    p = tl.exp(best - tl.max(best, 1)[:, None])
    p = tl.where((j < K)[None, :], p, 0.0)
    p = p / tl.sum(p, 1)[:, None]
    at = t[:, None] * K + j[None, :]
    keep = live[:, None] & (j < K)[None, :]
    tl.store(W + at, p, mask=keep)
    tl.store(IDX + at, who, mask=keep)
    tl.store(C + b * E + e, count, mask=e < E)


@triton.jit
def _scan(C, START, OFF, B, E, BE: tl.constexpr):
    e = tl.arange(0, BE)
    total = tl.zeros([BE], tl.int32)
    for b in range(B):
        total += tl.load(C + b * E + e, mask=e < E, other=0)
    ends = tl.cumsum(total, 0)
    run = ends - total
    tl.store(OFF + 1 + e, ends, mask=e < E)
    tl.store(OFF, 0)
    for b in range(B):
        n = tl.load(C + b * E + e, mask=e < E, other=0)
        tl.store(START + b * E + e, run, mask=e < E)
        run += n


@triton.jit
def _place(IDX, START, ORDER, N, E, SLOTS, BS: tl.constexpr, BE: tl.constexpr):
    b = tl.program_id(0)
    e = tl.arange(0, BE)
    run = tl.load(START + b * E + e, mask=e < E, other=0)
    for i in range(0, min(SLOTS, 2 * BS), BS):
        s = b * SLOTS + i + tl.arange(0, BS)
        ok = (s < N) & (i + tl.arange(0, BS) < SLOTS)
        x = tl.load(IDX + s, mask=ok, other=-1)
        one = (x[:, None] == e[None, :]).to(tl.int32)
        before = tl.cumsum(one, 0) - one
        where = tl.sum((before + run[None, :]) * one, 1)
        tl.store(ORDER + where, s, mask=ok)
        run += tl.sum(one, 0)


def topk_route(logits, k):
    T, E = logits.shape
    if not 1 <= k <= E:
        raise ValueError("k")
    dev = logits.device
    BT = 64
    B = triton.cdiv(T, BT)
    BE = triton.next_power_of_2(E)
    w = torch.empty((T, k), dtype=torch.float32, device=dev)
    idx = torch.empty((T, k), dtype=torch.int32, device=dev)
    order = torch.empty(T * k, dtype=torch.int32, device=dev)
    off = torch.empty(E + 1, dtype=torch.int32, device=dev)
    c = torch.empty((B, E), dtype=torch.int32, device=dev)
    start = torch.empty_like(c)
    BT2 = BT
    _choose[(B,)](
        logits, w, idx, c, T, E, k, logits.stride(0), BT=BT2, BE=BE, BK=triton.next_power_of_2(k), num_warps=8
    )
    _scan[(1,)](c, start, off, B, E, BE=BE)
    _place[(B,)](idx, start, order, T * k, E, BT * k, BS=64, BE=BE, num_warps=8)
    return w, idx, order, off
