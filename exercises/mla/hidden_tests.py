"""Hidden tests of `mla`.

Every result is compared with the reference, never with another result of the submission, so that a mistake in
one path does not make another path look wrong.
"""

import pytest
import torch

SIZES = (20, 3, 6, 7, 4)  # d_model, n_heads, d_head, d_latent, d_rope
WIDE = (14, 2, 9, 5, 8)


def layers(submission, reference, sizes=SIZES, **kwargs):
    return pair(submission.MultiHeadLatentAttention, reference.MultiHeadLatentAttention, *sizes, **kwargs)


def same_gradients(mine, ref, names=None):
    got, expected = grads(mine), grads(ref)
    for name, gradient in expected.items():
        if names is None or name in names:
            check(got.get(name) is not None, f"a gradient reaches {name}")
            close(got[name], gradient, says=f"the gradient of {name}", tol=1e-3)


def saturated(ref, rng, past):
    """x and a cache with scores so large that one key wins by far: y is then proportional to both.

    The cache holds the first token's latent and key, larger, so that often a token sees none but very low scores.
    """
    for _ in range(200):
        x = rng.normal(3, 6, 20, dtype=torch.float64) * 200
        cache = tuple(plain(tensor[:, :1].repeat(1, past, 1)) * 1.5 for tensor in ref(x, use_cache=True)[1])
        once, more = ref(x, cache)[0], ref(x * 1.01, tuple(tensor * 1.01 for tensor in cache))[0]
        if (more - 1.01 * once).abs().max() < 1e-7 * once.abs().max():
            break
    return x, cache


def random_cache(rng, length, sizes=SIZES, batch=2, dtype=torch.float32):
    return rng.normal(batch, length, sizes[3], dtype=dtype), rng.normal(batch, length, sizes[4], dtype=dtype)


# ------------------------------------------------------------------------------------------------ part 1


@part(1)
def test_forward_values(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x = rng.normal(2, 5, 20) * 1.5
    y, cache = mine(x)
    close(y, ref(x)[0], says="attention over the whole sequence")
    same(cache, None, says="no cache unless it is asked for")


@part(1)
def test_forward_values_with_more_rotary_pairs(submission, reference, rng):
    mine, ref = layers(submission, reference, WIDE)
    x = rng.normal(2, 13, 14) * 1.5
    close(mine(x)[0], ref(x)[0], says="thirteen tokens, four rotary pairs per head")


@part(1)
def test_forward_of_other_sizes(submission, reference, rng):
    for sizes in ((10, 1, 4, 3, 2), (9, 4, 2, 16, 6), (8, 2, 5, 1, 2), (8, 3, 1, 5, 4), (6, 1, 2, 3, 64)):
        mine, ref = layers(submission, reference, sizes)
        x = rng.normal(2, 6, sizes[0]) * 1.5
        close(mine(x)[0], ref(x)[0], says=f"d_model, n_heads, d_head, d_latent, d_rope = {sizes}")


@part(1)
def test_forward_of_one_token(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x = rng.normal(3, 5, 20) * 1.5
    # Beside it all five: of one token alone, several mistakes look the same.
    y, expected = (torch.cat([layer(x[:, :1])[0], layer(x)[0]], 1) for layer in (mine, ref))
    close(y, expected, says="T = 1: a token alone reads its own value (row 0; then the sequence that it starts)")


@part(1)
def test_forward_does_not_see_the_future(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x = rng.normal(2, 6, 20) * 1.5
    changed = x.clone()
    changed[:, 4:] = rng.normal(2, 2, 20) * 4
    close(mine(changed)[0][:, :4], ref(x)[0][:, :4], says="the first four results do not depend on later tokens")
    changed[:, 4:] *= 3e4
    says = "the first four results do not depend on later tokens, however large their scores"
    close(mine(changed)[0][:, :4], ref(x)[0][:, :4], says=says)


@part(1)
def test_forward_gradients(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x, w = rng.normal(2, 5, 20) * 1.5, rng.normal(2, 5, 20)
    a, b = plain(x).requires_grad_(), plain(x).requires_grad_()
    y, expected = mine(a)[0], ref(b)[0]
    close(y, expected, says="the result")
    (y * w).sum().backward()
    (expected * w).sum().backward()
    check(a.grad is not None, "a gradient reaches x")
    close(a.grad, b.grad, says="the gradient of x", tol=1e-3)
    same_gradients(mine, ref)


@part(1)
def test_forward_of_a_long_sequence(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x, w = rng.normal(1, 531, 20) * 1.5, rng.normal(1, 531, 20)
    mine_x, ref_x = plain(x).requires_grad_(), plain(x).requires_grad_()
    y, expected = mine(mine_x)[0], ref(ref_x)[0]
    close(y, expected, says="531 tokens at once", tol=1e-3)
    (y * w).sum().backward()
    (expected * w).sum().backward()
    check(mine_x.grad is not None, "a gradient reaches x")
    close(mine_x.grad, ref_x.grad, says="the gradient of 531 tokens", tol=1e-3)
    same_gradients(mine, ref)


@part(1)
def test_forward_with_sharp_attention(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x = rng.normal(2, 6, 20) * 25
    close(mine(x)[0], ref(x)[0], says="scores of several hundred", tol=5e-3)


@part(1)
def test_forward_with_very_large_scores(submission, reference, rng):
    mine, ref = layers(submission, reference, dtype=torch.float64)
    x, _ = saturated(ref, rng, 0)
    close(mine(x)[0], ref(x)[0], says="inputs 200 times as large, in float64", tol=1e-5)


@part(1)
def test_forward_in_other_dtypes(submission, reference, rng):
    for dtype, tol in ((torch.float64, 1e-5), (torch.bfloat16, 8e-2)):
        mine, ref = layers(submission, reference, dtype=dtype)
        x = rng.normal(2, 5, 20, dtype=dtype)
        close(mine(x)[0], ref(x)[0], says=f"the layer in {dtype}", tol=tol)


@part(1)
def test_forward_of_a_non_contiguous_tensor(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x = (rng.normal(5, 2, 20) * 1.5).transpose(0, 1)
    close(mine(x)[0], ref(x)[0], says="x is a transposed view")


@part(1)
def test_forward_keeps_no_state(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x, other = rng.normal(2, 5, 20) * 1.5, rng.normal(1, 7, 20) * 1.5
    for tensor in (x, other, x[:, :3]):
        close(mine(tensor)[0], ref(tensor)[0], says="a call does not depend on earlier ones")


@part(1)
def test_forward_of_two_tokens(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x = rng.normal(3, 6, 20) * 1.5
    y, expected = (torch.cat([layer(x[:, :2])[0], layer(x)[0]], 1) for layer in (mine, ref))
    close(y, expected, says="T = 2: the first token does not see the second (rows 0 and 1; then all 6 tokens)")


@part(1)
def test_forward_in_evaluation(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x = rng.normal(2, 5, 20) * 1.5
    close(mine.eval()(x)[0], ref(x)[0], says="in evaluation mode")


@part(1)
def test_forward_after_a_move_uses_nothing_old(submission, reference, rng):
    mine, ref = layers(submission, reference, dtype=torch.bfloat16)
    x = rng.normal(2, 5, 20, dtype=torch.bfloat16) * 1.5
    close(mine(x)[0], ref(x)[0], says="a bfloat16 call", tol=6e-2)
    x, ref = x.to(torch.float64), ref.to(torch.float64)
    close(mine.to(torch.float64)(x)[0], ref(x)[0], says="the same layer in float64, after a bfloat16 call", tol=1e-5)
    mine.to("meta")
    on_meta(
        lambda: mine(torch.empty(2, 5, 20, device="meta", dtype=torch.float64))[0],
        says="the layer was moved after a call of the same size, and what it kept stayed on the old device",
    )


@part(1)
def test_odd_rotary_width_is_refused(submission, rng):
    with raises(ValueError, says="an odd d_rope"):
        submission.MultiHeadLatentAttention(12, 2, 4, 6, rng.choice((3, 5)))
    with raises(ValueError, says="d_rope = 1 is odd too"):
        submission.MultiHeadLatentAttention(12, 2, 4, 6, 1)


@part(1)
def test_forward_follows_the_device_of_its_input(submission):
    layer = submission.MultiHeadLatentAttention(*SIZES)
    layer.to("meta")
    on_meta(lambda: layer(torch.randn(2, 5, 20, device="meta"))[0])


# ------------------------------------------------------------------------------------------------ part 2


@part(2)
def test_prefill_returns_latents_and_rotated_keys(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x = rng.normal(2, 5, 20)
    _, cache = mine(x, None, True)
    expected = ref(x, use_cache=True)[1]
    check(cache is not None, "use_cache=True returns a cache")
    shapes = tuple(tuple(tensor.shape) for tensor in cache)
    same(shapes, ((2, 5, 7), (2, 5, 4)), says="the shapes of (latent, rotated shared key)")
    close(cache[0], expected[0], says="the cached latents")
    close(cache[1], expected[1], says="the cached shared keys, rotated at their own positions")


@part(2)
def test_chunk_over_a_given_cache(submission, reference, rng):
    mine, ref = layers(submission, reference)
    cache = random_cache(rng, rng.integers(4, 9))
    x = rng.normal(2, 3, 20) * 1.5
    y, nothing = mine(x, cache)
    close(y, ref(x, cache)[0], says="three new tokens over a cache")
    same(nothing, None, says="no cache is returned unless it is asked for")
    for length in (3, 2):
        cache = random_cache(rng, length)
        close(mine(x, cache)[0], ref(x, cache)[0], says=f"three new tokens over a cache of {length}")


@part(2)
@pytest.mark.parametrize(
    "sizes, batch, learning", [(SIZES, 1, True), ((10, 1, 4, 3, 2), 2, True), ((20, 3, 4, 7, 6), 3, False)]
)
def test_as_many_positions_are_split_otherwise(submission, reference, rng, sizes, batch, learning):
    mine, ref = layers(submission, reference, sizes)
    mine.train(learning)
    with torch.set_grad_enabled(learning):
        for past, T in ((4, 1), (2, 3), (1, 4), (5, 2)):
            cache, x = random_cache(rng, past, sizes, batch), rng.normal(batch, T, sizes[0]) * 1.5
            says = f"tokens over a cache of {past}, {batch} sequences, d_model, n_heads, d_head, d_latent, d_rope ="
            close(mine(x, cache)[0], ref(x, cache)[0], says=f"{T} {says} {sizes}")


@part(2)
def test_chunk_with_very_large_scores(submission, reference, rng):
    mine, ref = layers(submission, reference, dtype=torch.float64)
    x, cache = saturated(ref, rng, 2)
    says = "six tokens over a cache of two, inputs 200 times as large, in float64"
    close(mine(x, cache)[0], ref(x, cache)[0], says=says, tol=1e-5)


@part(2)
def test_chunk_returns_the_extended_cache(submission, reference, rng):
    mine, ref = layers(submission, reference)
    cache = random_cache(rng, rng.integers(4, 9))
    x = rng.normal(2, 3, 20) * 1.5
    y, extended = mine(x, cache=cache, use_cache=True)
    expected_y, expected = ref(x, cache=cache, use_cache=True)
    close(y, expected_y, says="three new tokens over a cache")
    check(extended is not None, "use_cache=True returns a cache")
    close(extended[0], expected[0], says="old and new latents")
    close(extended[1], expected[1], says="old keys as they were, new keys rotated at their positions")


@part(2)
def test_one_token_over_a_given_cache(submission, reference, rng):
    mine, ref = layers(submission, reference)
    cache = random_cache(rng, rng.integers(4, 9))
    x = rng.normal(2, 1, 20) * 1.5
    close(mine(x, cache)[0], ref(x, cache)[0], says="one new token reads the whole cache and itself")


@part(2)
def test_chunked_prefill_equals_the_whole(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x = rng.normal(2, 8, 20) * 1.5
    whole, expected_cache = ref(x, use_cache=True)
    cut = rng.integers(2, 6)
    first, cache = mine(x[:, :cut], use_cache=True)
    second, cache = mine(x[:, cut:], cache=cache, use_cache=True)
    close(first, whole[:, :cut], says="the first chunk")
    close(second, whole[:, cut:], says="the second chunk, over the cache of the first")
    close(cache, expected_cache, says="the cache after both chunks")


@part(2)
def test_a_cache_that_is_not_contiguous(submission, reference, rng):
    mine, ref = layers(submission, reference)
    cache = tuple(tensor.transpose(0, 1) for tensor in (rng.normal(6, 2, 7), rng.normal(6, 2, 4)))
    x = rng.normal(2, 3, 20) * 1.5
    close(mine(x, cache)[0], ref(x, cache)[0], says="cached tensors that are transposed views")


@part(2)
def test_token_by_token_equals_the_whole(submission, reference, rng):
    mine, ref = layers(submission, reference, WIDE)
    x = rng.normal(2, 6, 14) * 1.5
    whole, _ = ref(x)
    _, cache = mine(x[:, :2], use_cache=True)
    for t in range(2, 6):
        y, cache = mine(x[:, t : t + 1], cache=cache, use_cache=True)
        close(y, whole[:, t : t + 1], says=f"token {t} over the cache")


@part(2)
def test_empty_cache_is_a_prefill(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x = rng.normal(2, 4, 20) * 1.5
    empty = random_cache(rng, 0)
    y, cache = mine(x, cache=empty, use_cache=True)
    expected, expected_cache = ref(x, use_cache=True)
    close(y, expected, says="a cache of length 0")
    close(cache, expected_cache, says="the cache that grew from nothing")


@part(2)
def test_one_cache_continued_twice(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x, left, right = rng.normal(2, 5, 20) * 1.5, rng.normal(2, 2, 20), rng.normal(2, 3, 20)
    _, cache = mine(x, use_cache=True)
    expected_cache = ref(x, use_cache=True)[1]
    for branch in (left, right, left):
        y, _ = mine(branch, cache=cache, use_cache=True)
        close(y, ref(branch, expected_cache)[0], says="one cache, continued in several ways")


@part(2)
def test_gradients_through_the_cache(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x, later, w = rng.normal(2, 4, 20) * 1.5, rng.normal(2, 2, 20) * 1.5, rng.normal(2, 2, 20)
    slopes = []
    for layer in (mine, ref):
        first = plain(x).requires_grad_()
        _, cache = layer(first, use_cache=True)
        y, _ = layer(later, cache=cache, use_cache=True)
        if layer is mine:
            close(y, ref(later, ref(x, use_cache=True)[1])[0], says="the second chunk")
        (y * w).sum().backward()
        slopes.append(first.grad)
    check(slopes[0] is not None, "a loss on the second chunk reaches the tokens of the first")
    close(slopes[0], slopes[1], says="the gradient of the first chunk, through the cache", tol=1e-3)
    same_gradients(mine, ref)


@part(2)
@pytest.mark.parametrize("training", [True, False])
def test_gradients_reach_a_given_cache(submission, reference, rng, training):
    mine, ref = layers(submission, reference)
    mine.train(training)
    given, x, w = random_cache(rng, 5), rng.normal(2, 3, 20), rng.normal(2, 3, 20)
    slopes = []
    for layer in (mine, ref):
        cache = tuple(plain(tensor).requires_grad_() for tensor in given)
        (layer(x, cache)[0] * w).sum().backward()
        slopes.append(tuple(tensor.grad for tensor in cache))
    check(all(slope is not None for slope in slopes[0]), "gradients reach both cached tensors")
    close(slopes[0], slopes[1], says="the gradients of (latent, key)", tol=1e-3)


@part(2)
def test_gradients_of_the_returned_cache(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x, w_latent, w_key = rng.normal(2, 4, 20), rng.normal(2, 4, 7), rng.normal(2, 4, 4)
    slopes = []
    for layer in (mine, ref):
        inputs = plain(x).requires_grad_()
        _, (latent, key) = layer(inputs, use_cache=True)
        check(latent.requires_grad and key.requires_grad, "the cache that is returned carries gradients")
        ((latent * w_latent).sum() + (key * w_key).sum()).backward()
        slopes.append(inputs.grad)
    close(slopes[0], slopes[1], says="the gradient of x through the returned cache", tol=1e-3)
    same_gradients(mine, ref, names=("kv_down.weight", "k_rope.weight"))


@part(2)
def test_cached_forward_in_bfloat16(submission, reference, rng):
    mine, ref = layers(submission, reference, dtype=torch.bfloat16)
    cache, x = random_cache(rng, 5, dtype=torch.bfloat16), rng.normal(2, 2, 20, dtype=torch.bfloat16)
    y, extended = mine(x, cache, use_cache=True)
    expected, expected_cache = ref(x, cache, use_cache=True)
    close(y, expected, says="a bfloat16 chunk over a cache", tol=8e-2)
    close(extended, expected_cache, says="the bfloat16 cache", tol=6e-2)


@part(2)
def test_forward_over_a_long_cache(submission, reference, rng):
    mine, ref = layers(submission, reference)
    cache, x = random_cache(rng, 4200), rng.normal(2, 4, 20) * 1.5
    y, extended = mine(x, cache, use_cache=True)
    expected, expected_cache = ref(x, cache, use_cache=True)
    close(y, expected, says="four tokens over 4200 cached ones", tol=1e-3)
    close(extended[1][:, -4:], expected_cache[1][:, -4:], says="new shared keys at positions 4200 to 4203", tol=1e-3)
    close(extended, expected_cache, says="the cache of all 4204 positions", tol=1e-3)


@part(2)
def test_half_precision_keys_far_from_the_start(submission, reference, rng):
    mine, ref = layers(submission, reference, WIDE, dtype=torch.bfloat16)
    length = 600 + 2 * rng.integers(0, 40) + 1
    cache = random_cache(rng, length, WIDE, dtype=torch.bfloat16)
    x = rng.normal(2, 1, 14, dtype=torch.bfloat16) * 1.5
    key, expected = mine(x, cache, use_cache=True)[1][1][:, -1:], ref(x, cache, use_cache=True)[1][1][:, -1:]
    close(key, expected, says=f"the shared key at position {length} in bfloat16: angles are float32", tol=6e-2)


@part(2)
def test_cached_forward_follows_the_device(submission):
    layer = submission.MultiHeadLatentAttention(*SIZES)
    layer.to("meta")
    cache = (torch.randn(2, 4, 7, device="meta"), torch.randn(2, 4, 4, device="meta"))
    on_meta(lambda: layer(torch.randn(2, 3, 20, device="meta"), cache, use_cache=True)[1])


@part(2)
def test_numbers_in_the_cache_per_token(submission, rng):
    sizes = [(8, rng.integers(2, 5), rng.integers(2, 9), rng.integers(3, 20), 2 * rng.integers(1, 6)) for _ in range(4)]
    counts = [submission.MultiHeadLatentAttention(*size).cache_numbers_per_token() for size in sizes]
    same(counts, [size[3] + size[4] for size in sizes], says=f"cached numbers per token for {sizes}")
    wide = submission.MultiHeadLatentAttention(4, 1, 2, 600, 2).cache_numbers_per_token()
    same(wide, 602, says="a latent wider than DeepSeek-V2's: d_latent = 600, d_rope = 2")
    deepseek = submission.MultiHeadLatentAttention(4, 3, 128, 512, 64).cache_numbers_per_token()
    same(deepseek, 576, says="the widths of DeepSeek-V2: d_latent = 512, d_rope = 64")


# ------------------------------------------------------------------------------------------------ part 3


@part(3)
def test_decode_equals_forward_on_a_given_cache(submission, reference, rng):
    for sizes in (SIZES, WIDE):
        mine, ref = layers(submission, reference, sizes)
        cache = random_cache(rng, rng.integers(4, 9), sizes)
        x = rng.normal(2, 1, sizes[0]) * 1.5
        close(mine.decode(x, cache)[0], ref(x, cache)[0], says=f"one decoded token, sizes {sizes}")


@part(3)
def test_decode_of_other_sizes(submission, reference, rng):
    cases = (
        ((10, 3, 4, 3, 2), 1),
        ((9, 1, 5, 4, 6), 2),
        ((8, 3, 1, 5, 2), 2),
        ((8, 2, 5, 1, 4), 2),
        ((7, 2, 6, 6, 4), 2),
    )
    for sizes, batch in cases:
        mine, ref = layers(submission, reference, sizes)
        cache = random_cache(rng, rng.integers(4, 9), sizes, batch)
        x = rng.normal(batch, 1, sizes[0]) * 1.5
        says = f"d_model, n_heads, d_head, d_latent, d_rope = {sizes}, {batch} sequences"
        close(mine.decode(x, cache)[0], ref(x, cache)[0], says=says)


@part(3)
def test_decode_returns_the_extended_cache(submission, reference, rng):
    mine, ref = layers(submission, reference)
    cache = random_cache(rng, rng.integers(4, 9))
    x = rng.normal(2, 1, 20) * 1.5
    _, extended = mine.decode(x_t=x, cache=cache)
    expected = ref(x, cache, use_cache=True)[1]
    close(extended[0], expected[0], says="old and new latents")
    close(extended[1], expected[1], says="old keys as they were, the new one rotated at its position")


@part(3)
def test_several_decode_steps(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x = rng.normal(2, 8, 20) * 1.5
    whole, _ = ref(x)
    cache = ref(x[:, :4], use_cache=True)[1]
    for t in range(4, 8):
        y, cache = mine.decode(x[:, t : t + 1], cache)
        close(y, whole[:, t : t + 1], says=f"decode step at position {t}")


@part(3)
def test_decode_from_an_empty_cache(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x = rng.normal(2, 3, 20) * 1.5
    whole, _ = ref(x)
    cache, steps = random_cache(rng, 0), []
    for t in range(3):
        y, cache = mine.decode(x[:, t : t + 1], cache)
        steps.append(y)
    close(torch.cat(steps, 1), whole, says="decoding from nothing, positions 0 to 2")


@part(3)
def test_forward_and_decode_share_their_cache(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x = rng.normal(2, 7, 20) * 1.5
    whole, expected_cache = ref(x, use_cache=True)
    _, cache = mine(x[:, :3], use_cache=True)
    y, cache = mine.decode(x[:, 3:4], cache)
    close(y, whole[:, 3:4], says="decode after a prefill")
    y, cache = mine(x[:, 4:6], cache=cache, use_cache=True)
    close(y, whole[:, 4:6], says="a chunk after decode")
    y, cache = mine.decode(x[:, 6:7], cache)
    close(y, whole[:, 6:7], says="decode after the chunk")
    close(cache, expected_cache, says="the cache at the end")


@part(3)
def test_one_cache_decoded_twice(submission, reference, rng):
    mine, ref = layers(submission, reference)
    cache = random_cache(rng, 5)
    left, right = rng.normal(2, 1, 20) * 1.5, rng.normal(2, 1, 20) * 1.5
    for token in (left, right, left):
        close(mine.decode(token, cache)[0], ref(token, cache)[0], says="one cache, continued in several ways")


@part(3)
def test_decode_gradients(submission, reference, rng):
    mine, ref = layers(submission, reference)
    given, x, w = random_cache(rng, 5), rng.normal(2, 1, 20) * 1.5, rng.normal(2, 1, 20)
    found = []
    for step in (mine.decode, ref.decode):
        token, cache = plain(x).requires_grad_(), tuple(plain(tensor).requires_grad_() for tensor in given)
        y = step(token, cache)[0]
        close(y, ref(x, given)[0], says="the decoded token")
        (y * w).sum().backward()
        found.append((token.grad, cache[0].grad, cache[1].grad))
    check(all(slope is not None for slope in found[0]), "gradients reach the token and both cached tensors")
    close(found[0], found[1], says="the gradients of token, latent and key", tol=1e-3)
    same_gradients(mine, ref)


@part(3)
def test_decode_gradients_in_evaluation(submission, reference, rng):
    mine, ref = layers(submission, reference)
    mine.eval()
    given, x, w = random_cache(rng, 5), rng.normal(2, 1, 20) * 1.5, rng.normal(2, 1, 20)
    slopes = []
    for step in (mine.decode, ref.decode):
        token, latent, key = (plain(tensor).requires_grad_() for tensor in (x, *given))
        y = step(token, (latent, key))[0]
        check(y.requires_grad, "decode carries gradients in evaluation mode too: eval() is not no_grad()")
        (y * w).sum().backward()
        slopes.append((token.grad, latent.grad, key.grad))
    check(all(slope is not None for slope in slopes[0]), "gradients reach token and cache in evaluation mode too")
    close(slopes[0], slopes[1], says="the gradients of token, latent and key, in evaluation mode", tol=1e-3)


@part(3)
def test_without_gradients_too(submission, reference, rng):
    mine, ref = layers(submission, reference)
    cache = random_cache(rng, 5)
    left, right = rng.normal(2, 1, 20) * 1.5, rng.normal(2, 1, 20) * 1.5
    with torch.no_grad():
        for token in (left, right):
            says = "under no_grad, one cache continued twice"
            close(mine.decode(token, cache), ref.decode(token, cache), says=f"a decode step {says}")
            expected = ref(token, cache, use_cache=True)
            close(mine(token, cache, use_cache=True), expected, says=f"a forward {says}")
            same(mine(token, cache)[1], None, says="no cache is returned unless it is asked for, under no_grad too")
        for batch in (2, 1):  # as long as the cache that was returned last, and not that one
            token, cache = rng.normal(batch, 1, 20) * 1.5, random_cache(rng, 6, batch=batch)
            says = f"a decode step under no_grad, {batch} sequences over another cache"
            close(mine.decode(token, cache), ref.decode(token, cache), says=says)


@part(3)
def test_gradients_through_the_cache_that_decode_returns(submission, reference, rng):
    mine, ref = layers(submission, reference)
    x, w = rng.normal(2, 2, 20) * 1.5, rng.normal(2, 1, 20)
    given = random_cache(rng, 4)
    slopes = []
    for step in (mine.decode, ref.decode):
        first = plain(x[:, :1]).requires_grad_()
        _, cache = step(first, given)
        y, _ = step(x[:, 1:], cache)
        close(y, ref(x, given)[0][:, 1:], says="the second decode step")
        (y * w).sum().backward()
        slopes.append(first.grad)
    check(slopes[0] is not None, "a loss on the second step reaches the token of the first")
    close(slopes[0], slopes[1], says="the gradient of the first token", tol=1e-3)


@part(3)
def test_decode_uses_the_weights_of_now(submission, reference, rng):
    mine, ref = layers(submission, reference)
    cache, x = random_cache(rng, 5), rng.normal(2, 1, 20) * 1.5
    close(mine.decode(x, cache)[0], ref(x, cache)[0], says="decode before the weights change")
    for learning in (True, False):
        with torch.set_grad_enabled(learning):
            mine.train(learning)
            close(mine.decode(x, cache)[0], ref(x, cache)[0], says="decode before the weights change once more")
            with torch.no_grad():
                for parameter in ref.parameters():
                    parameter.mul_(1.25)
            mine.load_state_dict({name: tensor.detach() for name, tensor in ref.state_dict().items()})
            when = "" if learning else ", in evaluation mode under no_grad"
            close(mine.decode(x, cache)[0], ref(x, cache)[0], says=f"decode after the weights changed{when}")


@part(3)
def test_decode_in_other_dtypes(submission, reference, rng):
    for dtype, tol in ((torch.float64, 1e-5), (torch.bfloat16, 8e-2)):
        mine, ref = layers(submission, reference, dtype=dtype)
        cache, x = random_cache(rng, 5, dtype=dtype), rng.normal(2, 1, 20, dtype=dtype)
        y, extended = mine.decode(x, cache)
        close(y, ref.decode(x, cache)[0], says=f"decode in {dtype}", tol=tol)
        same([str(tensor.dtype) for tensor in extended], [str(dtype)] * 2, says="the cache keeps its dtype")


@part(3)
def test_decode_over_a_long_cache(submission, reference, rng):
    mine, ref = layers(submission, reference)
    mine.eval()
    cache, x = random_cache(rng, 4200), rng.normal(2, 1, 20) * 1.5
    y, extended = mine.decode(x, cache)
    expected, expected_cache = ref(x, cache, use_cache=True)
    close(y, expected, says="one decoded token over 4200 cached ones, in evaluation mode", tol=1e-3)
    close(extended[0], expected_cache[0], says="the latents of all positions", tol=1e-3)
    close(extended[1], expected_cache[1], says="the keys of all positions, the new one rotated at 4200", tol=1e-3)


@part(3)
def test_decode_in_bfloat16_far_from_the_start(submission, reference, rng):
    mine, ref = layers(submission, reference, WIDE, dtype=torch.bfloat16)
    length = 600 + 2 * rng.integers(0, 40) + 1
    cache = random_cache(rng, length, WIDE, dtype=torch.bfloat16)
    x = rng.normal(2, 1, 14, dtype=torch.bfloat16) * 1.5
    key, expected = mine.decode(x, cache)[1][1][:, -1:], ref(x, cache, use_cache=True)[1][1][:, -1:]
    close(key, expected, says=f"the shared key at position {length} in bfloat16: angles are float32", tol=6e-2)


@part(3)
def test_decode_with_sharp_attention(submission, reference, rng):
    mine, ref = layers(submission, reference)
    steps, whole = [], []
    for scale in (25, 1.5):  # beside the sharp one a mild one: with one key each, several mistakes look the same
        x = rng.normal(3, 6, 20) * scale
        cache = tuple(plain(tensor) for tensor in ref(x[:, :5], use_cache=True)[1])
        steps.append(mine.decode(x[:, 5:], cache)[0] / scale)
        whole.append(ref(x)[0][:, 5:] / scale)
    close(torch.cat(steps), torch.cat(whole), says="scores of several hundred (first 3 rows), and mild ones", tol=5e-3)


@part(3)
def test_decode_follows_the_device_of_its_input(submission):
    layer = submission.MultiHeadLatentAttention(*SIZES)
    layer.to("meta")
    cache = (torch.randn(2, 4, 7, device="meta"), torch.randn(2, 4, 4, device="meta"))
    on_meta(lambda: layer.decode(torch.randn(2, 1, 20, device="meta"), cache)[0])
