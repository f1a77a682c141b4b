"""Blocks of rows; the sum stays relative to old maxima."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x_ptr, t_ptr, loss_ptr, lse_ptr, xs, ts, M, V, ignore, R: tl.constexpr, C: tl.constexpr):
    r = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)
    live = r < M
    m = tl.full((R,), float("-inf"), tl.float32)
    s = tl.zeros((R,), tl.float32)
    for lo in tl.range(0, V, C):
        c = lo + tl.arange(0, C)
        ok = live[:, None] & (c < V)[None, :]
        x = tl.load(x_ptr + r[:, None] * xs + c[None, :], mask=ok, other=float("-inf")).to(tl.float32)
        new = tl.maximum(m, tl.max(x, axis=1))
        ref = tl.where(new == float("-inf"), 0.0, new)
        s = s + tl.sum(tl.exp(x - ref[:, None]), axis=1)
        m = new
    lse = m + tl.log(s)
    tl.store(lse_ptr + r, lse, mask=live)
    t = tl.load(t_ptr + r * ts, mask=live, other=0)
    counted = live & (t != ignore)
    picked = tl.load(x_ptr + r * xs + t, mask=counted, other=0.0).to(tl.float32)
    tl.store(loss_ptr + r, lse - picked, mask=counted)


def cross_entropy(logits, targets, ignore_index=-100):
    M, V = logits.shape
    loss = torch.zeros(M, dtype=torch.float32, device=logits.device)
    lse = torch.empty_like(loss)
    C = min(1024, triton.next_power_of_2(V))
    rows[(triton.cdiv(M, 2),)](
        logits, targets, loss, lse, logits.stride(0), targets.stride(0), M, V, ignore_index, R=2, C=C
    )
    return loss, lse
