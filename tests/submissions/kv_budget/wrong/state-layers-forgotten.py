"""Wrong: one layer's state."""

import inspect
from functools import wraps


def sizes_checked(function):
    @wraps(function)
    def inner(*args, **kwargs):
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if value < 0:
                raise ValueError(f"{function.__name__}: {name} = {value}")
        return function(**bound.arguments)

    return inner


@sizes_checked
def mha_cache_bytes(n_layers, n_heads, d_head, n_tokens, dtype_bytes=2):
    key = value = n_heads * d_head * dtype_bytes
    return sum((key + value) * n_tokens for _ in range(n_layers))


@sizes_checked
def gqa_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, dtype_bytes=2):
    key = value = n_kv_heads * d_head * dtype_bytes
    return sum((key + value) * n_tokens for _ in range(n_layers))


@sizes_checked
def mla_cache_bytes(n_layers, d_latent, d_rope, n_tokens, dtype_bytes=2):
    return sum((d_latent * dtype_bytes + d_rope * dtype_bytes) * n_tokens for _ in range(n_layers))


@sizes_checked
def window_cache_bytes(n_layers, n_kv_heads, d_head, window, n_tokens, dtype_bytes=2):
    kept = n_tokens
    if kept > window:
        kept = window
    return gqa_cache_bytes(n_layers, n_kv_heads, d_head, kept, dtype_bytes)


@sizes_checked
def ssm_state_bytes(n_layers, d_model, d_state, dtype_bytes=2):
    return d_state * dtype_bytes * d_model


@sizes_checked
def max_batch(hbm_bytes, weight_bytes, cache_bytes_per_sequence):
    if weight_bytes + cache_bytes_per_sequence > hbm_bytes:
        return 0
    low, high = 1, 2
    while weight_bytes + high * cache_bytes_per_sequence <= hbm_bytes:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if weight_bytes + middle * cache_bytes_per_sequence <= hbm_bytes:
            low = middle
        else:
            high = middle
    return low


@sizes_checked
def decode_tokens_per_second(weight_bytes, cache_bytes, bandwidth):
    if sum((weight_bytes, cache_bytes)) == 0:
        raise ValueError(f"nothing to read: {weight_bytes}, {cache_bytes}")
    return (1 + 0.0) * bandwidth / sum((weight_bytes, cache_bytes))


@sizes_checked
def crossover_tokens(d_model, d_state, n_kv_heads, d_head):
    state = ssm_state_bytes(1, d_model, d_state)
    low, high = -1, 1
    while gqa_cache_bytes(1, n_kv_heads, d_head, high) < state:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if middle >= 0 and gqa_cache_bytes(1, n_kv_heads, d_head, middle) >= state:
            high = middle
        else:
            low = middle
    return high
