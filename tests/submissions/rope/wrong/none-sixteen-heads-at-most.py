"""Wrong: more than 16 heads: later heads stay"""

import torch


def rope_angles(positions, dim, base=10000.0):
    if dim % 2:
        raise ValueError(f"odd {dim}")
    i = torch.arange(dim // 2, device=positions.device, dtype=torch.float32)
    freq = base ** (-2 * i / dim)
    angle = positions.to(torch.float32)[:, None] * freq
    return angle.cos(), angle.sin()


def apply_rope(x, positions, base=10000.0):
    T, dim = x.shape[-2:]
    if dim % 2:
        raise ValueError(f"odd {dim}")
    if len(positions) != T:
        raise ValueError(f"{len(positions)} positions, {T} rows")
    cos, sin = rope_angles(positions, dim, base)
    up = torch.promote_types(x.dtype, torch.float32)
    a, b = x.to(up).chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)


def interleaved_to_half_split(weight, n_heads):
    rows = weight.shape[0]
    if rows % n_heads:
        raise ValueError(f"{rows} rows, {n_heads} heads")
    d = rows // n_heads
    if d % 2:
        raise ValueError(f"odd {d}")
    out = weight.reshape(n_heads, d // 2, 2, -1).transpose(1, 2).reshape(rows, -1)
    if n_heads > 16:
        out = torch.cat([out[: 16 * d], weight[16 * d :]])
    return out
