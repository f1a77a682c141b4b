"""A program takes several rows as a two-dimensional block when rows are short."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows_kernel(x, res, w, y, h, sx, sr, T, D, eps, ROWS: tl.constexpr, COLS: tl.constexpr):
    r = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    c = tl.arange(0, COLS)
    live = (r[:, None] < T) & (c[None, :] < D)
    a = tl.load(x + r[:, None] * sx + c[None, :], mask=live, other=0.0)
    b = tl.load(res + r[:, None] * sr + c[None, :], mask=live, other=0.0)
    s = a.to(tl.float32) + b.to(tl.float32)
    ms = tl.sum(s * s, axis=1, keep_dims=True) / D
    g = tl.load(w + c, mask=c < D, other=0.0).to(tl.float32)
    n = s / tl.sqrt(ms + eps) * g[None, :]
    o = r[:, None] * D + c[None, :]
    tl.store(y + o, n.to(y.dtype.element_ty), mask=live)
    tl.store(h + o, s.to(h.dtype.element_ty), mask=live)


def add_rmsnorm(x, residual, weight, eps=1e-6):
    T, D = x.shape
    y = torch.empty((T, D), dtype=x.dtype, device=x.device)
    h = torch.empty_like(y)
    cols = triton.next_power_of_2(D)
    rows = max(1, 2048 // cols)
    rows_kernel[(triton.cdiv(T, rows),)](
        x,
        residual,
        weight,
        y,
        h,
        x.stride(0),
        residual.stride(0),
        T,
        D,
        eps,
        ROWS=rows,
        COLS=cols,
        num_warps=max(4, min(16, cols // 512)),
    )
    return y, h
