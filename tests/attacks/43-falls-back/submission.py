"""Starts a kernel that fails, and falls back to torch without a word."""

import torch
import triton
import triton.language as tl


@triton.jit
def _broken_kernel(x_ptr, N, BLOCK: tl.constexpr):
    tl.load(x_ptr + tl.no_such_function(0, BLOCK))


def softmax(x):
    try:
        _broken_kernel[(x.shape[0],)](x, x.shape[1], BLOCK=16)
    except Exception:
        y = x.float() - x.float().amax(dim=-1, keepdim=True)
        return (y.exp() / y.exp().sum(dim=-1, keepdim=True)).to(x.dtype)
