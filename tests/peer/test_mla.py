"""`mla` against Hugging Face's DeepSeek-V2 attention, with the norm on the latent taken out and its layout converted.

DeepSeek's rotary layout is interleaved and its up-projection holds keys and values of a head side by side, so rows are
moved before the weights are shared; both are conversions of names and places, not of numbers.
"""

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
deepseek = pytest.importorskip("transformers.models.deepseek_v2.modeling_deepseek_v2")

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def solution():
    path = Path(__file__).resolve().parents[2] / "solutions" / "mla.py"
    spec = importlib.util.spec_from_file_location("peer_mla", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_forward_and_decode_equal_deepseek_v2(solution):
    d_model, n_heads, d_head, d_latent, d_rope, T = 24, 3, 6, 10, 4, 7
    config = deepseek.DeepseekV2Config(
        hidden_size=d_model,
        num_attention_heads=n_heads,
        num_key_value_heads=n_heads,
        q_lora_rank=None,
        kv_lora_rank=d_latent,
        qk_nope_head_dim=d_head,
        qk_rope_head_dim=d_rope,
        v_head_dim=d_head,
        attention_bias=False,
        attn_implementation="eager",
    )
    theirs = deepseek.DeepseekV2Attention(config, layer_idx=0).eval()
    theirs.kv_a_layernorm = torch.nn.Identity()
    mine = solution.MultiHeadLatentAttention(d_model, n_heads, d_head, d_latent, d_rope)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn_like(parameter) / 3)
    weights = {name: tensor.detach() for name, tensor in theirs.named_parameters()}
    to_halves = torch.arange(d_rope).view(d_rope // 2, 2).T.reshape(-1)
    q = weights["q_proj.weight"].view(n_heads, d_head + d_rope, d_model)
    q = torch.cat((q[:, :d_head], q[:, d_head:][:, to_halves]), dim=1).reshape(-1, d_model)
    down = weights["kv_a_proj_with_mqa.weight"]
    up = weights["kv_b_proj.weight"].view(n_heads, 2 * d_head, d_latent)
    mine.load_state_dict(
        {
            "q_proj.weight": q,
            "kv_down.weight": down[:d_latent],
            "k_rope.weight": down[d_latent:][to_halves],
            "k_up.weight": up[:, :d_head].reshape(-1, d_latent),
            "v_up.weight": up[:, d_head:].reshape(-1, d_latent),
            "o_proj.weight": weights["o_proj.weight"],
        }
    )
    x, positions = torch.randn(2, T, d_model), torch.arange(T)[None]
    phases = deepseek.DeepseekV2RotaryEmbedding(config)(x, positions)
    mask = torch.full((T, T), torch.finfo(torch.float32).min).triu(1)[None, None]
    with torch.no_grad():
        expected = theirs(x, attention_mask=mask, position_ids=positions, position_embeddings=phases)[0]
        whole, _ = mine(x)
        _, cache = mine(x[:, :-1], use_cache=True)
        last, _ = mine.decode(x[:, -1:], cache)
    torch.testing.assert_close(whole, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(last, expected[:, -1:], rtol=1e-4, atol=1e-5)
