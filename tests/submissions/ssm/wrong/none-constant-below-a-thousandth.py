"""Below 1e-3 the first term of the series is taken alone."""

import math, torch

def discretize_zoh(A, B, delta):
    z = delta * A
    small = z.abs() < 1e-3
    zs = torch.where(small, torch.ones_like(z), z)
    series = torch.ones_like(z)
    phi = torch.where(small, series, torch.expm1(zs) / zs)
    return torch.exp(z), delta * phi * B

def ssm_recurrent(x, A_bar, B_bar, C, D):
    h = torch.zeros_like(A_bar)
    ys = []
    for t in range(x.shape[0]):
        h = A_bar * h + B_bar * x[t]
        ys.append((C * h).sum() + D * x[t])
    return torch.stack(ys).to(x.dtype) if ys else x.clone()

def ssm_kernel(A_bar, B_bar, C, L):
    if L < 0: raise ValueError(f"L = {L}")
    l = torch.arange(L, device=A_bar.device)
    return ((C * B_bar)[:, None] * A_bar[:, None] ** l).sum(0).to(A_bar.dtype)

def ssm_convolutional(x, K, D):
    T = x.shape[0]
    n = max(1, 2 * T)
    K = K[:T]
    hi = torch.promote_types(x.dtype, torch.float32)
    y = torch.fft.irfft(torch.fft.rfft(x.to(hi), n=n) * torch.fft.rfft(K.to(hi), n=n), n=n)[:T] if T and K.numel() else torch.zeros_like(x)
    return (y + D * x).to(x.dtype)
