"""Style: one private function that multiplies everything, all checks in one place."""


def _size(*factors):
    total = 1
    for factor in factors:
        if factor < 0:
            raise ValueError(f"negative size {factor} in {factors}")
        total *= factor
    return total


def mha_cache_bytes(n_layers, n_heads, d_head, n_tokens, dtype_bytes=2):
    return _size(2, n_layers, n_heads, d_head, n_tokens, dtype_bytes)


def gqa_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, dtype_bytes=2):
    return mha_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, dtype_bytes)


def mla_cache_bytes(n_layers, d_latent, d_rope, n_tokens, dtype_bytes=2):
    return _size(n_layers, d_latent, n_tokens, dtype_bytes) + _size(n_layers, d_rope, n_tokens, dtype_bytes)


def window_cache_bytes(n_layers, n_kv_heads, d_head, window, n_tokens, dtype_bytes=2):
    _size(window, n_tokens)
    return _size(2, n_layers, n_kv_heads, d_head, window if window < n_tokens else n_tokens, dtype_bytes)


def ssm_state_bytes(n_layers, d_model, d_state, dtype_bytes=2):
    return _size(n_layers, d_model, d_state, dtype_bytes)


def max_batch(hbm_bytes, weight_bytes, cache_bytes_per_sequence):
    _size(hbm_bytes, weight_bytes, cache_bytes_per_sequence)
    return (hbm_bytes - weight_bytes) // cache_bytes_per_sequence if hbm_bytes > weight_bytes else 0


def decode_tokens_per_second(weight_bytes, cache_bytes, bandwidth):
    _size(weight_bytes, cache_bytes, bandwidth)
    seconds = weight_bytes / bandwidth + cache_bytes / bandwidth
    if not seconds:
        raise ValueError(f"a step of {weight_bytes} and {cache_bytes} bytes takes no time")
    return 1.0 / seconds


def crossover_tokens(d_model, d_state, n_kv_heads, d_head):
    per_token = _size(2, n_kv_heads, d_head)
    state = _size(d_model, d_state)
    whole, rest = divmod(state, per_token)
    return whole + (rest > 0)
