"""A kernel in 16 bits gets no gradient from the convolution."""

import math
import torch
from torch import Tensor
from torch.nn import functional as F


def _phi(z: Tensor) -> Tensor:
    small = z.abs() < 1e-3
    safe = torch.where(small, torch.ones_like(z), z)
    series = 1 + z / 2 * (1 + z / 3 * (1 + z / 4 * (1 + z / 5)))
    return torch.where(small, series, torch.expm1(safe) / safe)


def discretize_zoh(A: Tensor, B: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    z = delta * A
    return torch.exp(z), (delta * _phi(z) * B).to(A.dtype)


def ssm_recurrent(x: Tensor, A_bar: Tensor, B_bar: Tensor, C: Tensor, D: float) -> Tensor:
    h = torch.zeros_like(A_bar)
    ys = []
    for t in range(x.shape[0]):
        h = A_bar * h + B_bar * x[t]
        ys.append((C * h).sum() + D * x[t])
    if not ys:
        return torch.zeros_like(x)
    return torch.stack(ys).to(x.dtype)


def ssm_kernel(A_bar: Tensor, B_bar: Tensor, C: Tensor, L: int) -> Tensor:
    if L < 0:
        raise ValueError(f"L must not be negative, got {L}")
    steps = torch.arange(L, device=A_bar.device)[:, None]
    return (A_bar ** steps @ (C * B_bar)).to(A_bar.dtype)


def ssm_convolutional(x: Tensor, K: Tensor, D: float) -> Tensor:
    T = x.shape[0]
    L = min(T, K.shape[0])
    if T == 0 or L == 0:
        return D * x
    n = 2 * T
    K = K.detach() if K.dtype in (torch.float16, torch.bfloat16) else K
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    y = torch.fft.irfft(torch.fft.rfft(x.to(wide), n) * torch.fft.rfft(K[:T].to(wide), n), n)[:T]
    return y.to(x.dtype) + D * x
