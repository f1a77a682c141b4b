"""Exponentials are rounded to the dtype of the logits before they are summed."""

import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((1024, 4), (2048, 8))], key=["V"])
@triton.jit
def _ce(L, T, OUT, M, V, ls, ignore, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    off = row.to(tl.int64) * ls
    t = tl.load(T + row)
    m = tl.full([BLOCK], -1e38, tl.float32)
    s = tl.zeros([BLOCK], tl.float32)
    for b in range(tl.cdiv(V, BLOCK)):
        c = b * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(L + off + c, mask=c < V, other=float("-inf")).to(tl.float32)
        new = tl.maximum(m, v)
        s = s * tl.exp(m - new) + tl.exp(v - new).to(L.dtype.element_ty).to(tl.float32)
        m = new
    top = tl.max(m, 0)
    lse = top + tl.log(tl.sum(s * tl.exp(m - top), 0))
    valid = t != ignore
    hit = tl.load(L + off + t, mask=valid, other=0.0).to(tl.float32)
    tl.store(OUT + M + row, lse)
    tl.store(OUT + row, tl.where(valid, lse - hit, 0.0))


def cross_entropy(logits, targets, ignore_index=-100):
    M, V = logits.shape
    out = torch.empty((2, M), dtype=torch.float32, device=logits.device)
    _ce[(M,)](logits, targets.to(torch.int64).contiguous(), out, M, V, logits.stride(0), ignore_index)
    return out[0], out[1]
