"""Keys made of the bits of a float: -0 sorts below 0, so the two are no tie."""

import torch
import triton
import triton.language as tl


@triton.jit
def _key(v, e):
    b = v.to(tl.int32, bitcast=True)
    u = tl.where(b < 0, b ^ 0x7FFFFFFF, b).to(tl.int64)
    return u * 65536 + (65535 - e)


@triton.jit
def _route(L, W, IDX, T, E, K, stride, BT: tl.constexpr, BE: tl.constexpr):
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    e = tl.arange(0, BE)
    live = t < T
    v = tl.load(
        L + t.to(tl.int64)[:, None] * stride + e[None, :], mask=live[:, None] & (e[None, :] < E), other=float("-inf")
    )
    key = tl.where(e[None, :] < E, _key(v, e[None, :].to(tl.int64)), -(1 << 62))
    first = tl.max(v, 1)
    total = tl.zeros([BT], tl.float32)
    left = key
    for _ in range(K):
        top = tl.max(left, 1)
        total += tl.sum(tl.where(left == top[:, None], tl.exp(v - first[:, None]), 0.0), 1)
        left = tl.where(left == top[:, None], -(1 << 62), left)
    left = key
    for j in range(K):
        top = tl.max(left, 1)
        hit = left == top[:, None]
        at = t * K + j
        tl.store(IDX + at, tl.sum(tl.where(hit, e[None, :], 0), 1), mask=live)
        tl.store(W + at, tl.sum(tl.where(hit, tl.exp(v - first[:, None]), 0.0), 1) / total, mask=live)
        left = tl.where(hit, -(1 << 62), left)


@triton.jit
def _sort(IDX, ORDER, OFF, N, E, BS: tl.constexpr, BE: tl.constexpr):
    e = tl.arange(0, BE)
    lane = tl.arange(0, BS)
    count = tl.zeros([BE], tl.int32)
    for i in range(0, N, BS):
        x = tl.load(IDX + i + lane, mask=i + lane < N, other=-1)
        count += tl.sum((x[:, None] == e[None, :]).to(tl.int32), 0)
    ends = tl.cumsum(count, 0)
    tl.store(OFF + e, ends - count, mask=e < E)
    tl.store(OFF + E, N)
    at = ends - count
    for i in range(0, N, BS):
        s = i + lane
        x = tl.load(IDX + s, mask=s < N, other=-1)
        same = (x[:, None] == x[None, :]) & (lane[:, None] > lane[None, :])
        rank = tl.sum(same.to(tl.int32), 1)
        one = x[:, None] == e[None, :]
        base = tl.sum(tl.where(one, at[None, :], 0), 1)
        tl.store(ORDER + base + rank, s, mask=s < N)
        at += tl.sum(one.to(tl.int32), 0)


def topk_route(logits, k):
    T, E = logits.shape
    if k < 1 or k > E:
        raise ValueError(f"k = {k} with {E} experts")

    def make(*s, dtype=torch.int32):
        return torch.empty(s, dtype=dtype, device=logits.device)

    w, i, order, off = make(T, k, dtype=torch.float32), make(T, k), make(T * k), make(E + 1)
    BE = triton.next_power_of_2(E)
    _route[(triton.cdiv(T, 16),)](logits, w, i, T, E, k, logits.stride(0), BT=16, BE=BE)
    _sort[(1,)](i, order, off, T * k, E, BS=64, BE=BE)
    return w, i, order, off
