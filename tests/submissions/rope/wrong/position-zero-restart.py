"""Rows are numbered in the function."""

import torch
from torch import Tensor


def rope_angles(positions: Tensor, dim: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    if dim & 1:
        raise ValueError(f"an even width is needed, not {dim}")
    theta = torch.exp(-torch.log(torch.tensor(base, dtype=torch.float64)) * torch.arange(0, dim, 2) / dim)
    angle = positions.double().unsqueeze(-1) * theta.to(positions.device)
    return angle.cos().float(), angle.sin().float()


def apply_rope(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    if tuple(positions.shape) != (x.shape[-2],):
        raise ValueError(f"positions of shape {tuple(positions.shape)} for x of shape {tuple(x.shape)}")
    cos, sin = rope_angles(torch.arange(len(positions), device=positions.device), x.shape[-1], base)
    rotation = torch.stack((torch.stack((cos, -sin), -1), torch.stack((sin, cos), -1)), -2)  # (T, pair, 2, 2)
    work = torch.promote_types(x.dtype, torch.float32)
    pairs = x.to(work).unflatten(-1, (2, -1))  # (..., T, member, pair)
    turned = torch.einsum("tpij,...tjp->...tip", rotation.to(work), pairs)
    return turned.flatten(-2).to(x.dtype)


def interleaved_to_half_split(weight: Tensor, n_heads: int) -> Tensor:
    rows = weight.shape[0]
    d_head, rest = divmod(rows, n_heads)
    if rest or d_head % 2 or not d_head:
        raise ValueError(f"rows={rows}, n_heads={n_heads}")
    table = [
        head * d_head + 2 * pair + member for head in range(n_heads) for member in (0, 1) for pair in range(d_head // 2)
    ]
    order = torch.tensor(table, device=weight.device)
    return torch.index_select(weight, 0, order)
