"""`ssm` against scipy: zero-order hold, the discrete system, the convolution."""

import importlib.util
from pathlib import Path

import pytest
import torch

signal = pytest.importorskip("scipy.signal")
pytestmark = pytest.mark.peer


def _solution():
    path = Path(__file__).parents[2] / "solutions" / "ssm.py"
    spec = importlib.util.spec_from_file_location("peer_ssm", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ssm = _solution()


def _system(n_states=5, zero_mode=False):
    torch.manual_seed(n_states + zero_mode)
    A = -torch.rand(n_states, dtype=torch.float64) * 2 - 0.1
    if zero_mode:
        A[1] = 0.0
    return A, torch.randn(n_states, dtype=torch.float64), torch.randn(n_states, dtype=torch.float64)


@pytest.mark.parametrize("zero_mode", [False, True])
def test_zero_order_hold_equals_cont2discrete(zero_mode):
    A, B, C = _system(zero_mode=zero_mode)
    A_bar, B_bar = ssm.discretize_zoh(A, B, 0.37)
    dense = (torch.diag(A).numpy(), B[:, None].numpy(), C[None].numpy(), torch.zeros(1, 1).numpy())
    found = signal.cont2discrete(dense, 0.37, method="zoh")
    torch.testing.assert_close(torch.diag(A_bar), torch.from_numpy(found[0]), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(B_bar[:, None], torch.from_numpy(found[1]), atol=1e-12, rtol=1e-12)


def test_recurrence_and_convolution_equal_scipy():
    A, B, C = _system()
    A_bar, B_bar = ssm.discretize_zoh(A, B, 0.2)
    x = torch.randn(50, dtype=torch.float64)
    # One first-order filter a state: C_n B_n / (1 - Ā_n z^-1).
    expected = sum(
        torch.from_numpy(signal.lfilter([float(c * b)], [1.0, -float(a)], x.numpy()))
        for a, b, c in zip(A_bar, B_bar, C, strict=True)
    )
    expected = expected + 0.7 * x
    torch.testing.assert_close(ssm.ssm_recurrent(x, A_bar, B_bar, C, 0.7), expected)
    K = ssm.ssm_kernel(A_bar, B_bar, C, 50)
    torch.testing.assert_close(ssm.ssm_convolutional(x, K, 0.7), expected)
    by_scipy = torch.from_numpy(signal.fftconvolve(x.numpy(), K.numpy()))[:50] + 0.7 * x
    torch.testing.assert_close(ssm.ssm_convolutional(x, K, 0.7), by_scipy)
