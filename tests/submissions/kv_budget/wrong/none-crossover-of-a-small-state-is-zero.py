"""Wrong: a state smaller than half a cached token is reached at zero tokens."""

from __future__ import annotations


def _check(**kw):
    for k, v in kw.items():
        if v < 0:
            raise ValueError(f"{k} must not be negative, got {v}")


def mha_cache_bytes(n_layers, n_heads, d_head, n_tokens, dtype_bytes=2):
    _check(n_layers=n_layers, n_heads=n_heads, d_head=d_head, n_tokens=n_tokens, dtype_bytes=dtype_bytes)
    return 2 * n_layers * n_heads * d_head * n_tokens * dtype_bytes


def gqa_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, dtype_bytes=2):
    _check(n_layers=n_layers, n_kv_heads=n_kv_heads, d_head=d_head, n_tokens=n_tokens, dtype_bytes=dtype_bytes)
    return 2 * n_layers * n_kv_heads * d_head * n_tokens * dtype_bytes


def mla_cache_bytes(n_layers, d_latent, d_rope, n_tokens, dtype_bytes=2):
    _check(n_layers=n_layers, d_latent=d_latent, d_rope=d_rope, n_tokens=n_tokens, dtype_bytes=dtype_bytes)
    return n_layers * (d_latent + d_rope) * n_tokens * dtype_bytes


def window_cache_bytes(n_layers, n_kv_heads, d_head, window, n_tokens, dtype_bytes=2):
    _check(n_layers=n_layers, n_kv_heads=n_kv_heads, d_head=d_head, window=window, n_tokens=n_tokens, dtype_bytes=dtype_bytes)
    kept = min(window, n_tokens)
    return 2 * n_layers * n_kv_heads * d_head * kept * dtype_bytes


def ssm_state_bytes(n_layers, d_model, d_state, dtype_bytes=2):
    _check(n_layers=n_layers, d_model=d_model, d_state=d_state, dtype_bytes=dtype_bytes)
    return n_layers * d_model * d_state * dtype_bytes


def max_batch(hbm_bytes, weight_bytes, cache_bytes_per_sequence):
    _check(hbm_bytes=hbm_bytes, weight_bytes=weight_bytes, cache_bytes_per_sequence=cache_bytes_per_sequence)
    return max(0, hbm_bytes - weight_bytes) // cache_bytes_per_sequence


def decode_tokens_per_second(weight_bytes, cache_bytes, bandwidth):
    _check(weight_bytes=weight_bytes, cache_bytes=cache_bytes, bandwidth=bandwidth)
    return bandwidth / (weight_bytes + cache_bytes)


def crossover_tokens(d_model, d_state, n_kv_heads, d_head):
    _check(d_model=d_model, d_state=d_state, n_kv_heads=n_kv_heads, d_head=d_head)
    r = -(-d_model * d_state // (2 * n_kv_heads * d_head))
    return 0 if d_model * d_state < 2 * n_kv_heads * d_head and d_model * d_state * 2 < 2 * n_kv_heads * d_head else r
