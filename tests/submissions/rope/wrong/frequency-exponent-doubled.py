"""The exponent is divided by half the width."""

import torch


def rope_angles(positions, dim, base=10000.0):
    if dim % 2 != 0:
        raise ValueError(f"dim must be even: {dim}")
    inv_freq = 1.0 / (
        base ** (torch.arange(0, dim, 2, dtype=torch.int64, device=positions.device).float() / (dim // 2))
    )
    freqs = positions[:, None].float() * inv_freq[None, :]
    return freqs.cos(), freqs.sin()


def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def apply_rope(x, positions, base=10000.0):
    if positions.numel() != x.size(-2):
        raise ValueError(f"{positions.numel()} positions for a sequence of {x.size(-2)}")
    cos, sin = (torch.cat((table, table), dim=-1).to(x.dtype) for table in rope_angles(positions, x.size(-1), base))
    return (x * cos) + (rotate_half(x) * sin)


def interleaved_to_half_split(weight, n_heads):
    dim1, dim2 = weight.shape
    if dim1 % n_heads != 0 or (dim1 // n_heads) % 2 != 0 or dim1 < n_heads:
        raise ValueError(f"cannot cut {dim1} rows into {n_heads} even heads")
    table = weight.reshape(n_heads, dim1 // n_heads // 2, 2, dim2)
    return table.transpose(1, 2).reshape(dim1, dim2).clone()
