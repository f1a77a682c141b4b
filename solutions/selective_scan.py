"""Mamba's selective scan: loop, module with a constant-memory step, and chunked scan (Gu, Dao 2023, section 3).

    Δ_t = softplus(W_Δ x_t + b_Δ)      B_t = W_B x_t      C_t = W_C x_t      A = -exp(A_log)
    Ā_t = exp(Δ_t A)                   B̄_t = Δ_t B_t       (Euler for B: Mamba's code, not the paper's equation 4)
    h_t = Ā_t ⊙ h_{t-1} + B̄_t x_t      y_t = ⟨C_t, h_t⟩ + D ⊙ x_t               h_{-1} = 0

Symbols: Bsz batch, T time steps, d channels, N states a channel.  Every channel is a system of its own with its own
Δ_t and its own row of A; B_t and C_t are shared by the channels of a token.

Because Ā_t, B̄_t and C_t depend on the token there is no kernel to convolve with.  What is left is that a step is an
affine map h -> a h + b, and affine maps compose associatively:

    (a1, b1) then (a2, b2)  =  (a1 a2,  a2 b1 + b2)

so a prefix scan computes all states in O(log T) dependent rounds.  Decoding keeps d·N numbers a layer, whatever T.
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
    dtype = x.dtype
    x, delta, A, B, C, D = _at_least_float32(x, delta, A, B, C, D)
    h = x.new_zeros(x.shape[0], x.shape[2], A.shape[1])  # (Bsz, d, N)
    outputs = []
    for t in range(x.shape[1]):
        x_t, delta_t = x[:, t], delta[:, t]  # (Bsz, d)
        B_t, C_t = B[:, t], C[:, t]  # (Bsz, N)
        A_bar = torch.exp(delta_t[:, :, None] * A)  # (Bsz, d, N)
        B_bar = delta_t[:, :, None] * B_t[:, None, :]  # (Bsz, d, N)
        h = A_bar * h + B_bar * x_t[:, :, None]  # (Bsz, d, N)
        y_t = (h * C_t[:, None, :]).sum(-1)  # (Bsz, d)
        y_t = y_t + D * x_t
        outputs.append(y_t)
    y = torch.stack(outputs, dim=1) if outputs else torch.zeros_like(x)  # (Bsz, T, d)
    return y.to(dtype)


class SelectiveSSM(nn.Module):
    """A selective state-space layer without gating or local convolution.

    Parameters by name: A_log (d_model, d_state), row by row log(1), log(2), ..., log(d_state); D (d_model,), ones;
    to_delta nn.Linear(d_model, d_model) with bias; to_B and to_C nn.Linear(d_model, d_state) without bias.

    Args:
        d_model: number of channels d.
        d_state: number of states N of each channel.
    """

    def __init__(self, d_model: int, d_state: int) -> None:
        super().__init__()
        # Each channel starts with the decay rates 1..N; in log space a gradient step cannot turn one positive.
        rates = torch.arange(1, d_state + 1, dtype=torch.float32)  # (N,)
        self.A_log = nn.Parameter(torch.log(rates).repeat(d_model, 1))  # (d, N)
        self.D = nn.Parameter(torch.ones(d_model))  # (d,)
        self.to_delta = nn.Linear(d_model, d_model)
        self.to_B = nn.Linear(d_model, d_state, bias=False)
        self.to_C = nn.Linear(d_model, d_state, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map a whole sequence, from a zero state.

        Args:
            x: (batch, T, d_model).

        Returns:
            (batch, T, d_model): selective_scan with delta = softplus(to_delta(x)), A = -exp(A_log), B = to_B(x),
            C = to_C(x) and the skip D.
        """
        delta = F.softplus(self.to_delta(x))  # (Bsz, T, d)
        A = -torch.exp(self.A_log)  # (d, N)
        write, read = self.to_B(x), self.to_C(x)  # (Bsz, T, N)
        return selective_scan(x, delta, A, write, read, self.D)

    def step(self, x_t: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """Map one token, with the state carried by the caller.

        Args:
            x_t: (batch, d_model) one token.
            h: (batch, d_model, d_state) state after the token before; zeros before the first.

        Returns:
            y_t (batch, d_model), equal to that token's output of `forward`, and the next state, of h's shape.
        """
        step_size = F.softplus(self.to_delta(x_t)).unsqueeze(-1)  # (Bsz, d, 1)
        rates = -torch.exp(self.A_log)  # (d, N)
        write, read = self.to_B(x_t).unsqueeze(1), self.to_C(x_t).unsqueeze(1)  # (Bsz, 1, N)
        kept = torch.exp(step_size * rates) * h  # (Bsz, d, N)
        added = step_size * write * x_t.unsqueeze(-1)  # (Bsz, d, N)
        h_next = kept + added
        y_t = (h_next * read).sum(-1)  # (Bsz, d)
        y_t = y_t + self.D * x_t
        return y_t.to(x_t.dtype), h_next


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
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    T, dtype = x.shape[1], x.dtype
    if T == 0:
        return torch.zeros_like(x)
    x, delta, A, B, C, D = _at_least_float32(x, delta, A, B, C, D)
    chunk = min(chunk, T)
    n_chunks = -(-T // chunk)
    # The last chunk is filled up with steps of size 0, which neither decay nor write.
    filler = n_chunks * chunk - T
    steps = F.pad(delta, (0, 0, 0, filler))  # (Bsz, n·c, d)
    writes = F.pad((delta * x)[..., None] * B[:, :, None, :], (0, 0, 0, 0, 0, filler))  # (Bsz, n·c, d, N)
    decays = torch.exp(steps[..., None] * A)  # (Bsz, n·c, d, N)
    decays = decays.unflatten(1, (n_chunks, chunk))  # (Bsz, n, c, d, N)
    writes = writes.unflatten(1, (n_chunks, chunk))  # (Bsz, n, c, d, N)

    # Inside all chunks at once: the product of decays since the chunk's start, and the state had it started at zero.
    since_start, local = _affine_scan(decays, writes)
    # A whole chunk is again one affine step, so the same scan over chunks gives the state after each of them.
    _, after = _affine_scan(since_start[:, :, -1], local[:, :, -1])  # (Bsz, n, d, N)
    before = F.pad(after[:, :-1], (0, 0, 0, 0, 1, 0))  # (Bsz, n, d, N): zero before the first
    states = local + since_start * before[:, :, None]  # (Bsz, n, c, d, N)

    states = states.flatten(1, 2)[:, :T]  # (Bsz, T, d, N)
    y = torch.einsum("btdn,btn->btd", states, C)
    y = y + D * x
    return y.to(dtype)


def _affine_scan(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Inclusive scan of the maps h -> a h + b over dimension -3, by doubling (Hillis, Steele 1986).

    No division by a product of decays: that product underflows after a few strong steps.
    """
    length = a.shape[-3]
    offset = 1
    while offset < length:
        # Each place absorbs the run of `offset` steps that ends just before its own; (1, 0) is the identity.
        a_before = F.pad(a[..., :-offset, :, :], (0, 0, 0, 0, offset, 0), value=1.0)
        b_before = F.pad(b[..., :-offset, :, :], (0, 0, 0, 0, offset, 0), value=0.0)
        b = a * b_before + b
        a = a * a_before
        offset *= 2
    return a, b


def _at_least_float32(*tensors: Tensor) -> list[Tensor]:
    """The tensors in float32 where they are narrower: a 16-bit state swallows small writes."""
    return [tensor.to(torch.promote_types(tensor.dtype, torch.float32)) for tensor in tensors]
