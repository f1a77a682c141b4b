"""Wrong: result float32 for half input"""

import torch


def discretize_zoh(A, B, delta):
    z = A * delta
    zero = z == 0
    safe = torch.where(zero, torch.ones_like(z), z)
    phi = torch.where(zero, 1 + z / 2, torch.expm1(safe) / safe)
    return torch.exp(z), (phi * delta * B).to(A.dtype)


def ssm_recurrent(x, A_bar, B_bar, C, D):
    state = torch.zeros_like(A_bar)
    out = []
    for u in x:
        state = torch.addcmul(B_bar * u, A_bar, state)
        out.append(torch.dot(C, state))
    return (torch.stack(out) if out else x.clone()) + D * x


def ssm_kernel(A_bar, B_bar, C, L):
    if L < 0:
        raise ValueError(f"L = {L}")
    l = torch.arange(L, device=A_bar.device)
    return (C * B_bar) @ (A_bar[:, None] ** l)


def ssm_convolutional(x, K, D):
    T = x.shape[0]
    taps = K[:T]
    n = 1
    while n < T + taps.shape[0]:
        n *= 2
    dtype = x.dtype if x.dtype == torch.float64 else torch.float32
    y = torch.fft.irfft(torch.fft.rfft(x.to(dtype), n) * torch.fft.rfft(taps.to(dtype), n), n)[:T]
    return y + D * x
