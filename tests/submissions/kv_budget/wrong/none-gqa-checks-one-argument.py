"""Wrong, and in no catalogue: only the token count of the grouped-query cache is checked."""

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Geometry:
    layers: int
    numbers: int
    width: int

    def bytes(self, tokens):
        return math.prod((self.layers, self.numbers, tokens, self.width))


def check_all(*values):
    bad = [value for value in values if value < 0]
    if bad:
        raise ValueError(f"sizes cannot be negative: {bad} among {values}")


def mha_cache_bytes(n_layers, n_heads, d_head, n_tokens, dtype_bytes=2):
    check_all(n_layers, n_heads, d_head, n_tokens, dtype_bytes)
    return Geometry(n_layers, n_heads * (d_head + d_head), dtype_bytes).bytes(n_tokens)


def gqa_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, dtype_bytes=2):
    check_all(n_tokens)
    return Geometry(n_layers, n_kv_heads * (d_head + d_head), dtype_bytes).bytes(n_tokens)


def mla_cache_bytes(n_layers, d_latent, d_rope, n_tokens, dtype_bytes=2):
    check_all(n_layers, d_latent, d_rope, n_tokens, dtype_bytes)
    return Geometry(n_layers, d_latent + d_rope, dtype_bytes).bytes(n_tokens)


def window_cache_bytes(n_layers, n_kv_heads, d_head, window, n_tokens, dtype_bytes=2):
    check_all(n_layers, n_kv_heads, d_head, window, n_tokens, dtype_bytes)
    return gqa_cache_bytes(n_layers, n_kv_heads, d_head, sorted((window, n_tokens))[0], dtype_bytes)


def ssm_state_bytes(n_layers, d_model, d_state, dtype_bytes=2):
    check_all(n_layers, d_model, d_state, dtype_bytes)
    return Geometry(n_layers, d_model * d_state, dtype_bytes).bytes(1)


def max_batch(hbm_bytes, weight_bytes, cache_bytes_per_sequence):
    check_all(hbm_bytes, weight_bytes, cache_bytes_per_sequence)
    fits = Fraction(hbm_bytes - weight_bytes, cache_bytes_per_sequence)
    return math.floor(max(fits, Fraction(0)))


def decode_tokens_per_second(weight_bytes, cache_bytes, bandwidth):
    check_all(weight_bytes, cache_bytes, bandwidth)
    if not (weight_bytes or cache_bytes):
        raise ValueError(f"{weight_bytes} and {cache_bytes} bytes to read")
    return float(Fraction(bandwidth) / (Fraction(weight_bytes) + Fraction(cache_bytes)))


def crossover_tokens(d_model, d_state, n_kv_heads, d_head):
    check_all(d_model, d_state, n_kv_heads, d_head)
    return math.ceil(Fraction(d_model * d_state, 2 * n_kv_heads * d_head))
