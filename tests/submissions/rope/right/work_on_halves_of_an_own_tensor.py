"""Right: out= arguments and addcmul on own tensors while no gradient is asked, a plain path otherwise; frequencies by logspace; conversion by pixel_shuffle-like unfold"""

import torch


def rope_angles(positions, dim, base=10000.0):
    if dim % 2 != 0:
        raise ValueError(f"dim must be even, not {dim}")
    exponents = torch.arange(0, dim, 2, dtype=torch.float32, device=positions.device).div_(dim)
    inv_freq = 1.0 / torch.pow(base, exponents)
    freqs = torch.einsum("i,j->ij", positions.type(torch.float32), inv_freq)
    return torch.cos(freqs), torch.sin(freqs)


def apply_rope(x, positions, base=10000.0):
    if x.size(-2) != positions.size(0):
        raise ValueError(f"{positions.size(0)} positions but {x.size(-2)} rows")
    cos, sin = rope_angles(positions, x.size(-1), base)
    work = torch.float64 if x.dtype is torch.float64 else torch.float32
    cos, sin = cos.to(work), sin.to(work)
    x1, x2 = x.to(work).tensor_split(2, dim=-1)
    if not torch.is_grad_enabled():
        out = torch.empty(x.shape, dtype=work, device=x.device)
        h = x.size(-1) // 2
        lo, hi = out.narrow(-1, 0, h), out.narrow(-1, h, h)
        lo.copy_(x1).mul_(cos).addcmul_(x2, sin, value=-1)
        hi.copy_(x2).mul_(cos).addcmul_(x1, sin)
        return out.to(x.dtype)
    return torch.hstack([torch.addcmul(x1 * cos, x2, -sin), torch.addcmul(x2 * cos, x1, sin)]).to(x.dtype) if x.ndim == 1 else torch.concat([torch.addcmul(x1 * cos, x2, -sin), torch.addcmul(x2 * cos, x1, sin)], dim=-1).to(x.dtype)


def interleaved_to_half_split(weight, n_heads):
    if weight.size(0) % n_heads:
        raise ValueError(f"{weight.size(0)} rows, {n_heads} heads")
    if weight.size(0) // n_heads % 2:
        raise ValueError(f"odd head width {weight.size(0) // n_heads}")
    pieces = []
    for head in weight.tensor_split(n_heads):
        pieces += [head[::2], head[1::2]]
    return torch.cat(pieces)
