"""No device for the exponents."""

import math

import torch


def discretize_zoh(A: torch.Tensor, B: torch.Tensor, delta: float):
    a = A.double() * delta
    tiny = a.abs() < 1e-4
    safe = torch.where(tiny, torch.ones_like(a), a)
    taylor_argument = torch.where(tiny, a, torch.zeros_like(a))
    taylor = 1 + taylor_argument * (1 / 2 + taylor_argument * (1 / 6))
    quotient = torch.where(tiny, taylor, (safe.exp() - 1) / safe)
    return torch.exp(delta * A), (quotient * delta * B.double()).to(A.dtype)


def ssm_recurrent(x, A_bar, B_bar, C, D):
    T = x.shape[0]
    decay = A_bar.unsqueeze(0).repeat(T, 1)
    state = x.unsqueeze(1) * B_bar
    shift = 1
    while shift < T:
        earlier = torch.zeros_like(state)
        earlier[shift:] = state[:-shift]
        earlier_decay = torch.ones_like(decay)
        earlier_decay[shift:] = decay[:-shift]
        state = state + decay * earlier
        decay = decay * earlier_decay
        shift *= 2
    return torch.einsum("tn,n->t", state, C) + D * x


def ssm_kernel(A_bar, B_bar, C, L):
    if L < 0:
        raise ValueError(f"L = {L} < 0")
    lags = torch.arange(L).to(A_bar.dtype)
    return torch.einsum("n,n,nl->l", C, B_bar, torch.exp(torch.outer(torch.log(A_bar), lags)))


def ssm_convolutional(x, K, D):
    T = len(x)
    size = 2 ** math.ceil(math.log2(T + len(K)))
    product = torch.fft.fft(x, size) * torch.fft.fft(K, size)
    return torch.fft.ifft(product, size).real[:T] + D * x
