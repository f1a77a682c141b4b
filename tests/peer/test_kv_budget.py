"""`kv_budget` against the bytes that real transformers caches hold after a forward."""

import importlib.util
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def solution():
    path = Path(__file__).resolve().parents[2] / "solutions" / "kv_budget.py"
    spec = importlib.util.spec_from_file_location("peer_kv_budget", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("n_kv_heads", [6, 2, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_llama_cache_has_the_bytes_computed(solution, n_kv_heads, dtype):
    config = transformers.LlamaConfig(
        hidden_size=48,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=n_kv_heads,
        vocab_size=40,
    )
    model = transformers.LlamaForCausalLM(config).to(dtype).eval()
    with torch.no_grad():
        cache = model(torch.randint(0, 40, (1, 11)), use_cache=True).past_key_values
    held = sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values))
    assert held == solution.gqa_cache_bytes(3, n_kv_heads, 8, 11, dtype.itemsize)
    if n_kv_heads == 6:
        assert held == solution.mha_cache_bytes(3, 6, 8, 11, dtype.itemsize)
