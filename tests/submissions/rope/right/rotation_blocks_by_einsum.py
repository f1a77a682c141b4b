"""Right: 2x2 rotation matrices and einsum; conversion by rearranged views and contiguous"""

import torch
from torch import Tensor


def rope_angles(positions: Tensor, dim: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    if dim % 2 == 1:
        raise ValueError(f"{dim} is odd")
    columns = [positions.to(torch.float64) / base ** (2 * i / dim) for i in range(dim // 2)]
    angle = torch.stack(columns, dim=1)
    return angle.cos().to(torch.float32), angle.sin().to(torch.float32)


def apply_rope(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    *lead, rows, dim = x.shape
    if tuple(positions.shape) != (rows,):
        raise ValueError(f"positions {tuple(positions.shape)} for {rows} rows")
    cos, sin = rope_angles(positions, dim, base)
    turn = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)
    turn = turn.double()
    pairs = x.double().reshape(*lead, rows, 2, dim // 2)
    return torch.einsum("tioj,...tji->...toi", turn, pairs).reshape(x.shape).to(x.dtype)


def interleaved_to_half_split(weight: Tensor, n_heads: int) -> Tensor:
    n = weight.shape[0]
    if n % n_heads != 0:
        raise ValueError(f"{n} rows, {n_heads} heads")
    d = n // n_heads
    if d % 2 != 0:
        raise ValueError(f"head width {d}")
    return torch.cat([h[p::2] for h in weight.split(d) for p in (0, 1)], dim=0)
