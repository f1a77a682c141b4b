"""Right: locals() checked at the head of every function, a signature-driven decorator for the rest, Fraction ceilings"""

import functools
import inspect
import math
from fractions import Fraction
from types import SimpleNamespace


def sized(function):
    signature = inspect.signature(function)

    @functools.wraps(function)
    def inner(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        bad = {k: v for k, v in bound.arguments.items() if v < 0}
        if bad:
            raise ValueError(f"negative: {bad}")
        return function(SimpleNamespace(**bound.arguments)) if len(signature.parameters) == 1 else function(**bound.arguments)

    return inner


@sized
def mha_cache_bytes(n_layers, n_heads, d_head, n_tokens, dtype_bytes=2):
    return math.prod(locals().values()) << 1


@sized
def gqa_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, dtype_bytes=2):
    return math.prod((*locals().values(), 2))


@sized
def mla_cache_bytes(n_layers, d_latent, d_rope, n_tokens, dtype_bytes=2):
    return sum(n_layers * n_tokens * dtype_bytes * d for d in (d_latent, d_rope))


@sized
def window_cache_bytes(n_layers, n_kv_heads, d_head, window, n_tokens, dtype_bytes=2):
    kept = len(range(max(0, n_tokens - window), n_tokens))
    return gqa_cache_bytes(n_layers, n_kv_heads, d_head, kept, dtype_bytes)


@sized
def ssm_state_bytes(n_layers, d_model, d_state, dtype_bytes=2):
    return math.prod((n_layers, d_model, d_state, dtype_bytes))


@sized
def max_batch(hbm_bytes, weight_bytes, cache_bytes_per_sequence):
    free = hbm_bytes - weight_bytes
    return 0 if free < cache_bytes_per_sequence else (free - free % cache_bytes_per_sequence) // cache_bytes_per_sequence


@sized
def decode_tokens_per_second(weight_bytes, cache_bytes, bandwidth):
    return 1 / (math.fsum((weight_bytes, cache_bytes)) / bandwidth) if bandwidth else 0.0


@sized
def crossover_tokens(d_model, d_state, n_kv_heads, d_head):
    return math.ceil(Fraction(d_model * d_state, n_kv_heads * d_head) / 2)
