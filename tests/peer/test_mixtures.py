"""The mixture-of-experts solutions against Mixtral and DeepSeek-V3 of Hugging Face's transformers."""

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
mixtral = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")
deepseek = pytest.importorskip("transformers.models.deepseek_v3.modeling_deepseek_v3")

pytestmark = pytest.mark.peer


def solution(slug):
    path = Path(__file__).resolve().parents[2] / "solutions" / f"{slug}.py"
    spec = importlib.util.spec_from_file_location(f"peer_{slug}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mixtral_config(**sizes):
    return mixtral.MixtralConfig(**{"router_jitter_noise": 0.0, "attn_implementation": "eager", **sizes})


def test_router_equals_mixtrals():
    torch.manual_seed(0)
    config = mixtral_config(hidden_size=12, intermediate_size=20, num_local_experts=6, num_experts_per_tok=2)
    theirs, ours = mixtral.MixtralTopKRouter(config), solution("moe").TopKRouter(12, 6, 2)
    with torch.no_grad():
        theirs.weight.copy_(ours.gate.weight)
    x = torch.randn(30, 12)
    logits, scores, chosen = theirs(x)
    weights, indices, probs = ours(x)
    assert torch.equal(indices, chosen)
    torch.testing.assert_close(weights, scores)
    torch.testing.assert_close(probs, logits.softmax(-1))


def test_token_fraction_loss_equals_mixtrals_and_is_k_times_the_slot_form():
    torch.manual_seed(1)
    logits, module = torch.randn(40, 8), solution("balance_loss")
    theirs = mixtral.load_balancing_loss_func((logits,), num_experts=8, top_k=2)
    torch.testing.assert_close(module.token_fraction_loss(logits, 2, coef=1.0), theirs)
    slots = module.load_balancing_loss(logits.softmax(-1), logits.topk(2).indices)
    torch.testing.assert_close(2 * slots, theirs)


def test_masked_loss_equals_mixtrals_with_an_attention_mask():
    torch.manual_seed(2)
    B, T, E, k = 3, 7, 6, 2
    logits, mask = torch.randn(B * T, E), torch.ones(B, T)
    mask[0, 4:], mask[2, 2:] = 0, 0
    theirs = mixtral.load_balancing_loss_func((logits,), num_experts=E, top_k=k, attention_mask=mask)
    module = solution("balance_loss")
    ours = module.masked_load_balancing_loss(logits.softmax(-1), logits.topk(k).indices, mask.flatten().bool())
    torch.testing.assert_close(k * ours, theirs)


def test_deepseek_moe_without_shared_experts_equals_mixtrals_block():
    torch.manual_seed(3)
    config = mixtral_config(hidden_size=12, intermediate_size=20, num_local_experts=6, num_experts_per_tok=2)
    config._experts_implementation = "eager"
    theirs, ours = mixtral.MixtralSparseMoeBlock(config), solution("deepseek_moe").DeepSeekMoE(12, 20, 6, 2, n_shared=0)
    with torch.no_grad():
        theirs.gate.weight.copy_(ours.gate.weight)
        for e, expert in enumerate(ours.experts):
            theirs.experts.gate_up_proj[e].copy_(torch.cat([expert.w_gate.weight, expert.w_up.weight]))
            theirs.experts.down_proj[e].copy_(expert.w_down.weight)
    x = torch.randn(2, 9, 12)
    torch.testing.assert_close(ours(x)[0], theirs(x), atol=1e-5, rtol=1e-4)


def deepseek_router(n_experts, k, n_groups, top_groups):
    config = deepseek.DeepseekV3Config(
        hidden_size=12,
        n_routed_experts=n_experts,
        num_experts_per_tok=k,
        n_group=n_groups,
        topk_group=top_groups,
        norm_topk_prob=True,
        routed_scaling_factor=1.0,
        num_local_experts=n_experts,
    )
    router = deepseek.DeepseekV3TopkRouter(config)
    with torch.no_grad():
        router.weight.copy_(torch.randn(n_experts, 12))
        router.e_score_correction_bias.zero_()
    return router


def dense(weights, indices, n_experts):
    return torch.zeros(len(weights), n_experts).scatter(1, indices, weights)


def test_group_limited_choice_equals_deepseek_v3s():
    torch.manual_seed(4)
    router, x = deepseek_router(16, 4, 4, 2), torch.randn(50, 12)
    logits, their_weights, their_indices = router(x)
    weights, indices = solution("deepseek_moe").group_limited_topk(logits.float().sigmoid(), 4, 4, 2)
    torch.testing.assert_close(dense(weights, indices, 16), dense(their_weights, their_indices, 16))


def test_biased_selection_equals_deepseek_v3s_in_one_group():
    torch.manual_seed(5)
    router, x = deepseek_router(8, 3, 1, 1), torch.randn(50, 12)
    ours = solution("aux_free").BiasBalancedRouter(12, 8, 3)
    bias = 0.3 * torch.randn(8).abs()
    with torch.no_grad():
        ours.gate.weight.copy_(router.weight)
        ours.bias.copy_(bias)
        router.e_score_correction_bias.copy_(bias)
    _, their_weights, their_indices = router(x)
    weights, indices, _ = ours(x)
    torch.testing.assert_close(dense(weights, indices, 8), dense(their_weights, their_indices, 8))
