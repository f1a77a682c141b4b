"""Mamba's selective scan: loop, constant-memory step, chunks

Gu, Dao 2023, Mamba: Linear-Time Sequence Modeling with Selective State Spaces, arXiv:2312.00752, section 3 and
algorithm 2

Part 1 (3 points)  The scan: selective_scan
Part 2 (3 points)  The module, and a step of constant memory: SelectiveSSM
Part 3 (4 points)  The chunked scan: chunked_selective_scan

Target: part 1 in 10 minutes, from memory.

    kit show selective_scan     the statement
    kit grade selective_scan    the verdict (--part 1 for one part)
    kit hint selective_scan     a nudge
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def selective_scan(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """Run Mamba's recurrence over time, from a zero state.

    Args:
        x: (batch, T, d) input.
        delta: (batch, T, d) step sizes, positive.
        A: (d, N) diagonal state matrix of each channel, negative.
        B: (batch, T, N) input vectors.
        C: (batch, T, N) output vectors.
        D: (d,) skip coefficients.

    Returns:
        y: (batch, T, d) in x's dtype.
    """
    raise NotImplementedError("part 1: write selective_scan")


class SelectiveSSM(nn.Module):
    """A selective state-space layer without gating or local convolution.

    Parameters by name: A_log (d_model, d_state), row by row log(1), log(2), ..., log(d_state); D (d_model,), ones;
    to_delta nn.Linear(d_model, d_model) with bias; to_B and to_C nn.Linear(d_model, d_state) without bias.

    Args:
        d_model: number of channels d.
        d_state: number of states N of each channel.
    """

    def __init__(self, d_model: int, d_state: int) -> None:
        raise NotImplementedError("part 2: write SelectiveSSM.__init__")

    def forward(self, x: Tensor) -> Tensor:
        """Map a whole sequence, from a zero state.

        Args:
            x: (batch, T, d_model).

        Returns:
            (batch, T, d_model): selective_scan with delta = softplus(to_delta(x)), A = -exp(A_log), B = to_B(x),
            C = to_C(x) and the skip D.
        """
        raise NotImplementedError("part 2: write SelectiveSSM.forward")

    def step(self, x_t: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """Map one token, with the state carried by the caller.

        Args:
            x_t: (batch, d_model) one token.
            h: (batch, d_model, d_state) state after the token before; zeros before the first.

        Returns:
            y_t (batch, d_model), equal to that token's output of `forward`, and the next state, of h's shape.
        """
        raise NotImplementedError("part 2: write SelectiveSSM.step")


def chunked_selective_scan(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, chunk: int) -> Tensor:
    """The same answer as `selective_scan`, from fewer than T tensor operations.

    Args:
        x: (batch, T, d) input.
        delta: (batch, T, d) step sizes, positive.
        A: (d, N) diagonal state matrix of each channel, negative.
        B: (batch, T, N) input vectors.
        C: (batch, T, N) output vectors.
        D: (d,) skip coefficients.
        chunk: number of steps of a chunk; it need not divide T and may exceed it.

    Returns:
        y: (batch, T, d) in x's dtype.

    Raises:
        ValueError: chunk is less than 1.
    """
    raise NotImplementedError("part 3: write chunked_selective_scan")
