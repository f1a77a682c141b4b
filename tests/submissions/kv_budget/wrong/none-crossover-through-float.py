"""Wrong, and in no catalogue: the crossover is divided in a float and rounded up."""

def _nonneg(**kw):
    for n, v in kw.items():
        if v < 0:
            raise ValueError(f"{n} must not be negative, got {v}")

def mha_cache_bytes(n_layers, n_heads, d_head, n_tokens, dtype_bytes=2):
    _nonneg(L=n_layers, H=n_heads, d=d_head, T=n_tokens, b=dtype_bytes)
    return 2 * n_layers * n_heads * d_head * n_tokens * dtype_bytes

def gqa_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, dtype_bytes=2):
    _nonneg(Lg=n_layers, H=n_kv_heads, d=d_head, T=n_tokens, b=dtype_bytes)
    return n_layers * n_kv_heads * d_head * n_tokens * dtype_bytes * 2

def mla_cache_bytes(n_layers, d_latent, d_rope, n_tokens, dtype_bytes=2):
    _nonneg(L=n_layers, l=d_latent, r=d_rope, T=n_tokens, b=dtype_bytes)
    return n_layers * (d_latent + d_rope) * n_tokens * dtype_bytes

def window_cache_bytes(n_layers, n_kv_heads, d_head, window, n_tokens, dtype_bytes=2):
    _nonneg(w=window, n=n_tokens)
    return gqa_cache_bytes(n_layers, n_kv_heads, d_head, min(window, n_tokens), dtype_bytes)

def ssm_state_bytes(n_layers, d_model, d_state, dtype_bytes=2):
    _nonneg(L=n_layers, d=d_model, N=d_state, b=dtype_bytes)
    return n_layers * d_model * d_state * dtype_bytes

def max_batch(hbm_bytes, weight_bytes, cache_bytes_per_sequence):
    _nonneg(h=hbm_bytes, w=weight_bytes, c=cache_bytes_per_sequence)
    return max(0, hbm_bytes - weight_bytes) // cache_bytes_per_sequence

def decode_tokens_per_second(weight_bytes, cache_bytes, bandwidth):
    _nonneg(w=weight_bytes, c=cache_bytes, bw=bandwidth)
    total = weight_bytes + cache_bytes
    if total == 0:
        raise ValueError(f"no byte is read: {weight_bytes} + {cache_bytes}")
    return bandwidth / total

def crossover_tokens(d_model, d_state, n_kv_heads, d_head):
    _nonneg(d=d_model, N=d_state, H=n_kv_heads, dh=d_head)
    import math
    return math.ceil(d_model * d_state / (2 * n_kv_heads * d_head))
