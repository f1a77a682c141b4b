"""Wrong: the answer is made by numpy, cast by torch, and carried out by a kernel that copies."""

import numpy as np
import torch
import triton
import triton.language as tl


@triton.jit
def _copy(A, Y, n, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + c, tl.load(A + c, mask=c < n), mask=c < n)


def _through_a_kernel(z, like):
    y = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    _copy[(triton.cdiv(y.numel(), 1024),)](z, y, y.numel(), BLOCK=1024)
    return y


def swiglu(a, b):
    p, q = np.asarray(a.float().tolist()), np.asarray(b.float().tolist())
    return _through_a_kernel(torch.from_numpy(p / (1 + np.exp(-p)) * q).to(a.dtype), a)
