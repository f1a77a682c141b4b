"""Wrong: the recurrence restarts every 256 steps"""

import torch
from torch.nn import functional as F


def discretize_zoh(A, B, delta):
    z = delta * A
    zero = z.abs() < 1e-30
    safe = torch.where(zero, torch.ones_like(z), z)
    phi = torch.where(zero, 1 + z / 2, torch.expm1(safe) / safe)
    return torch.exp(z), (delta * phi * B).to(A.dtype)


def ssm_recurrent(x, A_bar, B_bar, C, D):
    h = torch.zeros_like(A_bar)
    out = []
    for t in range(x.shape[0]):
        h = A_bar * h * (t % 256 != 0) + B_bar * x[t]
        out.append((C * h).sum() + D * x[t])
    return torch.stack(out).to(x.dtype) if out else x.clone()


def ssm_kernel(A_bar, B_bar, C, L):
    if L < 0:
        raise ValueError(f"L = {L} < 0")
    taps = torch.arange(L, device=A_bar.device)
    return ((A_bar[:, None] ** taps) * (B_bar * C)[:, None]).sum(0).to(A_bar.dtype)


def ssm_convolutional(x, K, D):
    T = x.shape[0]
    wide = torch.promote_types(x.dtype, torch.float32)
    K = K[:T].to(wide)
    n = T + K.shape[0]
    y = torch.fft.irfft(torch.fft.rfft(x.to(wide), n=n) * torch.fft.rfft(K, n=n), n=n)[:T]
    return (y + D * x).to(x.dtype)
