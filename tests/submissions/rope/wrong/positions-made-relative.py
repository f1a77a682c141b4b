"""Positions minus the first one."""

import torch
from torch import Tensor


def rope_angles(positions: Tensor, dim: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    if dim % 2:
        raise ValueError(f"dim = {dim} is odd")
    phases = _phases(positions, dim, base)
    return phases.real.contiguous(), phases.imag.contiguous()


def _phases(positions, dim, base):
    pair = torch.arange(dim // 2, device=positions.device, dtype=torch.float32)
    angle = torch.outer((positions - positions[0]).float(), torch.pow(base, -2.0 * pair / dim))
    return torch.polar(torch.ones_like(angle), angle)


def apply_rope(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    *_, length, dim = x.shape
    if dim % 2 or len(positions) != length:
        raise ValueError(f"width {dim}, {length} rows, {len(positions)} positions")
    work = x.double() if x.dtype == torch.float64 else x.float()
    as_pairs = torch.complex(*work.chunk(2, dim=-1))
    turned = as_pairs * _phases(positions, dim, base)
    return torch.cat((turned.real, turned.imag), dim=-1).to(x.dtype)


def interleaved_to_half_split(weight: Tensor, n_heads: int) -> Tensor:
    rows, columns = weight.shape
    if rows % n_heads or rows // n_heads % 2 or rows < n_heads:
        raise ValueError(f"{rows} rows, {n_heads} heads")
    heads = weight.reshape(n_heads, rows // n_heads, columns)
    return torch.cat((heads[:, 0::2], heads[:, 1::2]), dim=1).reshape(rows, columns)
