"""`sliding_window` against torch's own attention and FlexAttention's mask builder."""

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def solution():
    path = Path(__file__).resolve().parents[2] / "solutions" / "sliding_window.py"
    spec = importlib.util.spec_from_file_location("peer_sliding_window", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("T", "window", "n_sink"), [(7, 3, 0), (12, 4, 2), (5, 9, 1)])
def test_masks_equal_flex_attentions(solution, T, window, n_sink):
    flex = pytest.importorskip("torch.nn.attention.flex_attention")

    def rule(batch, head, query, key):
        return (query >= key) & ((query - key < window) | (key < n_sink))

    expected = flex.create_mask(rule, 1, 1, T, T, device="cpu")[0, 0]
    assert torch.equal(solution.attention_sink_mask(T, window, n_sink), expected)


def test_masked_attention_equals_torchs(solution):
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, 3, 6, 8, generator=generator) for _ in range(3))
    mask = torch.rand(6, 6, generator=generator) < 0.5
    mask[2] = False  # torch gives zeros for a fully masked row too (since 2.5)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(solution.masked_attention(q, k, v, mask), expected)
