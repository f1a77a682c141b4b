"""at most 64 heads are rotated."""
import torch
import triton
import triton.language as tl


@triton.jit
def _turn(x_ptr, cos, sin, token_stride, head_stride, heads, half, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, HALF)
    for start in range(0, tl.minimum(heads, 64), HEADS):
        head = start + tl.arange(0, HEADS)
        inside = (head < heads)[:, None] & (i < half)[None, :]
        at = x_ptr + token * token_stride + head.to(tl.int64)[:, None] * head_stride + i[None, :]
        first = tl.load(at, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(at + half, mask=inside, other=0.0).to(tl.float32)
        tl.store(at, (first * cos - second * sin).to(x_ptr.dtype.element_ty), mask=inside)
        tl.store(at + half, (second * cos + first * sin).to(x_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _rope(q_ptr, k_ptr, cos_ptr, sin_ptr, q_token, q_head, k_token, k_head, cos_row, sin_row, H, H_kv, half,
          Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, HALF)
    cos = tl.load(cos_ptr + token * cos_row + i, mask=i < half, other=0.0).to(tl.float32)[None, :]
    sin = tl.load(sin_ptr + token * sin_row + i, mask=i < half, other=0.0).to(tl.float32)[None, :]
    _turn(q_ptr, cos, sin, q_token, q_head, H, half, Q_HEADS, HALF)
    _turn(k_ptr, cos, sin, k_token, k_head, H_kv, half, K_HEADS, HALF)


def rope_(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    T, H, d = q.shape
    H_kv = k.shape[1]
    half = d // 2
    HALF = triton.next_power_of_2(half)
    most = max(1, 1024 // HALF)
    _rope[(T,)](q, k, cos, sin, q.stride(0), q.stride(1), k.stride(0), k.stride(1), cos.stride(0), sin.stride(0),
                H, H_kv, half, Q_HEADS=min(most, triton.next_power_of_2(H)), K_HEADS=min(most, triton.next_power_of_2(H_kv)),
                HALF=HALF)
