"""`dense_block` against torch's RMSNorm and a whole Hugging Face Llama layer with the same weights."""

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def solution():
    path = Path(__file__).resolve().parents[2] / "solutions" / "dense_block.py"
    spec = importlib.util.spec_from_file_location("peer_dense_block", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_norm_equals_torchs(solution):
    norm = solution.RMSNorm(12, eps=1e-3)
    with torch.no_grad():
        norm.weight.copy_(torch.randn(12))
    x = torch.randn(2, 5, 12)
    expected = torch.nn.functional.rms_norm(x, (12,), norm.weight, 1e-3)
    torch.testing.assert_close(norm(x), expected)


@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(4, 4), (4, 2), (4, 1)])
def test_block_equals_a_llama_layer(solution, n_heads, n_kv_heads):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    d_model, d_ff, T = 32, 40, 7
    config = llama.LlamaConfig(
        hidden_size=d_model,
        intermediate_size=d_ff,
        num_attention_heads=n_heads,
        num_key_value_heads=n_kv_heads,
        rms_norm_eps=1e-6,
        attn_implementation="eager",
    )
    layer, block = (
        llama.LlamaDecoderLayer(config, layer_idx=0),
        solution.TransformerBlock(d_model, n_heads, n_kv_heads, d_ff),
    )
    names = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "ffn.w_gate": "mlp.gate_proj",
        "ffn.w_up": "mlp.up_proj",
        "ffn.w_down": "mlp.down_proj",
        **{f"attn.{name}": f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj")},
    }
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) / 6 + (1.0 if parameter.dim() == 1 else 0.0))
    theirs = layer.state_dict()
    block.load_state_dict({f"{mine}.weight": theirs[f"{other}.weight"] for mine, other in names.items()})
    x, positions = torch.randn(2, T, d_model), torch.arange(T)[None]
    tables = llama.LlamaRotaryEmbedding(config)(x, positions)
    mask = torch.full((T, T), torch.finfo(torch.float32).min).triu(1)[None, None]
    answer = layer(x, attention_mask=mask, position_ids=positions, position_embeddings=tables)
    expected = answer[0] if isinstance(answer, tuple) else answer
    torch.testing.assert_close(block(x), expected, rtol=1e-4, atol=1e-5)
