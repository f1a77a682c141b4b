"""The order of the rows is an index on the CPU, whatever device the weight is on."""

import math

import torch


def rope_angles(positions, dim, base=10000.0):
    if dim % 2:
        raise ValueError(f"dim = {dim}")
    rate = torch.exp(torch.arange(dim // 2, dtype=torch.float64, device=positions.device) * (-2 * math.log(base) / dim)) if dim else torch.zeros(0)
    z = torch.polar(torch.ones((), dtype=torch.float64, device=positions.device), positions.double()[:, None] * rate)
    return z.real.float(), z.imag.float()


def apply_rope(x, positions, base=10000.0):
    T, dim = x.shape[-2:]
    if positions.shape[0] != T:
        raise ValueError(f"{positions.shape[0]} positions for {T} rows")
    cos, sin = rope_angles(positions, dim, base)
    wide = torch.promote_types(x.dtype, torch.float32)
    a, b = x.to(wide).unflatten(-1, (2, dim // 2)).unbind(-2)
    z = torch.complex(a, b) * torch.complex(cos.to(wide), sin.to(wide))
    return torch.cat((z.real, z.imag), -1).to(x.dtype)


def interleaved_to_half_split(weight, n_heads):
    rows = weight.shape[0]
    if rows % n_heads or (rows // n_heads) % 2:
        raise ValueError(f"{rows} rows, {n_heads} heads")
    i = torch.arange(rows)
    d = rows // n_heads
    within = i % d
    source = i - within + torch.where(within < d // 2, 2 * within, 2 * (within - d // 2) + 1)
    return weight.index_select(0, source)
