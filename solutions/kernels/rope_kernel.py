"""Rotary position embedding in place, queries and keys in one launch.

Su et al. 2021, RoFormer, arXiv:2104.09864, equation 34; pairs in the half-split layout of GPT-NeoX and Llama.

    T   tokens        H, H_kv   query and key heads        d   width of a head        e   bytes of one number

    (u_i, u_{i + d/2})  ->  (u_i cos_i - u_{i + d/2} sin_i,  u_{i + d/2} cos_i + u_i sin_i)        0 <= i < d/2

Each number is read once and written once, 2 T (H + H_kv) d e, and the angles of a token, 4 T d bytes in float32, serve
all its heads.  So one program takes one token with all its heads: the angles are loaded once and kept.

In place, both halves of a pair must be in registers before either is stored.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rotate(u_ptr, head_stride, heads, half, cos, sin, HEADS: tl.constexpr, HALF: tl.constexpr):
    """Rotate all heads of one token; u_ptr is its first number."""
    head = tl.arange(0, HEADS)[:, None]  # (HEADS, 1)
    i = tl.arange(0, HALF)[None, :]  # (1, HALF)
    inside = (head < heads) & (i < half)
    first_at = u_ptr + head * head_stride + i
    second_at = first_at + half
    first = tl.load(first_at, mask=inside).to(tl.float32)  # (HEADS, HALF)
    second = tl.load(second_at, mask=inside).to(tl.float32)
    new_first = first * cos - second * sin
    new_second = second * cos + first * sin
    tl.store(first_at, new_first.to(u_ptr.dtype.element_ty), mask=inside)
    tl.store(second_at, new_second.to(u_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _rope_kernel(
    q_ptr, k_ptr, cos_ptr, sin_ptr,
    q_token_stride, q_head_stride, k_token_stride, k_head_stride, cos_stride, sin_stride,
    q_heads, k_heads, half,
    Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, HALF)
    cos = tl.load(cos_ptr + token * cos_stride + i, mask=i < half).to(tl.float32)[None, :]  # (1, HALF)
    sin = tl.load(sin_ptr + token * sin_stride + i, mask=i < half).to(tl.float32)[None, :]
    _rotate(q_ptr + token * q_token_stride, q_head_stride, q_heads, half, cos, sin, Q_HEADS, HALF)
    _rotate(k_ptr + token * k_token_stride, k_head_stride, k_heads, half, cos, sin, K_HEADS, HALF)


def rope_(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Rotate queries and keys in place, half-split pairs (i, i + d/2).

    For each token and head, u[i] becomes u[i] cos[i] - u[i + d/2] sin[i], and u[i + d/2] becomes
    u[i + d/2] cos[i] + u[i] sin[i], for 0 <= i < d/2.

    Args:
        q: (T, H, d), float32, float16 or bfloat16; d is even.  The last dimension is contiguous, the other two have
            any stride.  Changed in place.
        k: (T, H_kv, d), q's dtype, with strides of its own.  Changed in place.
        cos: (T, d // 2), float32 or q's dtype; rows may lie any distance apart.
        sin: (T, d // 2), as cos.

    The arithmetic is float32 whatever the dtype.

    Cost: each number of q and k is read once and written once.  cos and sin may be read again.
    """
    T, H, d = q.shape
    H_kv, half = k.shape[1], d // 2
    _rope_kernel[(T,)](
        q, k, cos, sin,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), cos.stride(0), sin.stride(0),
        H, H_kv, half,
        Q_HEADS=triton.next_power_of_2(H), K_HEADS=triton.next_power_of_2(H_kv), HALF=triton.next_power_of_2(half),
        num_warps=4,
    )  # fmt: skip
