"""A window of no tokens is refused, too."""

from __future__ import annotations


def _ok(**sizes):
    for name, value in sizes.items():
        if value < 0:
            raise ValueError(f"{name} is {value}")


def mha_cache_bytes(n_layers, n_heads, d_head, n_tokens, dtype_bytes=2) -> int:
    return gqa_cache_bytes(n_layers, n_heads, d_head, n_tokens, dtype_bytes)


def gqa_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, dtype_bytes=2) -> int:
    _ok(n_layers=n_layers, n_kv_heads=n_kv_heads, d_head=d_head, n_tokens=n_tokens, dtype_bytes=dtype_bytes)
    return 2 * n_layers * n_kv_heads * d_head * n_tokens * dtype_bytes


def mla_cache_bytes(n_layers, d_latent, d_rope, n_tokens, dtype_bytes=2) -> int:
    _ok(n_layers=n_layers, d_latent=d_latent, d_rope=d_rope, n_tokens=n_tokens, dtype_bytes=dtype_bytes)
    return n_layers * (d_latent + d_rope) * n_tokens * dtype_bytes


def window_cache_bytes(n_layers, n_kv_heads, d_head, window, n_tokens, dtype_bytes=2) -> int:
    _ok(window=window - 1, n_tokens=n_tokens)
    return gqa_cache_bytes(n_layers, n_kv_heads, d_head, min(window, n_tokens), dtype_bytes)


def ssm_state_bytes(n_layers, d_model, d_state, dtype_bytes=2) -> int:
    _ok(n_layers=n_layers, d_model=d_model, d_state=d_state, dtype_bytes=dtype_bytes)
    return n_layers * d_model * d_state * dtype_bytes


def max_batch(hbm_bytes, weight_bytes, cache_bytes_per_sequence) -> int:
    _ok(hbm_bytes=hbm_bytes, weight_bytes=weight_bytes, cache_bytes_per_sequence=cache_bytes_per_sequence)
    return max(0, hbm_bytes - weight_bytes) // cache_bytes_per_sequence


def decode_tokens_per_second(weight_bytes, cache_bytes, bandwidth) -> float:
    _ok(weight_bytes=weight_bytes, cache_bytes=cache_bytes, bandwidth=bandwidth)
    return bandwidth / (weight_bytes + cache_bytes)


def crossover_tokens(d_model, d_state, n_kv_heads, d_head) -> int:
    _ok(d_model=d_model, d_state=d_state, n_kv_heads=n_kv_heads, d_head=d_head)
    q, r = divmod(d_model * d_state, 2 * n_kv_heads * d_head)
    return q + (r > 0)
