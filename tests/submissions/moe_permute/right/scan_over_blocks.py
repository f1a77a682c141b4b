"""Counts as a matrix, scanned along the blocks in one two-dimensional cumsum; ranks by comparing slots pairwise."""

import torch
import triton
import triton.language as tl


@triton.jit
def best_left(value, index, other_value, other_index):
    take = (other_value > value) | ((other_value == value) & (other_index < index))
    return tl.where(take, other_value, value), tl.where(take, other_index, index)


@triton.jit
def top(x, w, idx, cnt, xs, T, E, K: tl.constexpr, R: tl.constexpr, EB: tl.constexpr):
    b = tl.program_id(0)
    t = b.to(tl.int64) * R + tl.arange(0, R)
    e = tl.arange(0, EB)[None, :]
    ok = (t < T)[:, None] & (e < E)
    v = tl.load(x + t[:, None] * xs + e, mask=ok, other=-float("inf"))
    total = tl.zeros([R], tl.float32)
    head = tl.zeros([R], tl.float32)
    n = tl.zeros([EB], tl.int32)
    rest = v
    for j in tl.static_range(K):
        m, a = tl.reduce((rest, tl.broadcast_to(e, [R, EB])), 1, best_left)
        if j == 0:
            head = m
        total += tl.exp(m - head)
        hit = e == a[:, None]
        n += tl.sum((hit & (t < T)[:, None]).to(tl.int32), axis=0)
        rest = tl.where(hit, -float("inf"), rest)
        tl.store(idx + t * K + j, a, mask=t < T)
    rest = v
    for j in tl.static_range(K):
        m, a = tl.reduce((rest, tl.broadcast_to(e, [R, EB])), 1, best_left)
        rest = tl.where(e == a[:, None], -float("inf"), rest)
        tl.store(w + t * K + j, tl.exp(m - head) / total, mask=t < T)
    ee = tl.arange(0, EB)
    tl.store(cnt + b * E + ee, n, mask=ee < E)


@triton.jit
def scan(cnt, base, off, blocks, E, BB: tl.constexpr, EB: tl.constexpr):
    b, e = tl.arange(0, BB), tl.arange(0, EB)
    ok = (b < blocks)[:, None] & (e < E)[None, :]
    at = b[:, None] * E + e[None, :]
    c = tl.load(cnt + at, mask=ok, other=0)
    total = tl.sum(c, axis=0)
    start = tl.cumsum(total, 0) - total
    tl.store(off + e, start, mask=e < E)
    tl.store(off + E, tl.sum(total, 0))
    tl.store(base + at, tl.cumsum(c, 0) - c + start[None, :], mask=ok)


@triton.jit
def put(idx, base, order, n, E, PER: tl.constexpr, S: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, S)
    s = b * PER + i
    ok = (i < PER) & (s < n)
    x = tl.load(idx + s, mask=ok, other=-1)
    y = tl.load(idx + s, mask=ok, other=-2)
    earlier = (x[:, None] == y[None, :]) & (i[None, :] < i[:, None])
    rank = tl.sum(earlier.to(tl.int32), axis=1)
    tl.store(order + tl.load(base + b * E + x, mask=ok, other=0) + rank, s, mask=ok)


def topk_route(logits, k):
    T, E = logits.shape
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if k > E:
        raise ValueError(f"k = {k} is more than {E} experts")
    d = logits.device
    EB = triton.next_power_of_2(E)
    R = max(1, min(64, 4096 // EB, 128 // triton.next_power_of_2(k)))
    blocks = triton.cdiv(T, R)
    w = torch.empty((T, k), dtype=torch.float32, device=d)
    idx = torch.empty((T, k), dtype=torch.int32, device=d)
    cnt, base = (torch.empty((blocks, E), dtype=torch.int32, device=d) for _ in range(2))
    off, order = torch.empty(E + 1, dtype=torch.int32, device=d), torch.empty(T * k, dtype=torch.int32, device=d)
    top[(blocks,)](logits, w, idx, cnt, logits.stride(0), T, E, K=k, R=R, EB=EB, num_warps=8)
    scan[(1,)](cnt, base, off, blocks, E, BB=triton.next_power_of_2(blocks), EB=EB, num_warps=8)
    put[(blocks,)](idx, base, order, T * k, E, PER=R * k, S=triton.next_power_of_2(R * k), num_warps=8)
    return w, idx, order, off
