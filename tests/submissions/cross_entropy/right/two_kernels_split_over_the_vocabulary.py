"""Each row is split over programs that write (maximum, sum) pairs; a second kernel merges them and makes the loss."""

import torch
import triton
import triton.language as tl

PART = 4096


@triton.jit
def partial(X, PM, PS, sx, V, parts, B: tl.constexpr):
    r = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0)
    c = p * B + tl.arange(0, B)
    x = tl.load(X + r * sx + c, mask=c < V, other=-float("inf")).to(tl.float32)
    m = tl.max(x, 0)
    s = tl.sum(tl.exp(x - tl.where(m == -float("inf"), 0.0, m)), 0)
    tl.store(PM + r * parts + p, m)
    tl.store(PS + r * parts + p, s)


@triton.jit
def finish(X, T, PM, PS, LOSS, LSE, sx, st, parts, ignore, P: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    p = tl.arange(0, P)
    m = tl.load(PM + r * parts + p, mask=p < parts, other=-float("inf"))
    s = tl.load(PS + r * parts + p, mask=p < parts, other=0.0)
    top = tl.max(m, 0)
    lse = tl.log(tl.sum(s * tl.exp(m - top), 0)) + top
    t = tl.load(T + r * st).to(tl.int64)
    keep = t != ignore
    t = tl.where(keep, t, 0)
    loss = lse - tl.load(X + r * sx + t).to(tl.float32)
    tl.store(LOSS + r, tl.where(keep, loss, 0.0))
    tl.store(LSE + r, lse)


def cross_entropy(logits, targets, ignore_index=-100):
    M, V = logits.shape
    parts = triton.cdiv(V, PART)
    kw = {"dtype": torch.float32, "device": logits.device}
    pm, ps = torch.empty(M, parts, **kw), torch.empty(M, parts, **kw)
    loss, lse = torch.empty(M, **kw), torch.empty(M, **kw)
    partial[(parts, M)](logits, pm, ps, logits.stride(0), V, parts, B=min(PART, triton.next_power_of_2(V)), num_warps=8)
    finish[(M,)](
        logits,
        targets,
        pm,
        ps,
        loss,
        lse,
        logits.stride(0),
        targets.stride(0),
        parts,
        ignore_index,
        P=triton.next_power_of_2(parts),
        num_warps=1,
    )
    return loss, lse
