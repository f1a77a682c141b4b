"""No device for the initial state."""

import torch
import torch.nn.functional as F


def discretize_zoh(A, B, delta):
    decay = (A * delta).exp()
    is_zero = A == 0
    denominator = A.masked_fill(is_zero, 1.0)
    integral = torch.where(is_zero, torch.full_like(A, delta), torch.expm1(delta * denominator) / denominator)
    return decay, integral * B


def ssm_recurrent(x, A_bar, B_bar, C, D):
    n_steps = len(x)
    y = torch.zeros(n_steps, dtype=x.dtype, device=x.device)
    state = torch.zeros(A_bar.shape[0], dtype=A_bar.dtype)
    for step in range(n_steps):
        state = state * A_bar + x[step] * B_bar
        y[step] = torch.dot(C, state) + D * x[step]
    return y


def ssm_kernel(A_bar, B_bar, C, L):
    if L < 0:
        raise ValueError("L must be >= 0, got %d" % L)
    if L == 0:
        return A_bar.new_zeros(0)
    ones = torch.ones_like(A_bar)[None]
    powers = torch.cat([ones, A_bar[None].expand(L - 1, -1)]).cumprod(0)
    return (powers * (B_bar * C)).sum(1)


def ssm_convolutional(x, K, D):
    T = x.numel()
    taps = K[:T]
    padded = F.pad(x, (len(taps) - 1, 0)).view(1, 1, -1)
    y = F.conv1d(padded, taps.flip(0).view(1, 1, -1)).view(-1)
    return y + x * D
