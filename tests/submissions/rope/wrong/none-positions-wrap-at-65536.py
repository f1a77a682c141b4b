"""Wrong: positions modulo 65536"""
import torch
from torch import Tensor


def rope_angles(positions: Tensor, dim: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    if dim % 2:
        raise ValueError(f"dim {dim} is odd")
    i = torch.arange(dim // 2, device=positions.device, dtype=torch.float64)
    a = torch.outer(positions.double().remainder(65536), base ** (-2 * i / dim))
    return a.cos().float(), a.sin().float()


def apply_rope(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    *_, t, d = x.shape
    if len(positions) != t:
        raise ValueError(f"{len(positions)} positions for {t} rows")
    c, s = rope_angles(positions, d, base)
    kind = torch.promote_types(x.dtype, torch.float32)
    z = torch.view_as_complex(torch.stack(x.to(kind).chunk(2, -1), -1).contiguous())
    z = z * torch.complex(c.to(kind), s.to(kind))
    return torch.view_as_real(z).transpose(-1, -2).flatten(-2).to(x.dtype)


def interleaved_to_half_split(weight: Tensor, n_heads: int) -> Tensor:
    rows = weight.shape[0]
    if rows % n_heads or (rows // n_heads) % 2:
        raise ValueError(f"{rows} rows in {n_heads} heads")
    w = rows // n_heads
    r = torch.arange(rows, device=weight.device)
    head, j = torch.div(r, w, rounding_mode="floor"), r % w
    source = head * w + 2 * (j % (w // 2)) + (j >= w // 2)
    return torch.gather(weight, 0, source[:, None].expand_as(weight))
