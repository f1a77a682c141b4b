"""Angles are kept by the number of positions and the last one."""

import math, torch
import numpy as np

def rope_angles(positions, dim, base=10000.0):
    if dim % 2: raise ValueError(f"dim {dim} is odd")
    half = dim // 2
    theta = base ** (-torch.arange(half, dtype=torch.float64, device=positions.device) * 2 / dim)
    ang = positions.to(torch.float64)[:, None] * theta
    return ang.cos().float(), ang.sin().float()

_cache = {}
def apply_rope(x, positions, base=10000.0):
    *_, T, d = x.shape
    if d % 2: raise ValueError(f"width {d} is odd")
    if positions.shape != (T,): raise ValueError(f"{tuple(positions.shape)} positions for {T} rows")
    key = (T, float(positions[-1]) if T and x.device.type!='meta' else 0, d, base, x.device)
    if key not in _cache: _cache[key] = rope_angles(positions, d, base)
    cos, sin = _cache[key]
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)

def interleaved_to_half_split(weight, n_heads):
    rows, d_model = weight.shape
    if rows % n_heads: raise ValueError(f"{rows} rows, {n_heads} heads")
    d = rows // n_heads
    if d % 2: raise ValueError(f"odd head width {d}")
    return weight.reshape(n_heads, d // 2, 2, d_model).transpose(1, 2).reshape(rows, d_model)
