"""A 2x2 rotation matrix per position and pair."""

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
    m = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)  # T, d/2, 2, 2
    hi = torch.promote_types(x.dtype, torch.float32)
    p = torch.stack(x.to(hi).split(d // 2, -1), -1)
    return torch.einsum("tpij,...tpj->...tpi", m.to(hi), p).transpose(-1, -2).flatten(-2).to(x.dtype)

def interleaved_to_half_split(weight, n_heads):
    rows, d_model = weight.shape
    if rows % n_heads: raise ValueError(f"{rows} rows, {n_heads} heads")
    d = rows // n_heads
    if d % 2: raise ValueError(f"odd head width {d}")
    return weight.reshape(n_heads, d // 2, 2, d_model).transpose(1, 2).reshape(rows, d_model)
