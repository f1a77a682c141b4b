"""Hidden tests of the cache arithmetic."""

import pytest


def cases(rng, *ranges):
    """Six draws of the arguments, with 1, 2, 4 and 8 bytes per number among them."""
    return [(*(rng.integers(low, high) for low, high in ranges), dtype_bytes) for dtype_bytes in (1, 2, 4, 8, 1, 4)]


def sizes(rng, *ranges):
    """Arguments without the dtype, each in [low, high)."""
    return tuple(rng.integers(low, high) for low, high in ranges)


def or_refusal(call, *args):
    """What the call returns, or the name of the ValueError it raises."""
    try:
        return call(*args)
    except ValueError:
        return "ValueError"


def ones_in_turn(draw):
    """The draw, then again with each argument in turn 1 and the others as they were."""
    return [tuple(draw), *((*draw[:place], 1, *draw[place + 1 :]) for place in range(len(draw)))]


def negatives_refused(submission, name, good):
    """Each argument in turn negative beside others that hide it: the next one negative too, then all others zero."""
    call = getattr(submission, name)
    for place in range(len(good)):
        both, zeros = list(good), [0] * len(good)
        both[(place + 1) % len(good)] *= -1
        both[place] *= -1
        zeros[place] = -1
        for draw, beside in ((both, "so is another"), (zeros, "all others are zero")):
            with raises(ValueError, says=f"{name}: argument number {place + 1} is negative, and {beside}"):
                call(*draw)


def nothing_or_refused(submission, name, good, silent):
    """Sizes at zero of which the statement says nothing: the formula's value or a refusal."""
    for place, expected in silent:
        draw = list(good)
        draw[place] = 0
        found = or_refusal(getattr(submission, name), *draw)
        says = f"{name} with argument number {place + 1} zero is {expected} bytes, if it is not refused"
        check(found in (expected, "ValueError"), says, seen=found)


ATTENTION = ((3, 90), (3, 60), (5, 130), (7, 5000))  # layers, heads, d_head, tokens


@part(1)
def test_multi_head_cache_is_a_key_and_a_value_per_head(submission, reference, rng):
    draws = cases(rng, *ATTENTION)
    mine = [submission.mha_cache_bytes(*draw) for draw in draws]
    same(mine, [reference.mha_cache_bytes(*draw) for draw in draws], says="bytes of a multi-head cache")


@part(1)
def test_multi_head_cache_defaults_to_two_bytes_a_number(submission, reference, rng):
    draws = [sizes(rng, *ATTENTION) for _ in range(3)]
    mine = [submission.mha_cache_bytes(*draw) for draw in draws]
    same(mine, [reference.mha_cache_bytes(*draw) for draw in draws], says="bytes of a multi-head cache in bf16")


@part(1)
def test_grouped_query_cache_counts_the_key_value_heads(submission, reference, rng):
    draws = cases(rng, *ATTENTION)
    mine = [submission.gqa_cache_bytes(*draw) for draw in draws]
    same(mine, [reference.gqa_cache_bytes(*draw) for draw in draws], says="bytes of a grouped-query cache")


@part(1)
def test_grouped_query_cache_defaults_to_two_bytes_a_number(submission, reference, rng):
    draws = [sizes(rng, *ATTENTION) for _ in range(3)]
    mine = [submission.gqa_cache_bytes(*draw) for draw in draws]
    same(mine, [reference.gqa_cache_bytes(*draw) for draw in draws], says="bytes of a grouped-query cache in bf16")


@part(1)
def test_published_grouped_query_caches(submission):
    mine = [
        submission.gqa_cache_bytes(1, 8, 128, 1),  # Llama 3 405B, a layer and a token
        submission.gqa_cache_bytes(32, 8, 128, 1),  # Llama 3 8B, a token
        submission.gqa_cache_bytes(80, 8, 128, 32768),  # Llama 3 70B, 32k tokens: exactly 10 GiB
        submission.gqa_cache_bytes(32, 8, 128, 8192),  # Llama 3 8B, 8k tokens: exactly 1 GiB
    ]
    says = (
        "Llama 3: 4 KiB per layer and token; 128 KiB per token (8B); 10 GiB at 32,768 tokens (70B); 1 GiB at 8,192 (8B)"
    )
    same(mine, [4096, 131072, 10 * 2**30, 2**30], says=says)


@part(1)
def test_published_multi_head_caches(submission):
    mine = [
        submission.mha_cache_bytes(1, 32, 128, 1),  # Llama 2 7B
        submission.mha_cache_bytes(1, 128, 128, 1),  # what Llama 3 405B would keep: 16 times its 4 KiB
        submission.mha_cache_bytes(1, 128, 128, 1, 1),  # as numbers: DeepSeek-V2's geometry without MLA
        submission.mha_cache_bytes(96, 96, 128, 2048),  # GPT-3
    ]
    says = "Llama 2 7B: 16 KiB per layer and token; 128 heads of 128: 64 KiB, 32,768 numbers; GPT-3 at 2,048 tokens"
    same(mine, [16384, 65536, 32768, 9663676416], says=says)


@part(1)
def test_no_tokens_and_no_layers_take_no_bytes(submission, rng):
    layers, heads, d_head, tokens = sizes(rng, *ATTENTION)
    mine = [
        or_refusal(submission.mha_cache_bytes, layers, heads, d_head, 0),
        or_refusal(submission.mha_cache_bytes, 0, heads, d_head, tokens),
        or_refusal(submission.gqa_cache_bytes, layers, heads, d_head, 0),
        or_refusal(submission.gqa_cache_bytes, 0, heads, d_head, tokens),
    ]
    same(mine, [0, 0, 0, 0], says="zero tokens or zero layers is 0 bytes, no error")
    for name in ("mha_cache_bytes", "gqa_cache_bytes"):
        nothing_or_refused(submission, name, (layers, heads, d_head, tokens, 2), ((1, 0), (2, 0), (4, 0)))


@part(1)
@pytest.mark.parametrize("name", ["mha_cache_bytes", "gqa_cache_bytes"])
def test_one_layer_head_number_token_or_byte_counts_like_many(submission, reference, rng, name):
    draws = ones_in_turn((*sizes(rng, *ATTENTION), 4))
    mine = [getattr(submission, name)(*draw) for draw in draws]
    says = f"{name}, then with each argument in turn 1"
    same(mine, [getattr(reference, name)(*draw) for draw in draws], says=says)


@part(1)
def test_a_fleet_sized_cache_is_exact(submission, reference, rng):
    # Odd factors, so that the product needs more than a float's 53 bits, yet fits an int64.
    draws = [
        (2 * rng.integers(45, 64) + 1, 2 * rng.integers(30, 64) + 1, 129, 2 * rng.integers(2**36, 2**37) + 1, 3)
        for _ in range(3)
    ]
    mine = [submission.mha_cache_bytes(*draw) for draw in draws]
    mine += [submission.gqa_cache_bytes(*draw) for draw in draws]
    expected = [reference.mha_cache_bytes(*draw) for draw in draws]
    same(
        mine,
        expected + [reference.gqa_cache_bytes(*draw) for draw in draws],
        says="whole bytes, not rounded by a float",
    )


@part(1)
@pytest.mark.parametrize("place", range(5))
def test_negative_multi_head_sizes_are_refused(submission, rng, place):
    draw = [*sizes(rng, *ATTENTION), 2]
    draw[place] = -1
    with raises(ValueError, says=f"argument number {place + 1} is negative"):
        submission.mha_cache_bytes(*draw)


@part(1)
@pytest.mark.parametrize("place", range(5))
def test_negative_grouped_query_sizes_are_refused(submission, rng, place):
    draw = [*sizes(rng, *ATTENTION), 2]
    draw[place] = -1
    with raises(ValueError, says=f"argument number {place + 1} is negative"):
        submission.gqa_cache_bytes(*draw)


def by_name(submission, reference, rng, name, *ranges):
    """The dtype given by name: it counts, and a negative one is refused."""
    draw, width = sizes(rng, *ranges), rng.choice([1, 4, 8])
    mine = getattr(submission, name)(*draw, dtype_bytes=width)
    same(mine, getattr(reference, name)(*draw, dtype_bytes=width), says=f"{name} with dtype_bytes={width}")
    with raises(ValueError, says=f"{name} with dtype_bytes={-width}"):
        getattr(submission, name)(*draw, dtype_bytes=-width)


@part(1)
@pytest.mark.parametrize("name", ["mha_cache_bytes", "gqa_cache_bytes"])
def test_a_dtype_given_by_name(submission, reference, rng, name):
    by_name(submission, reference, rng, name, *ATTENTION)


@part(1)
@pytest.mark.parametrize("name", ["mha_cache_bytes", "gqa_cache_bytes"])
def test_a_negative_size_does_not_hide_behind_another(submission, rng, name):
    negatives_refused(submission, name, (*sizes(rng, *ATTENTION), 2))


LATENT = ((3, 90), (100, 700), (11, 97), (7, 5000))  # layers, d_latent, d_rope, tokens
WINDOW = ((3, 90), (3, 60), (5, 130))  # layers, key/value heads, d_head
STATE = ((3, 90), (100, 5000), (3, 200))  # layers, d_model, d_state


@part(2)
def test_latent_cache_is_one_latent_and_one_rotary_key(submission, reference, rng):
    draws = cases(rng, *LATENT)
    mine = [submission.mla_cache_bytes(*draw) for draw in draws]
    same(mine, [reference.mla_cache_bytes(*draw) for draw in draws], says="bytes of a latent cache")


@part(2)
def test_latent_cache_defaults_to_two_bytes_a_number(submission, reference, rng):
    draws = [sizes(rng, *LATENT) for _ in range(3)]
    mine = [submission.mla_cache_bytes(*draw) for draw in draws]
    same(mine, [reference.mla_cache_bytes(*draw) for draw in draws], says="bytes of a latent cache in bf16")


@part(2)
def test_published_latent_caches(submission):
    mine = [
        submission.mla_cache_bytes(1, 512, 64, 1, 1),  # numbers per layer and token, against 32,768 of plain heads
        submission.mla_cache_bytes(61, 512, 64, 1),  # DeepSeek-V3, a token in bf16
        submission.mla_cache_bytes(60, 512, 64, 131072),  # DeepSeek-V2 at 128k
    ]
    same(
        mine,
        [576, 70272, 9059696640],
        says="DeepSeek-V2 keeps 576 numbers per layer and token; V3 70,272 bytes a token",
    )


@part(2)
def test_window_cache_of_a_long_sequence_holds_the_window(submission, reference, rng):
    draws = []
    for dtype_bytes in (1, 2, 4, 8):
        window = rng.integers(5, 400)
        draws.append((*sizes(rng, *WINDOW), window, window + rng.integers(1, 3000), dtype_bytes))
    draws.append((*sizes(rng, *WINDOW), window, window - 3, 2))  # and a short one beside them
    mine = [submission.window_cache_bytes(*draw) for draw in draws]
    same(mine, [reference.window_cache_bytes(*draw) for draw in draws], says="the sequence is longer than the window")


@part(2)
def test_window_cache_of_a_short_sequence_holds_what_was_written(submission, reference, rng):
    draws = []
    for dtype_bytes in (1, 2, 4, 8):
        tokens = rng.integers(5, 400)
        draws.append((*sizes(rng, *WINDOW), tokens + rng.integers(1, 3000), tokens, dtype_bytes))
    draws.append((*sizes(rng, *WINDOW), tokens, tokens + 8, 2))  # and a long one beside them
    mine = [submission.window_cache_bytes(*draw) for draw in draws]
    same(mine, [reference.window_cache_bytes(*draw) for draw in draws], says="the sequence is shorter than the window")


@part(2)
def test_window_cache_defaults_and_boundary(submission, reference, rng):
    layers, heads, d_head = sizes(rng, *WINDOW)
    window = rng.integers(5, 400)
    draws = [(layers, heads, d_head, window, tokens) for tokens in (window - 1, window, window + 1, window + 9, 1)]
    mine = [submission.window_cache_bytes(*draw) for draw in draws]
    same(mine, [reference.window_cache_bytes(*draw) for draw in draws], says="around a full window, in bf16")


@part(2)
def test_published_window_cache(submission):
    mine = [submission.window_cache_bytes(32, 8, 128, 4096, tokens) for tokens in (1000, 4096, 32768)]
    says = "Mistral 7B stops growing at 4,096 tokens and 512 MiB"
    same(mine, [131072000, 2**29, 2**29], says=says)


@part(2)
def test_state_does_not_grow(submission, reference, rng):
    draws = cases(rng, *STATE)
    mine = [submission.ssm_state_bytes(*draw) for draw in draws]
    same(mine, [reference.ssm_state_bytes(*draw) for draw in draws], says="bytes of a state-space model's state")


@part(2)
def test_state_defaults_to_two_bytes_a_number(submission, reference, rng):
    draws = [sizes(rng, *STATE) for _ in range(3)]
    mine = [submission.ssm_state_bytes(*draw) for draw in draws]
    mine += [submission.ssm_state_bytes(1, 4096, 16), submission.ssm_state_bytes(1, 4096, 16, 1)]
    expected = [reference.ssm_state_bytes(*draw) for draw in draws]
    same(mine, [*expected, 131072, 65536], says="bytes of a state in bf16; 4096 x 16 is 65,536 numbers, so in fp8")


@part(2)
def test_nothing_cached_takes_no_bytes(submission, rng):
    layers, latent, rope, tokens = sizes(rng, *LATENT)
    mine = [
        or_refusal(submission.mla_cache_bytes, layers, latent, rope, 0),
        or_refusal(submission.mla_cache_bytes, 0, latent, rope, tokens),
        or_refusal(submission.window_cache_bytes, layers, 8, rope, latent, 0),
        or_refusal(submission.window_cache_bytes, 0, 8, rope, latent, tokens),
        or_refusal(submission.ssm_state_bytes, 0, latent, rope),
    ]
    same(mine, [0] * 5, says="zero tokens or zero layers is 0 bytes, no error")
    nothing_or_refused(submission, "mla_cache_bytes", (layers, latent, rope, tokens, 2), ((4, 0),))
    without = layers * rope * tokens * 2
    nothing_or_refused(submission, "mla_cache_bytes", (layers, latent, rope, tokens, 2), ((1, without),))
    nothing_or_refused(submission, "window_cache_bytes", (layers, 8, rope, 6, tokens, 2), ((1, 0), (2, 0), (5, 0)))
    nothing_or_refused(submission, "ssm_state_bytes", (layers, latent, rope, 2), ((1, 0), (2, 0), (3, 0)))


OTHERS = {  # part 2's arguments, drawn; the window is shorter than the sequence
    "mla_cache_bytes": LATENT,
    "window_cache_bytes": (*WINDOW, (5, 400), (500, 900)),
    "ssm_state_bytes": STATE,
}


@part(2)
@pytest.mark.parametrize("name", OTHERS)
def test_one_of_anything_counts_like_many(submission, reference, rng, name):
    draws = ones_in_turn((*sizes(rng, *OTHERS[name]), 4))
    mine = [getattr(submission, name)(*draw) for draw in draws]
    says = f"{name}, then with each argument in turn 1"
    same(mine, [getattr(reference, name)(*draw) for draw in draws], says=says)


@part(2)
@pytest.mark.parametrize("name", OTHERS)
def test_a_negative_size_does_not_hide_behind_another_in_the_other_caches(submission, rng, name):
    negatives_refused(submission, name, (*sizes(rng, *OTHERS[name]), 2))


@part(2)
def test_a_dtype_given_by_name_in_the_other_caches(submission, reference, rng):
    by_name(submission, reference, rng, "mla_cache_bytes", *LATENT)
    by_name(submission, reference, rng, "window_cache_bytes", *WINDOW, (5, 400), (5, 400))
    by_name(submission, reference, rng, "ssm_state_bytes", *STATE)


@part(2)
def test_large_caches_are_exact(submission, reference, rng):
    # Odd factors, so that the products need more than a float's 53 bits, yet fit an int64.
    layers, heads, many = (2 * rng.integers(low, high) + 1 for low, high in ((45, 64), (20, 32), (2**37, 2**38)))
    calls = [
        ("mla_cache_bytes", (layers, 513, 64, 16 * many + 1, 3)),
        ("window_cache_bytes", (layers, heads, 129, many, many + 200, 3)),
        ("window_cache_bytes", (layers, heads, 129, many + 200, many, 3)),
        ("ssm_state_bytes", (layers, 16 * many + 1, 129, 3)),
    ]
    mine = [getattr(submission, name)(*sizes) for name, sizes in calls]
    expected = [getattr(reference, name)(*sizes) for name, sizes in calls]
    same(mine, expected, says="whole bytes, not rounded by a float: latents, windows, states")
    found = or_refusal(submission.mla_cache_bytes, layers, 513, 0, 7, 2)
    same(found, layers * 513 * 14, says="without a rotary key the latent is left")


@part(2)
@pytest.mark.parametrize("place", range(5))
def test_negative_latent_sizes_are_refused(submission, rng, place):
    draw = [*sizes(rng, *LATENT), 2]
    draw[place] = -1
    with raises(ValueError, says=f"argument number {place + 1} is negative"):
        submission.mla_cache_bytes(*draw)


@part(2)
@pytest.mark.parametrize("place", range(6))
def test_negative_window_sizes_are_refused(submission, rng, place):
    draw = [*sizes(rng, *WINDOW), rng.integers(5, 400), rng.integers(5, 400), 2]
    draw[place] = -1
    with raises(ValueError, says=f"argument number {place + 1} is negative"):
        submission.window_cache_bytes(*draw)


@part(2)
@pytest.mark.parametrize("place", range(4))
def test_negative_state_sizes_are_refused(submission, rng, place):
    draw = [*sizes(rng, *STATE), 2]
    draw[place] = -1
    with raises(ValueError, says=f"argument number {place + 1} is negative"):
        submission.ssm_state_bytes(*draw)


@part(3)
def test_batch_counts_whole_sequences_beside_the_weights(submission, reference, rng):
    draws = []
    for fraction in (0.1, 0.4, 0.6, 0.9):
        cache, fit = rng.integers(1000, 5_000_000), rng.integers(3, 200)
        weights = rng.integers(10 * cache, 40 * cache)
        draws.append((weights + fit * cache + int(fraction * cache), weights, cache))
    draws += ones_in_turn(draws[-1])[1:]
    mine = [submission.max_batch(*draw) for draw in draws]
    same(mine, [reference.max_batch(*draw) for draw in draws], says="sequences that fit beside the weights")


@part(3)
def test_batch_at_an_exact_fit(submission, reference, rng):
    cache, fit, weights = rng.integers(1000, 90_000), rng.integers(3, 50), rng.integers(100_000, 900_000)
    full = weights + fit * cache
    draws = [(full, weights, cache), (full - 1, weights, cache), (full + 1, weights, cache)]
    mine = [submission.max_batch(*draw) for draw in draws]
    same(mine, [fit, fit - 1, fit], says=f"memory for exactly {fit} sequences, then one byte less, then one more")


@part(3)
def test_batch_is_zero_when_nothing_fits(submission, rng):
    cache, weights = rng.integers(1000, 90_000), rng.integers(300_000, 900_000)
    mine = [
        submission.max_batch(weights - 5 * cache // 2, weights, cache),
        submission.max_batch(weights - 1, weights, cache),
        submission.max_batch(weights, weights, cache),
        submission.max_batch(weights + cache - 1, weights, cache),
        or_refusal(submission.max_batch, 0, weights, cache),
    ]
    same(mine, [0, 0, 0, 0, 0], says="the weights do not fit, or leave less than one sequence")


@part(3)
def test_batch_of_a_real_server(submission):
    # Llama 3 8B in bf16 (16.06 GB) on 80 GB: 1 GiB per sequence of 8,192 tokens.
    same(submission.max_batch(80 * 10**9, 16_060_522_496, 2**30), 59, says="Llama 3 8B at 8,192 tokens on 80 GB")


@part(3)
def test_batch_is_not_rounded_by_a_float(submission, rng):
    # The room is one byte short of `fit` sequences, which a float's 53 bits cannot hold.
    cache, fit = 2 * rng.integers(2**50, 2**51) + 1, rng.integers(20, 90)
    mine = submission.max_batch(7 + fit * cache - 1, 7, cache)
    same(mine, fit - 1, says="one byte is missing for another sequence, in a memory of exabytes")
    fit = 2 * rng.integers(2**55, 2**56) + 1
    mine = [submission.max_batch(9 + 3 * fit, 7, 3), or_refusal(submission.max_batch, 3 * fit + 2, 0, 3)]
    same(mine, [fit, fit], says="very many sequences of 3 bytes; and without weights")


@part(3)
@pytest.mark.parametrize("place", range(3))
def test_negative_memory_is_refused(submission, rng, place):
    draw = [90_000 + rng.integers(1, 99), 40_000 + rng.integers(1, 99), 700 + rng.integers(1, 99)]
    draw[place] = -draw[place]
    with raises(ValueError, says=f"argument number {place + 1} is negative"):
        submission.max_batch(*draw)


@part(3)
def test_a_decode_step_reads_weights_and_cache_once(submission, reference, rng):
    draws = []
    for share in (0.1, 0.7, 1.9):
        weights = rng.integers(10**9, 10**11)
        draws.append((weights, int(share * weights), rng.integers(10**12, 9 * 10**12)))
    mine = [float(submission.decode_tokens_per_second(*draw)) for draw in draws]
    expected = [reference.decode_tokens_per_second(*draw) for draw in draws]
    close(mine, expected, says="tokens per second of each sequence, memory bound")
    for speed in (rng.uniform(0.3, 0.9), rng.uniform(0.01, 0.09), rng.uniform(0.001, 0.009)):
        weights, cache = rng.integers(100, 900), rng.integers(100, 900)
        mine = submission.decode_tokens_per_second(weights, cache, speed * (weights + cache))
        close(mine, speed, says="a model on slow memory: less than one step a second")


@part(3)
def test_decode_on_published_bandwidths(submission):
    mine = [
        float(submission.decode_tokens_per_second(140 * 10**9, 20 * 10**9, 3_200 * 10**9)),
        float(submission.decode_tokens_per_second(4 * 10**9, 12 * 10**9, 2_000 * 10**9)),
    ]
    close(mine, [20.0, 125.0], says="160 GB at 3.2 TB/s; 16 GB at 2 TB/s")


@part(3)
def test_decode_before_the_first_token(submission, rng):
    weights, bandwidth = rng.integers(10**9, 10**11), rng.integers(10**12, 9 * 10**12)
    found = or_refusal(submission.decode_tokens_per_second, weights, 0, bandwidth)
    close(found, bandwidth / weights, says="an empty cache leaves the weights to read")


@part(3)
def test_decode_without_weights_reads_the_cache(submission, rng):
    cache, bandwidth = rng.integers(10**9, 10**11), rng.integers(10**12, 9 * 10**12)
    found = or_refusal(submission.decode_tokens_per_second, 0, cache, bandwidth)
    close(found, bandwidth / cache, says="the weights take no bytes, and the cache is read")


@part(3)
@pytest.mark.parametrize("place", range(3))
def test_negative_traffic_is_refused(submission, rng, place):
    draw = [5 * 10**9 + rng.integers(1, 99), 10**9 + rng.integers(1, 99), 2 * 10**12]
    draw[place] = -draw[place]
    with raises(ValueError, says=f"argument number {place + 1} is negative"):
        submission.decode_tokens_per_second(*draw)


@part(3)
def test_crossover_rounds_up(submission, reference, rng):
    draws = []
    for remainder in (0, 1, -1, 0, 2, -2):  # the state is a whole number of tokens, or a little more, or a little less
        heads, d_head, tokens = rng.integers(3, 12), rng.integers(8, 70), rng.integers(5, 300)
        draws.append((tokens * 2 * heads * d_head + remainder, 1, heads, d_head))
    draws += [(rng.integers(1, heads), d_head, heads, d_head), (1, rng.integers(2, 16), heads, d_head)]  # under a token
    mine = [submission.crossover_tokens(*draw) for draw in draws]
    same(
        mine,
        [reference.crossover_tokens(*draw) for draw in draws],
        says="first length at which the cache reaches the state",
    )


@part(3)
def test_crossover_of_random_layers(submission, reference, rng):
    draws = [sizes(rng, (500, 9000), (5, 200), (2, 16), (16, 150)) for _ in range(6)]
    draws += ones_in_turn(draws[0])[1:]
    mine = [submission.crossover_tokens(*draw) for draw in draws]
    same(
        mine,
        [reference.crossover_tokens(*draw) for draw in draws],
        says="first length at which the cache reaches the state",
    )


@part(3)
def test_crossover_is_not_rounded_by_a_float(submission, rng):
    # The state is one number more than `tokens` cached tokens, which a float's 53 bits cannot tell.
    heads, d_head, tokens = 2 * rng.integers(2**20, 2**21) + 1, 2 * rng.integers(2**29, 2**30) + 1, rng.integers(5, 90)
    mine = submission.crossover_tokens(tokens * 2 * heads * d_head + 1, 1, heads, d_head)
    same(mine, tokens + 1, says="the state is one number larger than the cache of the token before")
    tokens = 2 * rng.integers(2**55, 2**56) + 1
    mine = submission.crossover_tokens(2 * tokens - 1, 3, 1, 3)
    same(mine, tokens, says="a very large state against one head of 3 numbers")


@part(3)
def test_a_state_of_nothing_is_reached_at_once(submission, rng):
    heads, d_head = rng.integers(3, 12), rng.integers(8, 70)
    found = or_refusal(submission.crossover_tokens, rng.integers(500, 9000), 0, heads, d_head)
    same(found, 0, says="an empty state is reached by zero tokens")


@part(3)
def test_published_crossover(submission):
    mine = [submission.crossover_tokens(4096, 16, 8, 128), submission.crossover_tokens(4096, 16, 1, 128)]
    same(
        [*mine, submission.crossover_tokens(2560, 128, 8, 128)],
        [32, 256, 160],
        says="a 4096 x 16 state is 32 tokens of 8 heads",
    )


@part(3)
@pytest.mark.parametrize("place", range(4))
def test_negative_geometries_are_refused(submission, rng, place):
    draw = list(sizes(rng, (500, 9000), (5, 200), (2, 16), (16, 150)))
    draw[place] = -draw[place]
    with raises(ValueError, says=f"argument number {place + 1} is negative"):
        submission.crossover_tokens(*draw)


@part(1)
def test_part_one_takes_its_arguments_by_name(submission, reference, rng):
    for name, own in (("mha_cache_bytes", "n_heads"), ("gqa_cache_bytes", "n_kv_heads")):
        sizes = {key: rng.integers(2, 40) for key in ("n_layers", own, "d_head", "n_tokens", "dtype_bytes")}
        same(getattr(submission, name)(**sizes), getattr(reference, name)(**sizes), says=f"{name}, arguments by name")


@part(2)
def test_part_two_takes_its_arguments_by_name(submission, reference, rng):
    names = {
        "mla_cache_bytes": ("n_layers", "d_latent", "d_rope", "n_tokens", "dtype_bytes"),
        "window_cache_bytes": ("n_layers", "n_kv_heads", "d_head", "window", "n_tokens", "dtype_bytes"),
        "ssm_state_bytes": ("n_layers", "d_model", "d_state", "dtype_bytes"),
    }
    for name, keys in names.items():
        sizes = {key: rng.integers(2, 40) for key in keys}
        same(getattr(submission, name)(**sizes), getattr(reference, name)(**sizes), says=f"{name}, arguments by name")


@part(2)
def test_a_window_of_nothing_keeps_nothing(submission, rng):
    sizes = rng.integers(2, 40), rng.integers(2, 40), rng.integers(2, 40)
    try:
        kept = submission.window_cache_bytes(*sizes, 0, rng.integers(1, 99))
    except ValueError:
        return  # not to accept such a window is as good an answer
    same(kept, 0, says="a window of 0 tokens keeps 0 bytes")


@part(3)
def test_part_three_takes_its_arguments_by_name(submission, reference, rng):
    mine = submission.max_batch(hbm_bytes=1000, weight_bytes=rng.integers(1, 90), cache_bytes_per_sequence=100)
    same(mine, 9, says="max_batch, arguments by name")
    sizes = {"weight_bytes": rng.integers(2, 90), "cache_bytes": rng.integers(2, 90), "bandwidth": 1e4}
    mine, expected = (module.decode_tokens_per_second(**sizes) for module in (submission, reference))
    close(torch.tensor(mine), torch.tensor(expected), says="decode_tokens_per_second, arguments by name", dtype=False)
    sizes = {key: rng.integers(2, 40) for key in ("d_model", "d_state", "n_kv_heads", "d_head")}
    same(submission.crossover_tokens(**sizes), reference.crossover_tokens(**sizes), says="crossover, arguments by name")


@part(3)
@pytest.mark.parametrize("name", ["max_batch", "decode_tokens_per_second", "crossover_tokens"])
def test_a_negative_argument_does_not_hide_behind_another(submission, rng, name):
    good = {
        "max_batch": (900 + rng.integers(1, 99), 400 + rng.integers(1, 99), 7),
        "decode_tokens_per_second": (900 + rng.integers(1, 99), 400 + rng.integers(1, 99), 7 + rng.integers(1, 9)),
        "crossover_tokens": sizes(rng, (500, 9000), (5, 200), (2, 16), (16, 150)),
    }
    negatives_refused(submission, name, good[name])
    if name == "max_batch":
        with raises(ValueError, says="weights that do not fit, and a negative cache"):
            submission.max_batch(100, 200 + rng.integers(0, 9), -rng.integers(1, 9))
    if name == "decode_tokens_per_second":
        for place in range(3):
            draw = [3.0, 5.0, 8.0]
            draw[place] = -rng.uniform(0.1, 0.9)
            with raises(ValueError, says=f"{name}: argument number {place + 1} is between -1 and 0"):
                submission.decode_tokens_per_second(*draw)
