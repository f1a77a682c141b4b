"""Cache arithmetic: what fits, how fast it decodes

Ainslie et al. 2023, GQA, arXiv:2305.13245; DeepSeek-V2 2024, arXiv:2405.04434, table 1; Gu and Dao 2023, Mamba,
arXiv:2312.00752

Part 1 (3 points)  Multi-head and grouped-query caches: mha_cache_bytes, gqa_cache_bytes
Part 2 (4 points)  Latents, windows and states: mla_cache_bytes, window_cache_bytes, ssm_state_bytes
Part 3 (3 points)  Batch, decode speed and crossover: max_batch, decode_tokens_per_second, crossover_tokens

Target: part 1 in 15 minutes, from memory.

    kit show kv_budget     the statement
    kit grade kv_budget    the verdict (--part 1 for one part)
    kit hint kv_budget     a nudge
"""

from __future__ import annotations


def mha_cache_bytes(n_layers: int, n_heads: int, d_head: int, n_tokens: int, dtype_bytes: int = 2) -> int:
    """Bytes of the key/value cache of one sequence under multi-head attention, all layers together.

    Args:
        n_layers: attention layers.
        n_heads: query heads; every one has its own key and value head.
        d_head: numbers in one head's key (and in its value).
        n_tokens: cached tokens.
        dtype_bytes: bytes of one number (2 for fp16 and bf16, 1 for fp8 and int8, 4 for fp32).

    Raises:
        ValueError: if an argument is negative.
    """
    raise NotImplementedError("part 1: write mha_cache_bytes")


def gqa_cache_bytes(n_layers: int, n_kv_heads: int, d_head: int, n_tokens: int, dtype_bytes: int = 2) -> int:
    """Bytes of the key/value cache of one sequence under grouped-query attention, all layers together.

    Args:
        n_layers: attention layers.
        n_kv_heads: key/value heads, H_kv (1 is multi-query attention).
        d_head: numbers in one head's key (and in its value).
        n_tokens: cached tokens.
        dtype_bytes: bytes of one number.

    Raises:
        ValueError: if an argument is negative.
    """
    raise NotImplementedError("part 1: write gqa_cache_bytes")


def mla_cache_bytes(n_layers: int, d_latent: int, d_rope: int, n_tokens: int, dtype_bytes: int = 2) -> int:
    """Bytes of the cache of one sequence under multi-head latent attention, all layers together.

    Args:
        n_layers: attention layers.
        d_latent: numbers in the latent of one token.
        d_rope: numbers in the rotary key of one token.
        n_tokens: cached tokens.
        dtype_bytes: bytes of one number.

    Raises:
        ValueError: if an argument is negative.
    """
    raise NotImplementedError("part 2: write mla_cache_bytes")


def window_cache_bytes(
    n_layers: int, n_kv_heads: int, d_head: int, window: int, n_tokens: int, dtype_bytes: int = 2
) -> int:
    """Bytes in use by a rolling cache: every layer attends to the last ``window`` tokens only, all layers together.

    Args:
        n_layers: attention layers, all windowed.
        n_kv_heads: key/value heads.
        d_head: numbers in one head's key (and in its value).
        window: tokens a query sees, itself included.
        n_tokens: tokens of the sequence so far.
        dtype_bytes: bytes of one number.

    Raises:
        ValueError: if an argument is negative.
    """
    raise NotImplementedError("part 2: write window_cache_bytes")


def ssm_state_bytes(n_layers: int, d_model: int, d_state: int, dtype_bytes: int = 2) -> int:
    """Bytes of the recurrent state of one sequence in a state-space model, all layers together.

    Args:
        n_layers: state-space layers.
        d_model: channels of a layer.
        d_state: numbers in the state of one channel.
        dtype_bytes: bytes of one number.

    Raises:
        ValueError: if an argument is negative.
    """
    raise NotImplementedError("part 2: write ssm_state_bytes")


def max_batch(hbm_bytes: int, weight_bytes: int, cache_bytes_per_sequence: int) -> int:
    """How many whole sequences fit beside the weights; 0 when the weights themselves do not fit.

    Args:
        hbm_bytes: memory of the device.
        weight_bytes: memory the weights take, once for all sequences.
        cache_bytes_per_sequence: cache of one sequence at its full length; positive.

    Raises:
        ValueError: if an argument is negative.
    """
    raise NotImplementedError("part 3: write max_batch")


def decode_tokens_per_second(weight_bytes: float, cache_bytes: float, bandwidth: float) -> float:
    """Upper bound on decode steps per second, which is tokens per second of each sequence of the batch.

    Args:
        weight_bytes: weights read in one step of the whole batch.
        cache_bytes: cache of all sequences of the batch together, read in one step.
        bandwidth: memory bandwidth in bytes per second.

    Raises:
        ValueError: if an argument is negative.
    """
    raise NotImplementedError("part 3: write decode_tokens_per_second")


def crossover_tokens(d_model: int, d_state: int, n_kv_heads: int, d_head: int) -> int:
    """The smallest number of tokens whose grouped-query cache is at least as large as the state of a Mamba layer.

    Both layers use the same bytes per number.

    Args:
        d_model: channels of the state-space layer.
        d_state: numbers in the state of one channel.
        n_kv_heads: key/value heads of the attention layer; positive.
        d_head: numbers in one head's key; positive.

    Raises:
        ValueError: if an argument is negative.
    """
    raise NotImplementedError("part 3: write crossover_tokens")
