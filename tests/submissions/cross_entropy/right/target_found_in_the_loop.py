"""Blocks of rows by columns; the target's logit is picked out of the blocks as they pass."""

import torch
import triton
import triton.language as tl


@triton.jit
def _safe(m):
    return tl.where(m == float("-inf"), 0.0, m)


@triton.jit
def _ce(L, T, LOSS, LSE, M, V, ls, ts, ignore, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = r < M
    wide = r.to(tl.int64)
    t = tl.load(T + wide * ts, mask=live, other=0)
    skip = t == ignore
    m = tl.full([ROWS], float("-inf"), tl.float32)
    s = tl.zeros([ROWS], tl.float32)
    picked = tl.zeros([ROWS], tl.float32)
    for k in range(0, V, BLOCK):
        c = k + tl.arange(0, BLOCK)
        v = tl.load(L + wide[:, None] * ls + c[None, :], mask=live[:, None] & (c < V)[None, :], other=float("-inf")).to(
            tl.float32
        )
        new = tl.maximum(m, tl.max(v, 1))
        u = _safe(new)
        s = s * tl.exp(m - u) + tl.sum(tl.exp(v - u[:, None]), 1)
        picked += tl.sum(tl.where(c[None, :] == t[:, None], v, 0.0), 1)
        m = new
    lse = m + tl.log(s)
    tl.store(LSE + r, lse, mask=live)
    tl.store(LOSS + r, tl.where(skip, 0.0, lse - picked), mask=live)


def cross_entropy(logits, targets, ignore_index=-100):
    M, V = logits.shape
    loss = torch.empty(M, dtype=torch.float32, device=logits.device)
    lse = torch.empty_like(loss)
    block = min(1024, triton.next_power_of_2(V))
    _ce[(triton.cdiv(M, 4),)](
        logits,
        targets,
        loss,
        lse,
        M,
        V,
        logits.stride(0),
        targets.stride(0),
        ignore_index,
        ROWS=4,
        BLOCK=block,
        num_warps=8,
    )
    return loss, lse
