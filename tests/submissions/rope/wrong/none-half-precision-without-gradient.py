"""Wrong: half-precision x receives no gradient."""

import torch


def rope_angles(positions, dim, base=10000.0):
    if dim % 2:
        raise ValueError(f"odd width {dim}")
    i = torch.arange(0, dim, 2, device=positions.device, dtype=torch.float32)
    theta = base ** (-i / dim)
    angle = positions.to(torch.float32)[:, None] * theta
    return angle.cos(), angle.sin()


def apply_rope(x, positions, base=10000.0):
    T, dim = x.shape[-2], x.shape[-1]
    if dim % 2:
        raise ValueError(f"odd width {dim}")
    if positions.shape[0] != T:
        raise ValueError(f"{positions.shape[0]} positions for {T} rows")
    cos, sin = rope_angles(positions, dim, base)
    xf = x.detach().float() if x.dtype in (torch.float16, torch.bfloat16) else x
    a, b = xf[..., : dim // 2], xf[..., dim // 2 :]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).to(x.dtype)


def interleaved_to_half_split(weight, n_heads):
    rows = weight.shape[0]
    if rows % n_heads:
        raise ValueError(f"{rows} rows, {n_heads} heads")
    d_head = rows // n_heads
    if d_head % 2:
        raise ValueError(f"odd head width {d_head}")
    w = weight.reshape(n_heads, d_head // 2, 2, -1).transpose(1, 2)
    return w.reshape(rows, -1).clone()
