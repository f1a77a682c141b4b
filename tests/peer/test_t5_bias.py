"""`t5_bias` against the buckets and the bias that transformers computes for T5."""

import importlib.util
from pathlib import Path

import pytest
import torch

modeling_t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def solution():
    path = Path(__file__).resolve().parents[2] / "solutions" / "t5_bias.py"
    spec = importlib.util.spec_from_file_location("peer_t5_bias", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (16, 100), (64, 200)])
def test_buckets_equal_transformers(solution, bidirectional, num_buckets, max_distance):
    offsets = torch.arange(-400, 401)
    theirs = modeling_t5.T5Attention._relative_position_bucket(offsets, bidirectional, num_buckets, max_distance)
    assert torch.equal(solution.relative_position_bucket(offsets, bidirectional, num_buckets, max_distance), theirs)


@pytest.mark.parametrize("is_decoder", [True, False])
def test_the_bias_equals_transformers(solution, is_decoder):
    config = transformers.T5Config(num_heads=3, d_model=12, d_kv=4, is_decoder=is_decoder)
    theirs = modeling_t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    mine = solution.RelativePositionBias(3, bidirectional=not is_decoder)
    mine.embedding.weight.data.copy_(theirs.relative_attention_bias.weight.data)
    torch.testing.assert_close(mine(21, 21), theirs.compute_bias(21, 21))
