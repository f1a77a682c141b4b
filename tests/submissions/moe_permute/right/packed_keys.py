"""The largest logit through an order-preserving 64-bit key that holds the index; counts by histogram; int64 results."""

import torch
import triton
import triton.language as tl


@triton.jit
def route(X, W, I, C, xs, T, E, K: tl.constexpr, R: tl.constexpr, EB: tl.constexpr, KB: tl.constexpr):
    b = tl.program_id(0)
    t = b.to(tl.int64) * R + tl.arange(0, R)
    e = tl.arange(0, EB)
    ok = (t < T)[:, None] & (e < E)[None, :]
    x = tl.load(X + t[:, None] * xs + e[None, :], mask=ok, other=0.0)
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)
    key = ordered * 65536 + (65535 - e[None, :].to(tl.int64))
    lowest = tl.full([R, EB], -(2**62), tl.int64)
    key = tl.where(ok, key, lowest)
    j = tl.arange(0, KB)[None, :]
    chosen = tl.zeros([R, KB], tl.int64)
    value = tl.full([R, KB], float("-inf"), tl.float32)
    hist = tl.zeros([EB], tl.int32)
    for i in tl.static_range(K):
        top = tl.max(key, axis=1)
        who = 65535 - (top & 65535)
        mine = e[None, :] == who[:, None]
        value = tl.where(j == i, tl.sum(tl.where(mine, x, 0.0), axis=1)[:, None], value)
        chosen = tl.where(j == i, who[:, None], chosen)
        hist += tl.sum((mine & (t < T)[:, None]).to(tl.int32), axis=0)
        key = tl.where(mine, lowest, key)
    p = tl.exp(value - tl.max(value, axis=1)[:, None])
    p = p / tl.sum(p, axis=1)[:, None]
    s = t[:, None] * K + j
    live = (t < T)[:, None] & (j < K)
    tl.store(W + s, p, mask=live)
    tl.store(I + s, chosen.to(tl.int32), mask=live)
    tl.store(C + b * E + e, hist, mask=e < E)


@triton.jit
def starts(C, O, blocks, E, EB: tl.constexpr):
    e = tl.arange(0, EB)
    run = tl.zeros([EB], tl.int32)
    for b in range(blocks):
        run += tl.load(C + b * E + e, mask=e < E, other=0)
    inclusive = tl.cumsum(run, 0)
    tl.store(O + e, inclusive - run, mask=e < E)
    tl.store(O + E, tl.sum(run, 0))
    base = inclusive - run
    for b in range(blocks):
        c = tl.load(C + b * E + e, mask=e < E, other=0)
        tl.store(C + b * E + e, base, mask=e < E)
        base += c


@triton.jit
def place(I, C, ORDER, n, E, PER: tl.constexpr, S: tl.constexpr, EB: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, S)
    s = b * PER + i
    ok = (i < PER) & (s < n)
    x = tl.load(I + s, mask=ok, other=0)
    one = ((x[:, None] == tl.arange(0, EB)[None, :]) & ok[:, None]).to(tl.int32)
    e = tl.arange(0, EB)
    first = tl.load(C + b * E + e, mask=e < E, other=0)
    p = tl.sum(one * (tl.cumsum(one, 0) + first[None, :]), axis=1) - 1
    tl.store(ORDER + p, s, mask=ok)


def topk_route(logits, k):
    T, E = logits.shape
    if not 0 < k <= E:
        raise ValueError(f"k = {k} with {E} experts")
    d = logits.device
    EB, KB = triton.next_power_of_2(E), triton.next_power_of_2(k)
    R = max(1, min(64, 8192 // (EB * KB)))
    blocks = triton.cdiv(T, R)
    W = torch.empty((T, k), dtype=torch.float32, device=d)
    I = torch.empty((T, k), dtype=torch.int32, device=d)
    C = torch.empty((blocks, E), dtype=torch.int32, device=d)
    off = torch.empty(E + 1, dtype=torch.int32, device=d)
    order = torch.empty(T * k, dtype=torch.int32, device=d)
    route[(blocks,)](logits, W, I, C, logits.stride(0), T, E, K=k, R=R, EB=EB, KB=KB, num_warps=8)
    starts[(1,)](C, off, blocks, E, EB=EB, num_warps=1)
    place[(blocks,)](I, C, order, T * k, E, PER=R * k, S=triton.next_power_of_2(R * k), EB=EB, num_warps=8)
    return W, I, order, off
