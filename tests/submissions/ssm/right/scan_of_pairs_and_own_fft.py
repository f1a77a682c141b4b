"""Right: recursive associative scan over (a, b) pairs; own radix-2 FFT with complex numbers; phi as a product of half-angle factors"""
from __future__ import annotations
from typing import NamedTuple
import math
import torch
from torch import Tensor


class Affine(NamedTuple):
    a: Tensor
    b: Tensor

    def then(self, other: Affine) -> Affine:
        return Affine(self.a * other.a, other.a * self.b + other.b)


def discretize_zoh(A: Tensor, B: Tensor, delta: float):
    # phi(z) = phi(z/2) (1 + e^{z/2}) / 2, down to a z for which five terms are exact to 64 bits
    z = (delta * A).to(torch.float64)
    small = z / 2**20
    phi = 1 + small / 2 * (1 + small / 3 * (1 + small / 4 * (1 + small / 5)))
    for level in range(20, 0, -1):
        phi = phi * (1 + torch.exp(z / 2**level)) / 2
    huge = z < -1000
    phi = torch.where(huge, torch.expm1(z) / torch.where(huge, z, torch.ones_like(z)), phi)
    return torch.exp(z).to(A), (delta * phi * B).to(A)


def _scan(s: Affine) -> Affine:
    T = s.b.shape[0]
    if T < 2:
        return s
    pairs = Affine(s.a[0 : T - 1 : 2], s.b[0 : T - 1 : 2]).then(Affine(s.a[1::2], s.b[1::2]))
    odd = _scan(pairs)
    first = Affine(s.a[:1], s.b[:1])
    rest = Affine(s.a[2::2], s.b[2::2])
    even = Affine(odd.a[: len(rest.a)], odd.b[: len(rest.b)]).then(rest)
    even = Affine(torch.cat([first.a, even.a]), torch.cat([first.b, even.b]))
    merged = []
    for e, o in zip(even, odd):
        full = torch.empty(T, *e.shape[1:], dtype=e.dtype, device=e.device)
        full = full.index_copy(0, torch.arange(0, T, 2, device=e.device), e).index_copy(0, torch.arange(1, T, 2, device=e.device), o)
        merged.append(full)
    return Affine(*merged)


def ssm_recurrent(x, A_bar, B_bar, C, D: float):
    b = x[:, None] * B_bar
    h = _scan(Affine(A_bar.expand_as(b), b)).b
    return (h * C).sum(-1).to(x.dtype) + D * x


def ssm_kernel(A_bar, B_bar, C, L: int):
    if L < 0:
        raise ValueError(f"a kernel of {L} taps")
    row, taps = B_bar * C, []
    for _ in range(L):
        taps.append(row.sum())
        row = row * A_bar
    return torch.stack(taps) if taps else A_bar.new_zeros(0)


def _fft(v: Tensor, sign: int) -> Tensor:
    n = v.shape[0]
    if n == 1:
        return v
    even, odd = _fft(v[::2], sign), _fft(v[1::2], sign)
    angle = sign * 2 * math.pi * torch.arange(n // 2, device=v.device, dtype=torch.float64) / n
    turn = torch.polar(torch.ones_like(angle), angle) * odd
    return torch.cat([even + turn, even - turn])


def ssm_convolutional(x, K, D: float):
    T = len(x)
    n = 1 << (T + min(len(K), T)).bit_length()
    pad = lambda v: torch.cat([v.double(), torch.zeros(n - len(v), device=v.device, dtype=torch.float64)]).to(torch.complex128)
    y = _fft(_fft(pad(x), 1) * _fft(pad(K[:T]), 1), -1).real[:T] / n
    return y.to(x.dtype) + D * x
