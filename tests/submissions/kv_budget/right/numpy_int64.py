"""Style: numpy int64 arithmetic, int() at the end."""

import math

import numpy as np


def _nonneg(names, values):
    values = np.asarray(values, dtype=np.int64)
    if (values < 0).any():
        raise ValueError("negative: " + ", ".join(f"{n}={v}" for n, v in zip(names, values.tolist()) if v < 0))
    return values


def mha_cache_bytes(n_layers, n_heads, d_head, n_tokens, dtype_bytes=2):
    values = _nonneg(["n_layers", "n_heads", "d_head", "n_tokens", "dtype_bytes"], [n_layers, n_heads, d_head, n_tokens, dtype_bytes])
    return int(2 * np.prod(values))


def gqa_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, dtype_bytes=2):
    values = _nonneg(["n_layers", "n_kv_heads", "d_head", "n_tokens", "dtype_bytes"], [n_layers, n_kv_heads, d_head, n_tokens, dtype_bytes])
    return int(2 * np.prod(values))


def mla_cache_bytes(n_layers, d_latent, d_rope, n_tokens, dtype_bytes=2):
    l, c, r, t, b = _nonneg(["n_layers", "d_latent", "d_rope", "n_tokens", "dtype_bytes"], [n_layers, d_latent, d_rope, n_tokens, dtype_bytes])
    return int(l * t * b * (c + r))


def window_cache_bytes(n_layers, n_kv_heads, d_head, window, n_tokens, dtype_bytes=2):
    l, h, d, w, t, b = _nonneg(list("lhdwtb"), [n_layers, n_kv_heads, d_head, window, n_tokens, dtype_bytes])
    return int(np.minimum(w, t) * l * h * d * b * 2)


def ssm_state_bytes(n_layers, d_model, d_state, dtype_bytes=2):
    return int(np.prod(_nonneg(list("lmsb"), [n_layers, d_model, d_state, dtype_bytes])))


def max_batch(hbm_bytes, weight_bytes, cache_bytes_per_sequence):
    h, w, c = _nonneg(["hbm", "weights", "cache"], [hbm_bytes, weight_bytes, cache_bytes_per_sequence])
    return int(max(h - w, 0) // c)


def decode_tokens_per_second(weight_bytes, cache_bytes, bandwidth):
    if weight_bytes < 0 or cache_bytes < 0 or bandwidth < 0:
        raise ValueError(f"negative traffic: {weight_bytes}, {cache_bytes}, {bandwidth}")
    if weight_bytes + cache_bytes == 0:
        raise ValueError(f"no traffic: {weight_bytes} + {cache_bytes} bytes")
    return bandwidth / (weight_bytes + cache_bytes)


def crossover_tokens(d_model, d_state, n_kv_heads, d_head):
    m, s, h, d = _nonneg(list("mshd"), [d_model, d_state, n_kv_heads, d_head]).tolist()
    whole, rest = divmod(m * s, 2 * h * d)
    return whole + (rest > 0)
