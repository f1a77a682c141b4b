"""`rope` against Hugging Face's Llama: the angles, the rotation, and the conversion its checkpoints went through."""

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
llama = pytest.importorskip("transformers.models.llama.modeling_llama")

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def solution():
    path = Path(__file__).resolve().parents[2] / "solutions" / "rope.py"
    spec = importlib.util.spec_from_file_location("peer_rope", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tables(positions, d_head, base):
    config = llama.LlamaConfig(
        hidden_size=4 * d_head,
        num_attention_heads=4,
        head_dim=d_head,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )
    return llama.LlamaRotaryEmbedding(config)(torch.zeros(1, len(positions), d_head), positions[None])


@pytest.mark.parametrize("base", [10000.0, 500000.0])
def test_rotation_equals_llamas(solution, base):
    positions = torch.tensor([0, 1, 5, 40, 41])
    q, k = torch.randn(2, 4, 5, 16), torch.randn(2, 2, 5, 16)
    cos, sin = tables(positions, 16, base)
    expected_q, expected_k = llama.apply_rotary_pos_emb(q, k, cos, sin)
    torch.testing.assert_close(solution.apply_rope(q, positions, base), expected_q, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(solution.apply_rope(k, positions, base), expected_k, rtol=1e-4, atol=1e-5)


def test_conversion_equals_that_of_the_llama_checkpoints(solution):
    n_heads, d_head, d_model = 3, 8, 10
    weight = torch.randn(n_heads * d_head, d_model)
    # transformers' convert_llama_weights_to_hf.py: permute()
    expected = weight.view(n_heads, d_head // 2, 2, d_model).transpose(1, 2).reshape(n_heads * d_head, d_model)
    assert torch.equal(solution.interleaved_to_half_split(weight, n_heads), expected)
