"""One linear state-space model, run two ways (Gu, Goel, Ré 2022, sections 2.1 to 2.4).

    continuous    h'(t) = A h(t) + B x(t)            y(t) = C h(t) + D x(t)
    zero-order    Ā = e^{ΔA}                         B̄ = (e^{ΔA} - 1)/A · B        (A diagonal, so elementwise)
    recurrence    h_t = Ā h_{t-1} + B̄ x_t            y_t = C·h_t + D x_t           h_{-1} = 0
    convolution   y_t = Σ_{l≤t} K_l x_{t-l} + D x_t  K_l = Σ_n C_n Ā_n^l B̄_n

Symbols: T time steps, N states, L kernel taps, Δ step size in the units of 1/A.  One channel, so x and y are (T,).

The two forms are equal because nothing in the system depends on t: unroll the recurrence from rest and the weight of
x_{t-l} in y_t is K_l.  The recurrence is for decoding: O(N) work and O(N) memory a token, T steps in a row.  The
convolution is for training: the kernel costs O(N L) once, then O(T log T) by FFT and no dependence between steps.
"""

import torch
from torch import Tensor


def discretize_zoh(A: Tensor, B: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """Discretise a diagonal continuous system, its input held constant over each step (zero-order hold).

    Args:
        A: (N,) diagonal of the state matrix, real, of either sign; entries may be 0 or arbitrarily close to it.
        B: (N,) input vector.
        delta: step size.

    Returns:
        A_bar (N,) and B_bar (N,), in A's dtype and on its device.  Where A is 0, B_bar is its limit, delta * B, and
        the gradients are finite; near 0 no digits are lost.
    """
    z = delta * A  # (N,)
    A_bar = torch.exp(z)  # (N,)
    # B̄ = ∫_0^Δ e^{sA} ds · B, and the integral is Δ φ(ΔA) with φ(z) = (e^z - 1)/z.
    phi = _phi(z)  # (N,)
    B_bar = delta * phi * B  # (N,)
    return A_bar, B_bar.to(A.dtype)


def _phi(z: Tensor) -> Tensor:
    """(e^z - 1)/z, continued by its Taylor series through z = 0."""
    # Both branches of a `where` are differentiated, so each gets an argument that is harmless for it: 0/0 in the
    # branch not taken would still put NaN into the gradient.
    small = z.abs() < 1e-3
    far = torch.where(small, torch.ones_like(z), z)
    near = torch.where(small, z, torch.zeros_like(z))
    # expm1, not exp - 1: at z = 1e-6 the subtraction keeps one digit of float32.
    ratio = torch.expm1(far) / far
    series = 1 + near / 2 + near**2 / 6 + near**3 / 24  # the next term is below 1e-14
    return torch.where(small, series, ratio)


def ssm_recurrent(x: Tensor, A_bar: Tensor, B_bar: Tensor, C: Tensor, D: float) -> Tensor:
    """Run the discrete system one step at a time, from rest.

    Args:
        x: (T,) input.
        A_bar: (N,) discrete state matrix (diagonal).
        B_bar: (N,) discrete input vector.
        C: (N,) output vector.
        D: skip coefficient.

    Returns:
        y: (T,) in x's dtype.
    """
    # A 16-bit state swallows writes smaller than 1/256 of it, so the state is float32 at least.
    wide = torch.promote_types(x.dtype, torch.float32)
    A_bar, B_bar, C = A_bar.to(wide), B_bar.to(wide), C.to(wide)
    h = torch.zeros_like(A_bar)  # (N,)
    outputs = []
    for t in range(x.shape[0]):
        # The new input is written before the state is read: y_t already contains x_t.
        h = A_bar * h + B_bar * x[t]  # (N,)
        y_t = (C * h).sum()
        y_t = y_t + D * x[t]
        outputs.append(y_t)
    y = torch.stack(outputs) if outputs else torch.zeros_like(x)  # (T,)
    return y.to(x.dtype)


def ssm_kernel(A_bar: Tensor, B_bar: Tensor, C: Tensor, L: int) -> Tensor:
    """The impulse response of the discrete system, without the skip.

    Args:
        A_bar: (N,) discrete state matrix (diagonal), positive.
        B_bar: (N,) discrete input vector.
        C: (N,) output vector.
        L: number of taps.

    Returns:
        K: (L,) in A_bar's dtype; tap l weighs the input of l steps ago.

    Raises:
        ValueError: L is negative.
    """
    if L < 0:
        raise ValueError(f"L must be at least 0, got {L}")
    # Exponents above 256 are not whole numbers in bfloat16, so powers are taken in float32 at least.
    wide = torch.promote_types(A_bar.dtype, torch.float32)
    taps = torch.arange(L, dtype=wide, device=A_bar.device)  # (L,)
    powers = A_bar.to(wide) ** taps[:, None]  # (L, N), a Vandermonde matrix
    weights = C.to(wide) * B_bar.to(wide)  # (N,)
    K = powers @ weights  # (L,)
    return K.to(A_bar.dtype)


def ssm_convolutional(x: Tensor, K: Tensor, D: float) -> Tensor:
    """Run the discrete system as one causal convolution.

    Args:
        x: (T,) input.
        K: (L,) kernel.  Taps past T are not used; missing ones are zero.
        D: skip coefficient.

    Returns:
        y: (T,) in x's dtype, equal to the recurrence whose kernel K is.
    """
    T = x.shape[0]
    if T == 0:
        return torch.zeros_like(x)
    wide = torch.promote_types(x.dtype, torch.float32)  # there is no FFT in 16 bits
    signal = x.to(wide)  # (T,)
    kernel = K[:T].to(wide)  # (min(L, T),)
    # A product of spectra is a circular convolution; with T + L - 1 points or more nothing comes round.
    n_points = 2 * T
    spectrum = torch.fft.rfft(signal, n_points) * torch.fft.rfft(kernel, n_points)  # (T + 1,)
    full = torch.fft.irfft(spectrum, n_points)  # (2T,)
    y = full[:T]
    y = y + D * signal
    return y.to(x.dtype)
