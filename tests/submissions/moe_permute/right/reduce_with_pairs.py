"""The best (logit, expert) by tl.reduce with a combine of its own; weights read again and divided."""

import torch
import triton
import triton.language as tl


@triton.jit
def better(va, ia, vb, ib):
    left = (va > vb) | ((va == vb) & (ia < ib))
    return tl.where(left, va, vb), tl.where(left, ia, ib)


@triton.jit
def choose(x_ptr, w_ptr, i_ptr, counts_ptr, T, E, stride, K: tl.constexpr, BT: tl.constexpr, BE: tl.constexpr, BK: tl.constexpr):
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    e = tl.broadcast_to(tl.arange(0, BE)[None, :], (BT, BE))
    x = tl.load(x_ptr + t[:, None].to(tl.int64) * stride + e, mask=(t < T)[:, None] & (e < E), other=float("-inf"))
    top = tl.max(x, 1)
    total = tl.zeros((BT,), tl.float32)
    count = tl.zeros((BE,), tl.int32)
    for c in tl.static_range(K):
        v, i = tl.reduce((x, e), 1, better)
        x = tl.where(e == i[:, None], float("-inf"), x)
        v = tl.where(t < T, tl.exp(v - top), 0.0)
        total += v
        count += tl.sum(((e == i[:, None]) & (t < T)[:, None]).to(tl.int32), 0)
        tl.store(w_ptr + t * K + c, v, mask=t < T)
        tl.store(i_ptr + t * K + c, i, mask=t < T)
    j = tl.arange(0, BK)
    at = t[:, None] * K + j[None, :]
    ok = (t < T)[:, None] & (j < K)[None, :]
    tl.store(counts_ptr + tl.program_id(0) * E + tl.arange(0, BE), count, mask=tl.arange(0, BE) < E)
    tl.debug_barrier()
    w = tl.load(w_ptr + at, mask=ok, other=0.0)
    tl.store(w_ptr + at, w / total[:, None], mask=ok)
@triton.jit
def place(i_ptr, counts_ptr, order_ptr, offsets_ptr, T, E, NB, K: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr, BE: tl.constexpr):
    pid = tl.program_id(0)
    e = tl.arange(0, BE)
    total = tl.zeros((BE,), tl.int32)
    before = tl.zeros((BE,), tl.int32)
    for b in range(NB):
        c = tl.load(counts_ptr + b * E + e, mask=e < E, other=0)
        total += c
        before += tl.where(b < pid, c, 0)
    ends = tl.cumsum(total, 0)
    run = ends - total + before
    if pid == 0:
        tl.store(offsets_ptr + 1 + e, ends, mask=e < E)
        tl.store(offsets_ptr, 0)
    first = pid * BT * K
    last = tl.minimum(first + BT * K, T * K)
    row = tl.arange(0, BS)
    lower = (row[:, None] > row[None, :]).to(tl.float16)
    for at in range(first, last, BS):
        s = at + row
        x = tl.load(i_ptr + s, mask=s < last, other=-1)
        hit = x[:, None] == e[None, :]
        rank = tl.dot(lower, hit.to(tl.float16)).to(tl.int32)
        p = tl.sum(tl.where(hit, rank + run[None, :], 0), 1)
        tl.store(order_ptr + p, s, mask=s < last)
        run += tl.sum(hit.to(tl.int32), 0)


def topk_route(logits, k):
    T, E = logits.shape
    if k < 1 or k > E:
        raise ValueError("k must lie between 1 and E")
    w = logits.new_empty((T, k))
    i = torch.empty_like(w, dtype=torch.int32)
    order = i.new_empty(T * k)
    offsets = i.new_empty(E + 1)
    BE = max(16, triton.next_power_of_2(E))
    BT = max(1, min(128, 8192 // BE))
    NB = triton.cdiv(T, BT)
    counts = i.new_empty((NB, E))
    choose[(NB,)](logits, w, i, counts, T, E, logits.stride(0), K=k, BT=BT, BE=BE, BK=triton.next_power_of_2(k))
    place[(NB,)](i, counts, order, offsets, T, E, NB, K=k, BT=BT, BS=64, BE=BE, num_warps=4)
    return w, i, order, offsets
