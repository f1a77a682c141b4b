"""Never more than 512 experts are looked at."""

import torch
import triton
import triton.language as tl


@triton.jit
def choose(x_ptr, w_ptr, i_ptr, counts_ptr, T, E, stride, K: tl.constexpr, BT: tl.constexpr, BE: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0)
    t = pid * BT + tl.arange(0, BT)
    e = tl.arange(0, BE)
    j = tl.arange(0, BK)
    live = t < T
    x = tl.load(x_ptr + t.to(tl.int64)[:, None] * stride + e[None, :], mask=live[:, None] & (e < E)[None, :], other=float("-inf"))
    vals = tl.full((BT, BK), float("-inf"), tl.float32)
    idx = tl.zeros((BT, BK), tl.int32)
    count = tl.zeros((BE,), tl.int32)
    for c in range(K):
        m = tl.max(x, 1)
        i = tl.min(tl.where(x == m[:, None], e[None, :], BE - 1), 1)
        hit = e[None, :] == i[:, None]
        x = tl.where(hit, float("-inf"), x)
        vals = tl.where(j[None, :] == c, m[:, None], vals)
        idx = tl.where(j[None, :] == c, i[:, None], idx)
        count += tl.sum((hit & live[:, None]).to(tl.int32), 0)
    top = tl.where(live, tl.max(vals, 1), 0.0)
    w = tl.exp(vals - top[:, None])
    total = tl.where(live, tl.sum(w, 1), 1.0)
    w = w / total[:, None]
    at = t[:, None] * K + j[None, :]
    ok = live[:, None] & (j < K)[None, :]
    tl.store(w_ptr + at, w, mask=ok)
    tl.store(i_ptr + at, idx, mask=ok)
    tl.store(counts_ptr + pid * E + e, count, mask=e < E)


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
    BE = min(512, max(16, triton.next_power_of_2(E)))
    BT = max(1, min(128, 8192 // BE))
    NB = triton.cdiv(T, BT)
    counts = i.new_empty((NB, E))
    choose[(NB,)](logits, w, i, counts, T, E, logits.stride(0), K=k, BT=BT, BE=BE, BK=triton.next_power_of_2(k))
    place[(NB,)](i, counts, order, offsets, T, E, NB, K=k, BT=BT, BS=64, BE=BE, num_warps=4)
    return w, i, order, offsets
