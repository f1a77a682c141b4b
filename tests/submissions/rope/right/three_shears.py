"""Right: rotation as three shears (lifting steps), torch.outer in float64 cut to float32, conversion by einsum with a permutation tensor"""

import math

import torch
from torch import einsum


def rope_angles(positions, dim, base=10000.0):
    half, odd = divmod(dim, 2)
    if odd:
        raise ValueError(f"dim={dim} is odd")
    slope = -math.log(base) / max(half, 1)
    theta = torch.tensor([math.exp(slope * i) for i in range(half)], dtype=torch.float64, device=positions.device)
    angle = torch.outer(positions.double(), theta)
    return angle.cos().float(), angle.sin().float()


def apply_rope(x, positions, base=10000.0):
    *lead, rows, dim = x.shape
    if positions.numel() != rows or positions.ndim != 1:
        raise ValueError(f"{tuple(positions.shape)} positions for {rows} rows")
    c, s = rope_angles(positions, dim, base)
    wide = x.double()
    c, s = c.double(), s.double()
    a, b = wide[..., : dim // 2], wide[..., dim // 2 :]
    # three shears where they are well conditioned, a half turn first elsewhere
    flip = torch.where(c < 0, -1.0, 1.0)
    c, s, a, b = c * flip, s * flip, a * flip, b * flip
    t = s / (1 + c)  # tan of half the angle
    a = a - t * b
    b = b + s * a
    a = a - t * b
    return torch.cat((a, b), -1).to(x.dtype)


def interleaved_to_half_split(weight, n_heads):
    rows, width = weight.shape
    d, left = divmod(rows, n_heads)
    if left:
        raise ValueError(f"{rows} rows do not divide into {n_heads} heads")
    if d & 1:
        raise ValueError(f"heads of odd width {d}")
    perm = torch.zeros(d, d, dtype=weight.dtype, device=weight.device)
    for new in range(d):
        perm[new, (2 * new) % d + (2 * new) // d] = 1
    return einsum("nd,hdm->hnm", perm, weight.view(n_heads, d, width) if weight.is_contiguous() else weight.reshape(n_heads, d, width)).reshape(rows, width)
