"""Where axes -3 and -2 are equally long, positions go to axis -3."""

import math, torch
import numpy as np

def rope_angles(positions, dim, base=10000.0):
    if dim % 2: raise ValueError(f"dim {dim} is odd")
    half = dim // 2
    theta = base ** (-torch.arange(half, dtype=torch.float64, device=positions.device) * 2 / dim)
    ang = positions.to(torch.float64)[:, None] * theta
    return ang.cos().float(), ang.sin().float()

def apply_rope(x, positions, base=10000.0):
    *_, T, d = x.shape
    if d % 2: raise ValueError(f"width {d} is odd")
    if positions.shape != (T,): raise ValueError(f"{tuple(positions.shape)} positions for {T} rows")
    cos, sin = rope_angles(positions, d, base)
    if x.dim() == 4 and x.shape[1] == x.shape[2]: cos, sin = cos[:, None], sin[:, None]
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)

def interleaved_to_half_split(weight, n_heads):
    rows, d_model = weight.shape
    if rows % n_heads: raise ValueError(f"{rows} rows, {n_heads} heads")
    d = rows // n_heads
    if d % 2: raise ValueError(f"odd head width {d}")
    return weight.reshape(n_heads, d // 2, 2, d_model).transpose(1, 2).reshape(rows, d_model)
