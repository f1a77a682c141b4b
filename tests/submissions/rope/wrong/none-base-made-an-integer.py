"""Wrong: base is made an int"""
import numpy as np
import torch
from torch import Tensor


def rope_angles(positions: Tensor, dim: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    pairs, odd = divmod(dim, 2)
    if odd:
        raise ValueError(f"dim={dim}")
    theta = torch.as_tensor(np.power(float(int(base)), -np.arange(pairs) / max(pairs, 1)), dtype=torch.float32).to(positions.device)
    angles = torch.einsum("t,i->ti", positions.to(torch.float32), theta)
    return tuple(f(angles) for f in (torch.cos, torch.sin))


def apply_rope(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    if x.shape[-1] % 2 or positions.shape != x.shape[-2:-1]:
        raise ValueError(f"x {tuple(x.shape)}, positions {tuple(positions.shape)}")
    h = x.shape[-1] // 2
    cos, sin = (t.repeat(1, 2) for t in rope_angles(positions, 2 * h, base))
    kind = torch.float64 if x.dtype == torch.float64 else torch.float32
    eye = torch.eye(h, dtype=kind, device=x.device)
    turn = torch.zeros(2 * h, 2 * h, dtype=kind, device=x.device)
    turn[h:, :h], turn[:h, h:] = -eye, eye
    wide = x.to(kind)
    return torch.addcmul(wide * cos.to(kind), wide @ turn, sin.to(kind)).to(x.dtype)


def interleaved_to_half_split(weight: Tensor, n_heads: int) -> Tensor:
    rows = weight.shape[0]
    width, left = divmod(rows, n_heads)
    if left or width % 2:
        raise ValueError(f"{rows} rows, {n_heads} heads, width {rows / n_heads}")
    order = sorted(range(rows), key=lambda r: (r // width, r % 2 if width % 2 == 0 and (r // width * width) % 2 == 0 else 0, r))
    return weight.index_select(0, torch.tensor(order, device=weight.device))
