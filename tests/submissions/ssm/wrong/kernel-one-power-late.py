"""The first tap has already decayed."""

import torch


def discretize_zoh(A, B, delta):
    augmented = torch.zeros(A.shape[0], 2, 2, dtype=A.dtype, device=A.device)
    blocks = torch.stack([A, B], dim=-1).unsqueeze(1)
    augmented = torch.cat([blocks, torch.zeros_like(blocks)], dim=1) * delta + 0 * augmented
    exponential = torch.linalg.matrix_exp(augmented)
    return exponential[:, 0, 0], exponential[:, 0, 1]


def _impulse_response(A_bar, B_bar, C, count):
    response, carried = [], B_bar
    for _ in range(count):
        carried = carried * A_bar
        response.append((C * carried).sum())
    return torch.stack(response) if response else A_bar[:0]


def ssm_recurrent(x, A_bar, B_bar, C, D):
    states = []
    for value in x.unbind():
        fresh = B_bar * value
        states.append(fresh if not states else torch.addcmul(fresh, A_bar, states[-1]))
    return torch.stack(states) @ C + D * x


def ssm_kernel(A_bar, B_bar, C, L):
    if L < 0:
        raise ValueError(f"negative number of taps: {L}")
    return _impulse_response(A_bar, B_bar, C, L)


def ssm_convolutional(x, K, D):
    y = D * x
    for lag in range(min(len(K), len(x))):
        delayed = torch.cat([x.new_zeros(lag), x[: len(x) - lag]])
        y = y + K[lag] * delayed
    return y
