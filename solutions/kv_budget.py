"""The bytes that decide how many users one accelerator can serve.

Decoding one token reads every weight once and every cached key and value of every sequence once, and does about two
floating-point operations per weight read: far too few to keep the arithmetic units busy.  So memory sets both limits:
the *capacity* of the HBM says how many sequences fit, its *bandwidth* says how fast a step can be.

Symbols: L layers, H query heads, H_kv key/value heads, d_head the size of a head, d_c (here ``d_latent``) the size of
MLA's latent, d_R (here ``d_rope``) its shared rotary key, W the window, d N the state of a state-space layer
(``d_model`` channels of ``d_state`` numbers), n cached tokens.

    numbers per layer and token     MHA  2 H d_head          (Vaswani et al. 2017, arXiv:1706.03762)
                                    GQA  2 H_kv d_head       (Ainslie et al. 2023, arXiv:2305.13245)
                                    MLA  d_c + d_R           (DeepSeek-V2, arXiv:2405.04434, section 2.1.4, table 1)
    numbers per layer, any length   SSM  d N                 (Mamba, arXiv:2312.00752)

Integers stay integers: a cache is a whole number of bytes, and Python's integers do not round.
"""

from __future__ import annotations


def _refuse_negative(**sizes: float) -> None:
    for name, value in sizes.items():
        if value < 0:
            raise ValueError(f"{name} must not be negative, got {value}")


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
    _refuse_negative(n_layers=n_layers, n_heads=n_heads, d_head=d_head, n_tokens=n_tokens, dtype_bytes=dtype_bytes)
    mha_numbers = 2 * n_heads * d_head  # a key and a value for each head, per layer and token
    mha_numbers_all = n_layers * n_tokens * mha_numbers
    return mha_numbers_all * dtype_bytes


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
    _refuse_negative(
        n_layers=n_layers, n_kv_heads=n_kv_heads, d_head=d_head, n_tokens=n_tokens, dtype_bytes=dtype_bytes
    )
    # The query heads are nowhere here: they are made fresh each step and never cached.
    gqa_numbers = 2 * n_kv_heads * d_head
    gqa_numbers_all = n_layers * n_tokens * gqa_numbers
    return gqa_numbers_all * dtype_bytes


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
    _refuse_negative(n_layers=n_layers, d_latent=d_latent, d_rope=d_rope, n_tokens=n_tokens, dtype_bytes=dtype_bytes)
    # One latent gives the keys AND the values of all heads, one rotary key is shared by all heads: no factor 2, no H.
    mla_numbers = d_latent + d_rope
    mla_numbers_all = n_layers * n_tokens * mla_numbers
    return mla_numbers_all * dtype_bytes


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
    _refuse_negative(
        n_layers=n_layers,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        window=window,
        n_tokens=n_tokens,
        dtype_bytes=dtype_bytes,
    )
    kept_tokens = min(window, n_tokens)  # a sequence shorter than the window has filled only part of the ring
    window_numbers = 2 * n_kv_heads * d_head
    window_numbers_all = n_layers * kept_tokens * window_numbers
    return window_numbers_all * dtype_bytes


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
    _refuse_negative(n_layers=n_layers, d_model=d_model, d_state=d_state, dtype_bytes=dtype_bytes)
    state_numbers = d_model * d_state  # one matrix (d, N); it is overwritten at each step, so no token count
    state_numbers_all = n_layers * state_numbers
    return state_numbers_all * dtype_bytes


def max_batch(hbm_bytes: int, weight_bytes: int, cache_bytes_per_sequence: int) -> int:
    """How many whole sequences fit beside the weights; 0 when the weights themselves do not fit.

    Args:
        hbm_bytes: memory of the device.
        weight_bytes: memory the weights take, once for all sequences.
        cache_bytes_per_sequence: cache of one sequence at its full length; positive.

    Raises:
        ValueError: if an argument is negative.
    """
    _refuse_negative(hbm_bytes=hbm_bytes, weight_bytes=weight_bytes, cache_bytes_per_sequence=cache_bytes_per_sequence)
    if cache_bytes_per_sequence == 0:
        raise ValueError(f"cache_bytes_per_sequence must be positive, got {cache_bytes_per_sequence}: no bound exists")
    free_bytes = hbm_bytes - weight_bytes
    usable_bytes = max(0, free_bytes)
    return usable_bytes // cache_bytes_per_sequence


def decode_tokens_per_second(weight_bytes: float, cache_bytes: float, bandwidth: float) -> float:
    """Upper bound on decode steps per second, which is tokens per second of each sequence of the batch.

    Args:
        weight_bytes: weights read in one step of the whole batch.
        cache_bytes: cache of all sequences of the batch together, read in one step.
        bandwidth: memory bandwidth in bytes per second.

    Raises:
        ValueError: if an argument is negative.
    """
    _refuse_negative(weight_bytes=weight_bytes, cache_bytes=cache_bytes, bandwidth=bandwidth)
    # The weights once per step, whatever the batch; the cache of every sequence.
    read_bytes = weight_bytes + cache_bytes
    if read_bytes == 0:
        raise ValueError(f"nothing is read: weight_bytes {weight_bytes} and cache_bytes {cache_bytes}")
    return bandwidth / read_bytes


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
    _refuse_negative(d_model=d_model, d_state=d_state, n_kv_heads=n_kv_heads, d_head=d_head)
    numbers_per_token = 2 * n_kv_heads * d_head
    if numbers_per_token == 0:
        raise ValueError(f"a cache with {n_kv_heads} heads of size {d_head} never grows: there is no crossover")
    state_size = d_model * d_state
    return -(-state_size // numbers_per_token)  # ceil in whole numbers: minus the floor of minus
