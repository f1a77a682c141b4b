"""Rotary position embedding

Su et al. 2021, RoFormer, arXiv:2104.09864, section 3.2.2 and equation 34

Part 1 (4 points)  Rotation: rope_angles, apply_rope
Part 2 (3 points)  Offsets under a cache, half precision: rope_angles, apply_rope
Part 3 (3 points)  Converting checkpoints between layouts: interleaved_to_half_split

Target: part 1 in 10 minutes, from memory.

    kit show rope     the statement
    kit grade rope    the verdict (--part 1 for one part)
    kit hint rope     a nudge
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
    raise NotImplementedError("parts 1, 2: write rope_angles")


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
    raise NotImplementedError("parts 1, 2: write apply_rope")


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
    raise NotImplementedError("part 3: write interleaved_to_half_split")
