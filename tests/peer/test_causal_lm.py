"""`causal_lm` against the loss that transformers gives its decoders."""

import importlib.util
from pathlib import Path

import pytest
import torch

loss_utils = pytest.importorskip("transformers.loss.loss_utils")
pytestmark = pytest.mark.peer


def _solution():
    path = Path(__file__).parents[2] / "solutions" / "causal_lm.py"
    spec = importlib.util.spec_from_file_location("peer_causal_lm", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


causal_lm = _solution()


def _batch(rows, T, V=11):
    torch.manual_seed(rows * T)
    tokens = torch.randint(0, V, (rows, T))
    tokens[0, T // 2 :] = -100
    return torch.randn(rows, T, V), tokens


def test_loss_equals_transformers():
    logits, tokens = _batch(3, 9)
    expected = loss_utils.ForCausalLMLoss(logits, tokens, vocab_size=11)
    torch.testing.assert_close(causal_lm.causal_lm_loss(logits, tokens), expected)


def test_accumulation_equals_transformers_with_the_total_count():
    pieces = [_batch(2, 8), _batch(4, 5), _batch(1, 6)]
    count = sum(int((tokens[:, 1:] != -100).sum()) for _, tokens in pieces)
    expected = sum(
        loss_utils.ForCausalLMLoss(logits, tokens, vocab_size=11, num_items_in_batch=count) for logits, tokens in pieces
    )
    torch.testing.assert_close(causal_lm.accumulated_loss(pieces), expected)
