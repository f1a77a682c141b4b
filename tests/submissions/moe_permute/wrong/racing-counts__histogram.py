"""Plain load and store in place of the atomic."""

import torch
import triton
import triton.language as tl


@triton.jit
def router(x, w, idx, hist, xs, T, E, K: tl.constexpr, R: tl.constexpr, EB: tl.constexpr, KB: tl.constexpr):
    t = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)
    e = tl.arange(0, EB)
    v = tl.load(x + t[:, None] * xs + e[None, :], mask=(t < T)[:, None] & (e < E)[None, :], other=-float("inf"))
    j = tl.arange(0, KB)
    best = tl.full([R, KB], -float("inf"), tl.float32)
    who = tl.zeros([R, KB], tl.int64)
    tally = tl.zeros([EB], tl.int32)
    for i in tl.static_range(K):
        m = tl.max(v, axis=1)
        a = tl.argmax(v, axis=1, tie_break_left=True)
        best = tl.where((j == i)[None, :], m[:, None], best)
        who = tl.where((j == i)[None, :], a[:, None].to(tl.int64), who)
        taken = e[None, :] == a[:, None]
        tally += tl.sum((taken & (t < T)[:, None]).to(tl.int32), axis=0)
        v = tl.where(taken, -float("inf"), v)
    p = tl.exp(best - tl.max(best, axis=1)[:, None])
    ok = (t < T)[:, None] & (j < K)[None, :]
    tl.store(w + t[:, None] * K + j[None, :], p / tl.sum(p, axis=1)[:, None], mask=ok)
    tl.store(idx + t[:, None] * K + j[None, :], who, mask=ok)
    old = tl.load(hist + e, mask=e < E, other=0)
    tl.store(hist + e, old + tally, mask=e < E)


@triton.jit
def finish(idx, hist, order, off, n, E, EB: tl.constexpr, B: tl.constexpr):
    e = tl.arange(0, EB)
    h = tl.load(hist + e, mask=e < E, other=0)
    at = tl.cumsum(h, 0) - h
    tl.store(off + e, at.to(tl.int64), mask=e < E)
    tl.store(off + E, n)
    for lo in range(0, n, B):
        s = lo + tl.arange(0, B)
        mine = (tl.load(idx + s, mask=s < n, other=EB)[:, None] == e[None, :]).to(tl.int32)
        run = tl.cumsum(mine, 0)
        place = tl.sum(mine * (run - 1 + at[None, :]), axis=1)
        tl.store(order + place, s.to(tl.int64), mask=s < n)
        at += tl.sum(mine, 0)


def topk_route(logits, k):
    T, E = logits.shape
    if not 1 <= k <= E:
        raise ValueError(f"k = {k}, E = {E}")
    w = torch.empty((T, k), dtype=torch.float32, device=logits.device)
    idx = torch.empty((T, k), dtype=torch.int32, device=logits.device)
    hist = torch.zeros(E, dtype=torch.int32, device=logits.device)
    order = torch.empty(T * k, dtype=torch.int32, device=logits.device)
    off = torch.empty(E + 1, dtype=torch.int64, device=logits.device)
    EB = triton.next_power_of_2(E)
    R = max(1, min(32, 2048 // EB))
    router[(triton.cdiv(T, R),)](
        logits, w, idx, hist, logits.stride(0), T, E, K=k, R=R, EB=EB, KB=triton.next_power_of_2(k)
    )
    finish[(1,)](idx, hist, order, off, T * k, E, EB=EB, B=max(16, min(128, 8192 // EB)), num_warps=8)
    return w, idx, order, off
