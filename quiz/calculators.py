"""The formulas behind the numeric questions.

Each calculator takes plain numbers by name and returns ``(answer, steps)``: the number to enter, in the question's
unit, and the numbers in between that a worked answer shows.
"""

from __future__ import annotations

import math

Worked = tuple[float, dict[str, float]]

GIB = 2**30


def kv_bytes_per_layer(n_kv_heads: int, d_head: int, dtype_bytes: int) -> Worked:
    """Bytes of one token's keys and values in one layer."""
    numbers = 2 * n_kv_heads * d_head
    return numbers * dtype_bytes, {"numbers": numbers}


def kv_gib(n_layers: int, n_kv_heads: int, d_head: int, n_tokens: int, batch: int, dtype_bytes: int) -> Worked:
    """GiB of the key/value cache of a whole batch."""
    per_token = 2 * n_layers * n_kv_heads * d_head * dtype_bytes
    total = per_token * n_tokens * batch
    return total / GIB, {"per_token": per_token, "total": total}


def gqa_reduction(n_heads: int, n_kv_heads: int) -> Worked:
    """How many times smaller the cache is than with a key/value head per query head."""
    return n_heads / n_kv_heads, {}


def mla_reduction(n_heads: int, d_head: int, d_latent: int, d_rope: int) -> Worked:
    """How many times fewer numbers MLA caches than multi-head attention with the same heads."""
    plain, latent = 2 * n_heads * d_head, d_latent + d_rope
    return plain / latent, {"plain": plain, "latent": latent}


def mla_as_kv_heads(d_head: int, d_latent: int, d_rope: int) -> Worked:
    """The number of key/value heads whose grouped-query cache would be as large as MLA's."""
    return (d_latent + d_rope) / (2 * d_head), {"latent": d_latent + d_rope, "per_head": 2 * d_head}


def mla_gib(n_layers: int, d_latent: int, d_rope: int, n_tokens: int, batch: int, dtype_bytes: int) -> Worked:
    """GiB of the latent cache of a whole batch."""
    per_token = n_layers * (d_latent + d_rope) * dtype_bytes
    return per_token * n_tokens * batch / GIB, {"per_token": per_token}


def sequences_that_fit(
    parameters: int, n_layers: int, n_kv_heads: int, d_head: int, n_tokens: int, devices: int, hbm_gb: int
) -> Worked:
    """Whole sequences that fit beside bf16 weights, in memory of `devices` times `hbm_gb` GB (10^9 bytes)."""
    weights, memory = 2 * parameters, devices * hbm_gb * 10**9
    cache = 4 * n_layers * n_kv_heads * d_head * n_tokens
    fit = max(0, memory - weights) // cache
    return fit, {"weights_gb": weights / 1e9, "free_gb": (memory - weights) / 1e9, "cache_gb": cache / 1e9}


def decode_speed(
    parameters: int, n_layers: int, n_kv_heads: int, d_head: int, n_tokens: int, batch: int, bandwidth_tb: float
) -> Worked:
    """Tokens per second of each sequence, memory bound, in bf16; bandwidth in TB (10^12 bytes) per second."""
    weights = 2 * parameters
    cache = 4 * n_layers * n_kv_heads * d_head * n_tokens * batch
    speed = bandwidth_tb * 1e12 / (weights + cache)
    return speed, {"weights_gb": weights / 1e9, "cache_gb": cache / 1e9, "all_streams": speed * batch}


def tokens_until_cache_equals_weights(parameters: int, n_layers: int, n_kv_heads: int, d_head: int) -> Worked:
    """Cached tokens, over the whole batch, at which a bf16 cache is as large as bf16 weights."""
    per_token = 4 * n_layers * n_kv_heads * d_head
    return 2 * parameters / per_token, {"weights": 2 * parameters, "per_token": per_token}


def rolling_cache_mib(n_layers: int, n_kv_heads: int, d_head: int, window: int, n_tokens: int) -> Worked:
    """MiB of a bf16 cache when every layer keeps the last `window` tokens."""
    kept = min(window, n_tokens)
    per_token = 4 * n_layers * n_kv_heads * d_head
    return per_token * kept / 2**20, {"kept": kept, "per_token": per_token}


def receptive_field(n_layers: int, window: int) -> Worked:
    """Positions that information can travel through all layers of a windowed model."""
    return n_layers * window, {}


def alternating_cache_share(n_layers: int, window: int, n_tokens: int) -> Worked:
    """Cache of a model whose every other layer is windowed, in percent of one with all layers global."""
    local = n_layers // 2
    kept = local * min(window, n_tokens) + (n_layers - local) * n_tokens
    return 100 * kept / (n_layers * n_tokens), {"local": local, "kept": kept, "full": n_layers * n_tokens}


def mamba_crossover(d_inner: int, d_state: int, n_kv_heads: int, d_head: int) -> Worked:
    """Tokens at which a grouped-query cache is at least as large as a Mamba state, one layer, same dtype."""
    state, per_token = d_inner * d_state, 2 * n_kv_heads * d_head
    return -(-state // per_token), {"state": state, "per_token": per_token}


def training_compute(parameters: int, training_tokens: int) -> Worked:
    """Training FLOPs by 6 N D, in units of 10^21."""
    return 6 * parameters * training_tokens / 1e21, {}


def training_days(params_b: float, tokens_b: float, devices: int, peak_tflops: float, utilisation: float) -> Worked:
    """Days to train N billion parameters on D billion tokens at a share of the devices' peak."""
    flops = 6 * params_b * 1e9 * tokens_b * 1e9
    rate = devices * peak_tflops * 1e12 * utilisation / 100
    return flops / rate / 86400, {"flops": flops, "rate": rate, "seconds": flops / rate}


def tokens_per_parameter(parameters: int, training_tokens: int) -> Worked:
    """Training tokens for each parameter."""
    return training_tokens / parameters, {}


def chinchilla_parameters(compute_exponent: int, compute_factor: int, ratio: int) -> Worked:
    """Billions of parameters that spend a budget at a fixed ratio of tokens to parameters."""
    compute = compute_factor * 10.0**compute_exponent
    n = math.sqrt(compute / (6 * ratio))
    return n / 1e9, {"compute": compute, "tokens_b": ratio * n / 1e9}


def kaplan_growth(growth: int) -> Worked:
    """How many times larger the model gets by Kaplan's 0.73 when compute grows `growth` times."""
    return growth**0.73, {"tokens_growth": growth**0.27, "chinchilla": growth**0.5}


def chinchilla_loss(params_b: float, tokens_b: float) -> Worked:
    """Loss by the refit of Besiroglu et al. 2024: 1.8172 + 482.01 / N^0.3478 + 2085.43 / D^0.3658."""
    size = 482.01 / (params_b * 1e9) ** 0.3478
    data = 2085.43 / (tokens_b * 1e9) ** 0.3658
    return 1.8172 + size + data, {"size": size, "data": data}


def moe_expert_parameters(n_layers: int, d_model: int, d_ff: int, n_experts: int) -> Worked:
    """Billions of parameters in all experts, SwiGLU, every layer."""
    one = 3 * d_model * d_ff
    return n_layers * n_experts * one / 1e9, {"one_m": one / 1e6}


def moe_active_share(parameters: int, active: int) -> Worked:
    """Percent of the parameters that one token uses."""
    return 100 * active / parameters, {}


def expert_capacity(batch_tokens: int, n_experts: int, k: int, capacity_factor: float) -> Worked:
    """Tokens one expert accepts: ceil(c N k / E)."""
    balanced = batch_tokens * k / n_experts
    return math.ceil(round(capacity_factor * balanced, 6)), {"balanced": balanced}


def collapsed_balance_loss(n_experts: int, probability: float) -> Worked:
    """E sum f P when every token (k = 1) goes to one expert that has this mean probability."""
    return n_experts * probability, {}


def experts_touched(n_experts: int, k: int, batch: int) -> Worked:
    """Expected number of a layer's experts that a decode step of `batch` tokens reads, under uniform routing."""
    missed = (1 - k / n_experts) ** batch
    return n_experts * (1 - missed), {"missed": missed}


def attention_share(n_layers: int, d_model: int, parameters: int, n_tokens: int) -> Worked:
    """Percent of a decode step's FLOPs in QK^T and PV (4 L T d) beside the weights' 2 N."""
    attention, weights = 4 * n_layers * n_tokens * d_model, 2 * parameters
    return 100 * attention / (attention + weights), {"attention": attention, "weights": weights}


def compute_bound_batch(peak_tflops: float, bandwidth_tb: float) -> Worked:
    """Batch at which a decode step's bf16 weight products are as slow as reading the weights."""
    return peak_tflops / bandwidth_tb, {"intensity": peak_tflops / bandwidth_tb}


def swiglu_parameters(d_model: int, d_ff: int) -> Worked:
    """Millions of parameters of one SwiGLU feed-forward, three matrices."""
    return 3 * d_model * d_ff / 1e6, {}


def attention_parameters(d_model: int, n_heads: int, n_kv_heads: int, d_head: int) -> Worked:
    """Millions of parameters of one attention layer: q, k, v and o without bias."""
    queries, keys = 2 * d_model * n_heads * d_head, 2 * d_model * n_kv_heads * d_head
    return (queries + keys) / 1e6, {"queries_m": queries / 1e6, "keys_m": keys / 1e6}


def embedding_share(vocab: int, d_model: int, parameters: int) -> Worked:
    """Percent of the parameters in one embedding table."""
    table = vocab * d_model
    return 100 * table / parameters, {"table_m": table / 1e6}


def adam_gb(params_b: float, devices: int) -> Worked:
    """GB per device of mixed-precision Adam fully sharded: 2 weights + 2 gradients + 12 master weight and moments."""
    return 16 * params_b / devices, {"total": 16 * params_b}


def quantised_gb(parameters: int, bits: int) -> Worked:
    """GB (10^9 bytes) of weights at so many bits each."""
    return parameters * bits / 8 / 1e9, {"bf16_gb": 2 * parameters / 1e9}


def span_targets(length: int, density: float, mean_span: float) -> Worked:
    """Tokens in T5's targets without end of sequence: the noise and a sentinel for each span, one more to close."""
    noise = min(max(round(length * density), 1), length - 1)
    spans = max(1, round(noise / mean_span))
    return noise + spans + 1, {"noise": noise, "spans": spans, "inputs": length - noise + spans}


def t5_bucket(offset: int) -> Worked:
    """T5's encoder bucket of key minus query: 32 buckets, max distance 128."""
    starts = (*range(8), 8, 12, 16, 23, 32, 46, 64, 91)
    inside = sum(abs(offset) >= start for start in starts) - 1
    return inside + (16 if offset > 0 else 0), {"inside": inside, "half": 16 if offset > 0 else 0}
