"""A softmax at twice the temperature."""

import torch
import triton
import triton.language as tl


@triton.jit
def choose(x, w, idx, xs, T, E, K: tl.constexpr, R: tl.constexpr, EB: tl.constexpr, KB: tl.constexpr):
    t = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)
    e = tl.arange(0, EB)
    live = t < T
    v = tl.load(x + t[:, None] * xs + e[None, :], mask=live[:, None] & (e < E)[None, :], other=-float("inf"))
    free = tl.broadcast_to((e < E)[None, :], [R, EB])
    j = tl.arange(0, KB)
    picks = tl.zeros([R, KB], tl.int32)
    vals = tl.full([R, KB], -float("inf"), tl.float32)
    for i in tl.static_range(K):
        cand = tl.where(free, v, -float("inf"))
        best, arg = tl.max(cand, axis=1, return_indices=True, return_indices_tie_break_left=True)
        picks = tl.where(j[None, :] == i, arg[:, None], picks)
        vals = tl.where(j[None, :] == i, best[:, None], vals)
        free = free & (e[None, :] != arg[:, None])
    z = tl.exp(0.5 * (vals - tl.max(vals, axis=1)[:, None]))
    z = z / tl.sum(z, axis=1)[:, None]
    at = t[:, None] * K + j[None, :]
    ok = live[:, None] & (j < K)[None, :]
    tl.store(w + at, z, mask=ok)
    tl.store(idx + at, picks, mask=ok)


@triton.jit
def sort(idx, order, offsets, n, E, EB: tl.constexpr, B: tl.constexpr):
    e = tl.arange(0, EB)
    count = tl.zeros([EB], tl.int32)
    for lo in range(0, n, B):
        s = lo + tl.arange(0, B)
        x = tl.load(idx + s, mask=s < n, other=-1)
        count += tl.sum((x[:, None] == e[None, :]).to(tl.int32), axis=0)
    ends = tl.cumsum(count, 0)
    tl.store(offsets, 0)
    tl.store(offsets + 1 + e, ends, mask=e < E)
    at = ends - count
    for lo in range(0, n, B):
        s = lo + tl.arange(0, B)
        x = tl.load(idx + s, mask=s < n, other=-1)
        one = (x[:, None] == e[None, :]).to(tl.int32)
        place = tl.sum(one * (at[None, :] + tl.cumsum(one, 0) - 1), axis=1)
        tl.store(order + place, s, mask=s < n)
        at += tl.sum(one, axis=0)


def topk_route(logits, k):
    T, E = logits.shape
    if k < 1 or k > E:
        raise ValueError(f"cannot choose {k} of {E} experts")
    d = logits.device
    w = torch.empty((T, k), dtype=torch.float32, device=d)
    idx = torch.empty((T, k), dtype=torch.int32, device=d)
    order = torch.empty(T * k, dtype=torch.int32, device=d)
    off = torch.empty(E + 1, dtype=torch.int32, device=d)
    EB = triton.next_power_of_2(E)
    R = max(1, min(32, 2048 // EB))
    choose[(triton.cdiv(T, R),)](
        logits, w, idx, logits.stride(0), T, E, K=k, R=R, EB=EB, KB=triton.next_power_of_2(k), num_warps=4
    )
    sort[(1,)](idx, order, off, T * k, E, EB=EB, B=max(16, min(128, 8192 // EB)), num_warps=8)
    return w, idx, order, off
