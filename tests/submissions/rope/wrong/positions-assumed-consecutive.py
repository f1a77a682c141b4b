"""Only the first position counts."""

import numpy as np
import torch
from torch import Tensor


def rope_angles(positions: Tensor, dim: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    if dim % 2 == 1:
        raise ValueError(f"{dim} dimensions cannot be paired")
    theta = np.float64(base) ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    theta = torch.as_tensor(theta.astype(np.float32), device=positions.device)
    m = (positions[0].float() + torch.arange(positions.numel(), device=positions.device).float()).reshape(-1, 1)
    return torch.cos(m * theta), torch.sin(m * theta)


def apply_rope(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    length, dim = x.shape[-2], x.shape[-1]
    if positions.shape[0] != length:
        raise ValueError(f"expected {length} positions, got {positions.shape[0]}")
    cos, sin = rope_angles(positions, dim, base)
    half = dim // 2
    source = x if x.dtype == torch.float64 else x.float()
    result = torch.empty_like(source)
    result[..., :half] = source[..., :half] * cos - source[..., half:] * sin
    result[..., half:] = source[..., half:] * cos + source[..., :half] * sin
    return result.to(x.dtype)


def interleaved_to_half_split(weight: Tensor, n_heads: int) -> Tensor:
    if n_heads <= 0 or weight.shape[0] % n_heads:
        raise ValueError(f"{weight.shape[0]} rows for {n_heads} heads")
    d_head = weight.shape[0] // n_heads
    if d_head % 2 or d_head == 0:
        raise ValueError(f"head width {d_head}")
    blocks = []
    for head in weight.split(d_head):
        blocks.append(head[::2])
        blocks.append(head[1::2])
    return torch.cat(blocks)
