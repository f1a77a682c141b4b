"""One state-space model, run as a recurrence and as a convolution

Gu, Goel, Ré 2022, Efficiently Modeling Long Sequences with Structured State Spaces, arXiv:2111.00396, section 2;
zero-order hold as in Gu, Dao 2023, arXiv:2312.00752, equation 4

Part 1 (3 points)  Discretise by zero-order hold: discretize_zoh
Part 2 (3 points)  The recurrence: ssm_recurrent
Part 3 (4 points)  The kernel and the causal convolution: ssm_kernel, ssm_convolutional

Target: part 1 in 15 minutes, from memory.

    kit show ssm     the statement
    kit grade ssm    the verdict (--part 1 for one part)
    kit hint ssm     a nudge
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
    raise NotImplementedError("part 1: write discretize_zoh")


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
    raise NotImplementedError("part 2: write ssm_recurrent")


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
    raise NotImplementedError("part 3: write ssm_kernel")


def ssm_convolutional(x: Tensor, K: Tensor, D: float) -> Tensor:
    """Run the discrete system as one causal convolution.

    Args:
        x: (T,) input.
        K: (L,) kernel.  Taps past T are not used; missing ones are zero.
        D: skip coefficient.

    Returns:
        y: (T,) in x's dtype, equal to the recurrence whose kernel K is.
    """
    raise NotImplementedError("part 3: write ssm_convolutional")
