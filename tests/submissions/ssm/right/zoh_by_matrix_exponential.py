"""The zero-order hold as the exponential of [[A, 1], [0, 0]]."""

import math, torch

def discretize_zoh(A, B, delta):
    M = torch.zeros(A.shape[0], 2, 2, dtype=torch.float64, device=A.device)
    M = torch.stack([torch.stack([A.double(), torch.ones_like(A, dtype=torch.float64)], -1), torch.zeros(A.shape[0], 2, dtype=torch.float64, device=A.device)], -2)
    E = torch.matrix_exp(M * delta)
    return E[:, 0, 0].to(A.dtype), (E[:, 0, 1] * B).to(A.dtype)

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
