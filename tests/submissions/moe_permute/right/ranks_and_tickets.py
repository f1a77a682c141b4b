"""An expert's rank by comparing it with all others; places by tiles that draw tickets and wait for the tile before."""

import torch
import triton
import triton.language as tl


@triton.jit
def route(x_ptr, w_ptr, i_ptr, count_ptr, T, E, stride, K: tl.constexpr, BE: tl.constexpr, ROWS: tl.constexpr):
    e = tl.arange(0, BE)
    total = tl.zeros((BE,), tl.int32)
    for r in tl.range(0, ROWS):
        t = tl.program_id(0) * ROWS + r
        if t < T:
            x = tl.load(x_ptr + t.to(tl.int64) * stride + e, mask=e < E, other=float("-inf"))
            ahead = (x[None, :] > x[:, None]) | ((x[None, :] == x[:, None]) & (e[None, :] < e[:, None]))
            rank = tl.sum(ahead.to(tl.int32), 1)
            chosen = (rank < K) & (e < E)
            p = tl.exp(x - tl.max(x, 0))
            p = p / tl.sum(p, 0)
            p = tl.where(chosen, p, 0.0)
            p = p / tl.sum(p, 0)
            tl.store(w_ptr + t * K + rank, p, mask=chosen)
            tl.store(i_ptr + t * K + rank, e, mask=chosen)
            total += chosen.to(tl.int32)
    tl.atomic_add(count_ptr + e, total, mask=(e < E) & (total > 0))


@triton.jit
def place(
    i_ptr, order_ptr, offsets_ptr, count_ptr, ticket_ptr, flag_ptr, prefix_ptr, S, E, BS: tl.constexpr, BE: tl.constexpr
):
    tile = tl.atomic_add(ticket_ptr, 1)
    e = tl.arange(0, BE)
    count = tl.load(count_ptr + e, mask=e < E, other=0)
    start = tl.cumsum(count, 0) - count
    if tile == 0:
        tl.store(offsets_ptr + e, start, mask=e < E)
        tl.store(offsets_ptr + E, S)
    s = tile * BS + tl.arange(0, BS)
    x = tl.load(i_ptr + s, mask=s < S, other=-1)
    hit = (x[:, None] == e[None, :]).to(tl.int32)
    mine = tl.sum(hit, 0)
    before = tl.zeros((BE,), tl.int32)
    if tile > 0:
        while tl.atomic_add(flag_ptr + tile - 1, 0, sem="acquire") == 0:
            pass
        before = tl.load(prefix_ptr + (tile - 1) * E + e, mask=e < E, other=0, volatile=True)
    tl.store(prefix_ptr + tile * E + e, before + mine, mask=e < E)
    tl.debug_barrier()
    tl.atomic_xchg(flag_ptr + tile, 1, sem="release")
    within = tl.cumsum(hit, 0) - 1
    where = tl.sum(tl.where(hit > 0, within + (start + before)[None, :], 0), 1)
    tl.store(order_ptr + where, s, mask=s < S)


def topk_route(logits, k):
    T, E = logits.shape
    if not 1 <= k <= E:
        raise ValueError(f"k must be from 1 to {E}, got {k}")
    new = lambda *shape, dtype=torch.int32: torch.empty(shape, dtype=dtype, device=logits.device)
    w, i, order, offsets = new(T, k, dtype=torch.float32), new(T, k), new(T * k), new(E + 1)
    count = torch.zeros(E, dtype=torch.int32, device=logits.device)
    BE = triton.next_power_of_2(E)
    route[(triton.cdiv(T, 32),)](logits, w, i, count, T, E, logits.stride(0), K=k, BE=BE, ROWS=32)
    tiles = triton.cdiv(T * k, 256)
    ticket = torch.zeros(1, dtype=torch.int32, device=logits.device)
    flag = torch.zeros(tiles, dtype=torch.int32, device=logits.device)
    prefix = new(tiles, E)
    place[(tiles,)](i, order, offsets, count, ticket, flag, prefix, T * k, E, BS=256, BE=BE, num_warps=16)
    return w, i, order, offsets
