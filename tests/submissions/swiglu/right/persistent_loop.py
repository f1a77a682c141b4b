"""A fixed number of programs walks over the rows; a helper function holds the activation."""

import torch
import triton
import triton.language as tl


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def walk(a_ptr, b_ptr, y_ptr, T, D, a_row, b_row, y_row, BLOCK: tl.constexpr, act: tl.constexpr):
    step = tl.num_programs(0)
    for row in range(tl.program_id(0), T, step):
        base = row.to(tl.int64)
        for begin in tl.range(0, D, BLOCK):
            col = begin + tl.arange(0, BLOCK)
            keep = col < D
            a = tl.load(a_ptr + base * a_row + col, mask=keep)
            b = tl.load(b_ptr + base * b_row + col, mask=keep)
            y = act(a.to(tl.float32)) * b.to(tl.float32)
            tl.store(y_ptr + base * y_row + col, y.to(a.dtype), mask=keep)


def swiglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    T, D = a.shape
    y = a.new_empty((T, D))
    walk[(min(T, 4),)](a, b, y, T, D, a.stride(0), b.stride(0), y.stride(0), BLOCK=512, act=silu)
    return y
