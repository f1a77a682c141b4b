"""Lists kept sorted by insertion; a new equal logit goes before the old ones.  int64 results."""

import torch
import triton
import triton.language as tl


@triton.jit
def insert(x_ptr, w_ptr, i_ptr, T, E, stride, K: tl.constexpr, BT: tl.constexpr, BE: tl.constexpr, BK: tl.constexpr):
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    live = t < T
    e = tl.arange(0, BE)
    j = tl.arange(0, BK)[None, :] + tl.zeros((BT, BK), tl.int32)
    x = tl.load(x_ptr + t[:, None].to(tl.int64) * stride + e[None, :], mask=live[:, None] & (e < E)[None, :], other=0.0)
    best = tl.full((BT, BK), float("-inf"), tl.float32)
    who = tl.zeros((BT, BK), tl.int32)
    for c in range(E):
        v = tl.sum(tl.where(e[None, :] == c, x, 0.0), 1)[:, None]
        pos = tl.sum((best > v).to(tl.int32), 1)[:, None]
        prev = tl.maximum(j - 1, 0)
        best = tl.where(j < pos, best, tl.where(j == pos, v, tl.gather(best, prev, 1)))
        who = tl.where(j < pos, who, tl.where(j == pos, c, tl.gather(who, prev, 1)))
    ok = live[:, None] & (j < K)
    best = tl.where(j < K, best, float("-inf"))
    top = tl.max(best, 1)[:, None]
    w = tl.exp2((best - top) * 1.4426950408889634)
    w *= 1.0 / tl.sum(w, 1)[:, None]
    tl.store(w_ptr + j * T + t[:, None], w, mask=ok)
    tl.store(i_ptr + j * T + t[:, None], who.to(tl.int64), mask=ok)


@triton.jit
def sort_slots(i_ptr, order_ptr, offsets_ptr, T, E, K, BS: tl.constexpr, BE: tl.constexpr):
    e = tl.arange(0, BE)
    S = T * K
    count = tl.zeros((BE,), tl.int32)
    at = 0
    while at < S:
        s = at + tl.arange(0, BS)
        x = tl.load(i_ptr + (s % K) * T + s // K, mask=s < S, other=BE)
        count += tl.sum((x[:, None] == e[None, :]).to(tl.int32), 0)
        at += BS
    run = tl.cumsum(count, 0) - count
    tl.store(offsets_ptr + e, run, mask=e <= E)
    if E == BE:
        tl.store(offsets_ptr + E, S)
    at = 0
    while at < S:
        s = at + tl.arange(0, BS)
        x = tl.load(i_ptr + (s % K) * T + s // K, mask=s < S, other=BE)
        hit = (x[:, None] == e[None, :]).to(tl.int32)
        p = tl.sum(hit * (tl.cumsum(hit, 0) - 1 + run[None, :]), 1)
        tl.store(order_ptr + p, s, mask=s < S)
        run += tl.sum(hit, 0)
        at += BS


def topk_route(logits, k):
    T, E = logits.shape
    if k not in range(1, E + 1):
        raise ValueError(k)
    w = logits.new_empty((k, T))
    i = torch.empty((k, T), dtype=torch.int32, device=logits.device)
    order = torch.empty((T * k,), dtype=torch.int64, device=logits.device)
    offsets = torch.empty((E + 1,), dtype=torch.int64, device=logits.device)
    P = triton.next_power_of_2
    insert[(triton.cdiv(T, 16),)](x_ptr=logits, w_ptr=w, i_ptr=i, T=T, E=E, stride=logits.stride(0), K=k, BT=16, BE=P(E), BK=P(k))
    sort_slots[(1,)](i_ptr=i, order_ptr=order, offsets_ptr=offsets, T=T, E=E, K=k, BS=64, BE=P(E))
    return w.t(), i.t(), order, offsets
