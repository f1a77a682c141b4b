"""Right: decorator checks, math.prod"""

import functools
import inspect
import math


def counts(f):
    signature = inspect.signature(f)

    @functools.wraps(f)
    def checked(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if value < 0:
                raise ValueError(f"{f.__name__}: {name} is {value}")
        return f(*args, **kwargs)

    return checked


@counts
def mha_cache_bytes(n_layers, n_heads, d_head, n_tokens, dtype_bytes=2):
    return math.prod((2, n_layers, n_heads, d_head, n_tokens, dtype_bytes))


@counts
def gqa_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, dtype_bytes=2):
    return math.prod((2, n_layers, n_kv_heads, d_head, n_tokens, dtype_bytes))


@counts
def mla_cache_bytes(n_layers, d_latent, d_rope, n_tokens, dtype_bytes=2):
    return math.prod((n_layers, d_latent + d_rope, n_tokens, dtype_bytes))


@counts
def window_cache_bytes(n_layers, n_kv_heads, d_head, window, n_tokens, dtype_bytes=2):
    return gqa_cache_bytes(n_layers, n_kv_heads, d_head, min(window, n_tokens), dtype_bytes)


@counts
def ssm_state_bytes(n_layers, d_model, d_state, dtype_bytes=2):
    return math.prod((n_layers, d_model, d_state, dtype_bytes))


@counts
def max_batch(hbm_bytes, weight_bytes, cache_bytes_per_sequence):
    return max(0, (hbm_bytes - weight_bytes) // cache_bytes_per_sequence)


@counts
def decode_tokens_per_second(weight_bytes, cache_bytes, bandwidth):
    return float(bandwidth) / (weight_bytes + cache_bytes)


@counts
def crossover_tokens(d_model, d_state, n_kv_heads, d_head):
    return -(-d_model * d_state // (2 * n_kv_heads * d_head))
