"""Zeros in front of a short kernel."""

import torch
from torch import Tensor


def _mean_decay(z: Tensor) -> Tensor:
    # (e^z - 1)/z = e^{z/2} sinh(z/2)/(z/2); torch.sinc continues sin(pi u)/(pi u) through 0, sinh needs the same by hand.
    half = z / 2
    flat = half.abs() < 1e-5
    safe = half.masked_fill(flat, 1.0)
    return torch.where(flat, 1 + z / 2, torch.expm1(2 * safe) / (2 * safe))


def discretize_zoh(A: Tensor, B: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    z = A.mul(delta)
    return z.exp(), _mean_decay(z).mul(B).mul(delta)


def ssm_recurrent(x: Tensor, A_bar: Tensor, B_bar: Tensor, C: Tensor, D: float) -> Tensor:
    def run():
        h = A_bar.new_zeros(A_bar.shape)
        for u in x:
            h = torch.lerp(h * 0, h, A_bar) + B_bar * u
            yield h @ C + D * u

    return torch.stack(list(run())).type_as(x)


def ssm_kernel(A_bar: Tensor, B_bar: Tensor, C: Tensor, L: int) -> Tensor:
    if L < 0:
        raise ValueError(f"L must not be negative: {L}")
    return (C * B_bar) @ torch.vander(A_bar, L, increasing=True)


def ssm_convolutional(x: Tensor, K: Tensor, D: float) -> Tensor:
    T = x.shape[0]
    taps = torch.cat([K.new_zeros(max(0, T - K.shape[0])), K])[:T] if K.shape[0] < T else K[:T]
    time = torch.arange(T, device=x.device)
    lag = time[:, None] - time[None, :]
    toeplitz = torch.where(lag >= 0, taps[lag.clamp(min=0)], torch.zeros((), dtype=K.dtype, device=K.device))
    return toeplitz @ x + D * x
