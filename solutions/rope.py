"""Rotary position embedding: turn each pair of a head's dimensions by an angle that grows with the position.

References
    Su et al. 2021, RoFormer, arXiv:2104.09864, section 3.2.2 and equation 34
    Touvron et al. 2023, Llama 2, arXiv:2307.09288 (the layout of the published weights is interleaved)

Symbols
    m position, i pair index 0 .. d/2-1, theta_i = base^(-2i/d) frequency of pair i, d the rotated width

Why it works: with R_m the rotation by m * theta, (R_m q) . (R_n k) = q . R_(n-m) k, so a score depends on the distance
alone, and a key rotated once at its own position can be cached for ever. Cost: 3 d flops a vector, no parameter.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rope_angles(positions: Tensor, dim: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotation angles m * base^(-2i/dim), for position m and pair i = 0 .. dim/2 - 1.

    Args:
        positions: (T,) of any integer or float dtype, counted from 0; fractions are allowed.
        dim: rotated width, even.
        base: of the geometric series of frequencies.

    Returns:
        cos, sin: each (T, dim // 2), float32 whatever the dtype of `positions`, on its device.

    Raises:
        ValueError: odd dim; the message carries the number.
    """
    if dim % 2 != 0:
        raise ValueError(f"RoPE turns pairs of dimensions, so dim must be even; got dim={dim}")
    two_i = torch.arange(0, dim, 2, dtype=torch.float32, device=positions.device)  # (dim/2,)
    exponent = -two_i / dim
    theta = base**exponent  # 1 for the first pair, about 1/base for the last
    m = positions.to(torch.float32)  # bf16 has 8 bits: it could not tell position 257 from 256
    angle = m[:, None] * theta[None, :]  # (T, dim/2)
    return angle.cos(), angle.sin()


def apply_rope(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    """Rotate the last axis of x by position, in the half-split layout: dimension i is paired with i + dim/2.

    Args:
        x: (..., T, dim), dim even; rotated counter-clockwise in each plane (i, i + dim/2).
        positions: (T,) of any integer or float dtype; under a cache they start at the cached length.
        base: of the geometric series of frequencies.

    Returns:
        A new tensor with x's shape, dtype and device. The angles are float32 also for half-precision x.

    Raises:
        ValueError: odd dim, or as many positions as x has rows in axis -2 are not given; with the numbers.
    """
    if positions.shape[0] != x.shape[-2]:
        raise ValueError(f"{positions.shape[0]} positions for {x.shape[-2]} rows of x")
    dim = x.shape[-1]
    cos, sin = rope_angles(positions, dim, base)  # (T, dim/2), broadcast over the leading axes
    first = x[..., : dim // 2]
    second = x[..., dim // 2 :]
    turned_first = first * cos - second * sin  # half precision times float32 is float32: one rounding, at the end
    turned_second = first * sin + second * cos
    turned = torch.cat((turned_first, turned_second), dim=-1)
    return turned.to(x.dtype)  # (..., T, dim)


def interleaved_to_half_split(weight: Tensor, n_heads: int) -> Tensor:
    """Reorder a projection's rows so that half-split RoPE gives the scores interleaved RoPE gave before.

    In every head, the interleaved layout pairs rows (2i, 2i+1), the half-split one rows (i, i + d_head/2).
    Only this direction: the input is interleaved, the output half-split.

    Args:
        weight: (n_heads * d_head, d_model), the weight of a query or key projection.
        n_heads: heads in this projection (for keys under grouped-query attention: the key/value heads).

    Returns:
        A new tensor with weight's shape and dtype.

    Raises:
        ValueError: the rows do not divide into n_heads heads, or a head has an odd width; with the numbers.
    """
    rows = weight.shape[0]
    if n_heads < 1 or rows % n_heads != 0:
        raise ValueError(f"{rows} rows do not divide into {n_heads} heads")
    d_head = rows // n_heads
    if d_head % 2 != 0:
        raise ValueError(f"a head of odd width d_head={d_head} has no pairs")
    old = torch.arange(rows, device=weight.device).view(n_heads, d_head // 2, 2)  # (head, pair, member)
    order = old.transpose(1, 2).reshape(rows)  # (head, member, pair): first members, then second members
    return weight[order]
