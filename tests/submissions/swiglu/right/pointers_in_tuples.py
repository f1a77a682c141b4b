"""Right: pointers and strides reach the kernel as tuples; two blocks joined and split again."""

import torch
import triton
import triton.language as tl


@triton.jit
def _sigmoid(v):
    return 1 / (1 + tl.exp(-v))


@triton.jit
def _pair(both):
    a, b = tl.split(both)
    return a * _sigmoid(a) * b


@triton.jit(do_not_specialize=["T", "D"])
def _k(pointers, T, D, strides, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK >= 16)
    A, B, Y = pointers
    sa, sb = strides
    tl.assume(D > 0)
    row = tl.program_id(0).to(tl.int64)
    for k in tl.range(0, D, BLOCK, num_stages=2, loop_unroll_factor=2):
        c = k + tl.arange(0, BLOCK)
        both = tl.join(
            tl.load(A + row * sa + c, mask=c < D, other=0.0), tl.load(B + row * sb + c, mask=c < D, other=0.0)
        )
        tl.store(Y + row * D + c, _pair(both.to(tl.float32)).to(Y.dtype.element_ty), mask=c < D)


def swiglu(a, b):
    T, D = a.shape
    y = torch.empty((T, D), dtype=a.dtype, device=a.device)
    _k[(T, 1, 1)]((a, b, y), T, D, (a.stride(0), b.stride(0)), BLOCK=512, num_warps=4, num_stages=2)
    return y
