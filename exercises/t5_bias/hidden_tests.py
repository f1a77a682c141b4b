"""Hidden tests of T5's relative position bias."""

import math

import torch

# T5's published rule with 32 buckets and max_distance 128, as the first distance of each bucket after the exact ones.
BIDIRECTIONAL_STARTS = (8, 12, 16, 23, 32, 46, 64, 91)
CAUSAL_STARTS = (16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113)


def device_of(rng):
    """The device under test."""
    return rng.integers(0, 1, 1).device


def published(offset, bidirectional):
    """T5's bucket of one offset by its table."""
    starts = BIDIRECTIONAL_STARTS if bidirectional else CAUSAL_STARTS
    distance = abs(offset) if bidirectional else max(-offset, 0)
    bucket = distance if distance < starts[0] else starts[0] + sum(distance >= start for start in starts) - 1
    return bucket + (16 if bidirectional and offset > 0 else 0)


def clear_distances(per_direction, max_distance, limit):
    """Distances whose bucket no rounding can decide: their place on the log scale is far from a whole number."""
    exact = per_direction // 2
    kept = []
    for distance in range(limit):
        place = math.log(max(distance, exact) / exact) / math.log(max_distance / exact) * (per_direction - exact)
        if distance <= exact or abs(place - round(place)) > 1e-3:
            kept.append(distance)
    return kept


OTHERS = [(12, 50), (16, 100), (20, 70), (24, 90), (40, 300), (64, 200)]  # num_buckets, max_distance


def drawn_offsets(rng, per_direction, max_distance):
    """Clear offsets of both signs, shuffled."""
    distances = torch.tensor(clear_distances(per_direction, max_distance, 2 * max_distance))
    offsets = torch.cat([-distances, distances[1:]])
    return offsets[rng.permutation(len(offsets)).cpu()].to(device_of(rng))


@part(1)
def test_bidirectional_table_of_t5(submission, rng):
    offsets = torch.arange(-200, 201, device=device_of(rng))
    expected = torch.tensor([published(offset, True) for offset in range(-200, 201)]).to(offsets.device)
    same(submission.relative_position_bucket(offsets), expected, says="T5's encoder table for offsets -200 ... 200")


@part(1)
def test_causal_table_of_t5(submission, rng):
    offsets = torch.arange(-200, 201, device=device_of(rng))
    expected = torch.tensor([published(offset, False) for offset in range(-200, 201)]).to(offsets.device)
    mine = submission.relative_position_bucket(offsets, bidirectional=False)
    same(mine, expected, says="T5's decoder table for offsets -200 ... 200")


@part(1)
def test_the_nearest_keys_have_buckets_of_their_own(submission, rng):
    offsets = torch.tensor([0, -1, 1, -7, 7, -3, 3], device=device_of(rng))
    mine = submission.relative_position_bucket(offsets)
    same(mine.tolist(), [0, 1, 17, 7, 23, 3, 19], says="offsets 0, -1, 1, -7, 7, -3, 3 in an encoder")


@part(1)
def test_other_sizes_bidirectional(submission, reference, rng):
    for num_buckets, max_distance in OTHERS:
        offsets = drawn_offsets(rng, num_buckets // 2, max_distance)
        mine = submission.relative_position_bucket(offsets, True, num_buckets, max_distance)
        expected = reference.relative_position_bucket(offsets, True, num_buckets, max_distance)
        same(mine, expected, says=f"{num_buckets} buckets up to distance {max_distance}, both directions")


@part(1)
def test_other_sizes_causal(submission, reference, rng):
    for num_buckets, max_distance in OTHERS:
        offsets = drawn_offsets(rng, num_buckets, max_distance)
        mine = submission.relative_position_bucket(offsets, False, num_buckets, max_distance)
        expected = reference.relative_position_bucket(offsets, False, num_buckets, max_distance)
        same(mine, expected, says=f"{num_buckets} buckets up to distance {max_distance}, causal")


@part(1)
def test_buckets_do_not_depend_on_earlier_calls(submission, reference, rng):
    for num_buckets, max_distance in ((24, 90), (24, 200), (32, 90), (24, 90)):
        for bidirectional in (True, False):
            offsets = drawn_offsets(rng, num_buckets // 2 if bidirectional else num_buckets, max_distance)
            args = (offsets, bidirectional, num_buckets, max_distance)
            mine, expected = (module.relative_position_bucket(*args) for module in (submission, reference))
            same(mine, expected, says=f"called again with {num_buckets} buckets up to distance {max_distance}")


@part(1)
def test_far_keys_share_the_last_bucket_of_their_direction(submission, rng):
    offsets = torch.tensor([-(10**6), 40_000, -40_000, 129, -rng.integers(300, 9000), rng.integers(300, 9000)])
    offsets = offsets.to(device_of(rng))
    mine = submission.relative_position_bucket(offsets)
    same(mine.tolist(), [15, 31, 15, 31, 15, 31], says="far in the past: bucket 15, far in the future: 31")


@part(1)
def test_later_keys_of_a_decoder_share_bucket_zero(submission, rng):
    offsets = rng.integers(1, 5000, 9)
    mine = submission.relative_position_bucket(offsets, bidirectional=False)
    same(mine.tolist(), [0] * 9, says="keys after the query in a causal decoder")


@part(1)
def test_any_shape_and_layout(submission, reference, rng):
    offsets = rng.integers(-7, 8, 3, 5, 2)
    same(submission.relative_position_bucket(offsets), reference.relative_position_bucket(offsets), says="a 3-d tensor")
    for shape in ((2, 3, 2, 4), (1, 2, 1, 3, 2), (2, 0)):
        offsets = rng.integers(-7, 8, *shape)
        for bidirectional in (True, False):
            mine = submission.relative_position_bucket(offsets, bidirectional)
            expected = reference.relative_position_bucket(offsets, bidirectional)
            same(mine, expected, says=f"offsets of shape {shape}, bidirectional {bidirectional}")
    turned = rng.integers(-7, 8, 4, 6).t()
    mine = submission.relative_position_bucket(turned, False)
    same(mine, reference.relative_position_bucket(turned, False), says="a transposed view")


@part(1)
def test_narrow_integers_give_int64(submission, reference, rng):
    offsets = torch.arange(-60, 61, device=device_of(rng))
    for dtype in (torch.int32, torch.int16):
        for bidirectional in (True, False):
            mine = submission.relative_position_bucket(offsets.to(dtype), bidirectional)
            expected = reference.relative_position_bucket(offsets, bidirectional)
            same(mine, expected, says=f"offsets in {dtype}: the buckets are int64")


@part(1)
def test_buckets_without_gradients_and_by_name(submission, reference, rng):
    offsets = drawn_offsets(rng, 12, 90)
    with torch.no_grad():
        for bidirectional in (True, False):
            options = {"bidirectional": bidirectional, "num_buckets": 24 if bidirectional else 12, "max_distance": 90}
            mine = submission.relative_position_bucket(relative_position=offsets, **options)
            expected = reference.relative_position_bucket(offsets, **options)
            same(mine, expected, says=f"arguments by name, without gradients, bidirectional {bidirectional}")


@part(1)
def test_a_single_offset(submission, rng):
    for offset in (-5, 5, 0):
        mine = submission.relative_position_bucket(torch.tensor(offset, device=device_of(rng)))
        same(mine.tolist(), published(offset, True), says="a tensor without dimensions")


@part(1)
def test_buckets_are_made_where_the_positions_are(submission):
    offsets = torch.arange(-9, 9, device="meta")
    on_meta(
        lambda: submission.relative_position_bucket(offsets), says="the buckets must be on the device of the positions"
    )
    on_meta(lambda: submission.relative_position_bucket(offsets, False), says="the same for a decoder")


@part(2)
def test_bias_of_a_square_encoder(submission, reference, rng):
    mine, ref = pair(submission.RelativePositionBias, reference.RelativePositionBias, 3)
    close(mine(29, 29), ref(29, 29), says="an encoder's bias, 29 queries and keys")


@part(2)
def test_bias_reaches_the_log_buckets(submission, reference, rng):
    mine, ref = pair(submission.RelativePositionBias, reference.RelativePositionBias, 2)
    close(mine(150, 150), ref(150, 150), says="an encoder's bias, distances up to 149")


@part(2)
def test_bias_of_a_square_decoder(submission, reference, rng):
    mine, ref = pair(submission.RelativePositionBias, reference.RelativePositionBias, 3, bidirectional=False)
    for size in (37, 70):
        close(mine(size, size), ref(size, size), says=f"a decoder's bias, {size} queries and keys")


@part(2)
def test_fewer_queries_are_the_last_ones(submission, reference, rng):
    mine, ref = pair(submission.RelativePositionBias, reference.RelativePositionBias, 5, bidirectional=False)
    full = ref(23, 23)
    for q_len in (7, 2, 1):  # one query sees no later key, so that alone it cannot tell directions apart
        close(mine(q_len, 23), full[:, :, -q_len:], says=f"the last {q_len} rows of the bias of 23 positions")
    for q_len in (1, 5):
        close(mine(q_len, 5), ref(q_len, 5), says=f"{q_len} queries, as many keys as heads")


@part(2)
def test_chunked_encoder_rows_equal_the_whole(submission, reference, rng):
    mine, ref = pair(submission.RelativePositionBias, reference.RelativePositionBias, 4)
    close(mine(6, 19), ref(19, 19)[:, :, -6:], says="6 queries of 19 positions, both directions")


@part(2)
def test_one_query_and_one_key(submission, reference, rng):
    mine, ref = pair(submission.RelativePositionBias, reference.RelativePositionBias, 7)
    close(mine(1, 1), ref(1, 1), says="one position: bucket 0 of each head")


@part(2)
def test_one_head(submission, reference, rng):
    mine, ref = pair(submission.RelativePositionBias, reference.RelativePositionBias, 1)
    close(mine(4, 9), ref(4, 9), says="one head")


@part(2)
def test_long_sequences_decoded_in_any_dtype(submission, reference, rng):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        mine, ref = pair(submission.RelativePositionBias, reference.RelativePositionBias, 2, dtype=dtype)
        for q_len, k_len in ((3, 700), (2, 2500)):
            close(mine(q_len, k_len), ref(q_len, k_len), says=f"the last {q_len} of {k_len} positions, {dtype}")


@part(2)
def test_other_numbers_of_buckets(submission, reference, rng):
    for bidirectional in (True, False):
        args = (3, bidirectional, 12, 50)
        mine, ref = pair(submission.RelativePositionBias, reference.RelativePositionBias, *args)
        close(mine(9, 34), ref(9, 34), says=f"12 buckets up to distance 50, bidirectional {bidirectional}")


@part(2)
def test_another_max_distance(submission, reference, rng):
    mine, ref = pair(submission.RelativePositionBias, reference.RelativePositionBias, 2, max_distance=50)
    close(mine(40, 75), ref(40, 75), says="32 buckets up to distance 50")


@part(2)
def test_gradient_reaches_every_row_used(submission, reference, rng):
    for bidirectional in (True, False):
        mine, ref = pair(
            submission.RelativePositionBias, reference.RelativePositionBias, 3, bidirectional=bidirectional
        )
        for q_len, k_len in ((11, 26), (1, 9), (2, 140)):  # gradients add up
            weights = rng.normal(1, 3, q_len, k_len)
            bias = mine(q_len, k_len)
            check(bias.requires_grad, "the bias must carry a gradient back to the embedding", seen=bias.requires_grad)
            (bias * weights).sum().backward()
            (ref(q_len, k_len) * weights).sum().backward()
            got, expected = grads(mine)["embedding.weight"], grads(ref)["embedding.weight"]
            check(got is not None, "the embedding must receive a gradient", seen=got is None)
            says = f"gradient of the embedding, {q_len} queries, {k_len} keys, bidirectional {bidirectional}"
            close(got, expected, says=says)


@part(2)
def test_the_dtype_is_the_embedding_s(submission, reference, rng):
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        mine, ref = pair(submission.RelativePositionBias, reference.RelativePositionBias, 3, dtype=dtype)
        close(mine(13, 21), ref(13, 21), says=f"a module in {dtype}")


@part(2)
def test_the_bias_follows_the_weights(submission, reference, rng):
    mine, ref = pair(submission.RelativePositionBias, reference.RelativePositionBias, 3)
    close(mine.eval()(9, 14), ref(9, 14), says="the bias before the weights change")
    with torch.no_grad():
        ref.embedding.weight.add_(rng.normal(32, 3).cpu())
    mine.load_state_dict({name: tensor.detach() for name, tensor in ref.state_dict().items()})
    close(mine(9, 14), ref(9, 14), says="the same sizes after the weights changed")
    weights = rng.normal(1, 3, 9, 14)
    for module in (mine, ref):
        for _ in range(2):
            (module(9, 14) * weights).sum().backward()
    close(grads(mine)["embedding.weight"], grads(ref)["embedding.weight"], says="the gradient of two calls, added up")


@part(2)
def test_without_gradients_the_bias_follows_the_weights(submission, reference, rng):
    mine = submission.RelativePositionBias(3)
    with torch.no_grad():
        for turn in ("first", "second"):
            _, ref = pair(submission.RelativePositionBias, reference.RelativePositionBias, 3)
            mine.load_state_dict({name: tensor.clone() for name, tensor in ref.state_dict().items()})
            for _ in range(2):
                close(mine(q_len=9, k_len=14), ref(9, 14), says=f"without gradients, the {turn} weights")


@part(2)
def test_more_queries_than_keys_are_refused(submission, rng):
    k_len = rng.integers(1, 20)
    for extra in (1, rng.integers(2, 9)):
        with raises(ValueError, says=f"{k_len + extra} queries and {k_len} keys"):
            submission.RelativePositionBias(3)(k_len + extra, k_len)


@part(2)
def test_a_new_embedding_starts_as_torch_starts_it(submission, rng):
    weight = submission.RelativePositionBias(16).state_dict()["embedding.weight"]
    same(tuple(weight.shape), (32, 16), says="the embedding has a row per bucket and a column per head")
    spread = float(weight.float().std())
    check(0.7 < spread < 1.3, "a new nn.Embedding holds standard normal draws", seen=spread)
    largest = float(weight.abs().max())  # 512 normal draws stay below 1.8 once in 10^16 times
    check(largest > 1.8, "a new nn.Embedding holds standard normal draws, some of them beyond 1.8", seen=largest)
    least = float(weight.float().std(dim=1).min())
    check(least > 0.1, "every bucket of a new nn.Embedding starts with draws of its own", seen=least)
    other = submission.RelativePositionBias(16).state_dict()["embedding.weight"]
    apart = float((weight - other).abs().max())
    check(apart > 0.1, "two new modules start with different draws", seen=apart)


@part(2)
def test_calling_twice_keeps_nothing(submission, reference, rng):
    mine, ref = pair(submission.RelativePositionBias, reference.RelativePositionBias, 3, bidirectional=False)
    mine(17, 17)
    for q_len, k_len in ((5, 12), (1, 19), (1, 12), (14, 14)):
        says = f"{q_len} queries and {k_len} keys, after calls with other lengths"
        close(mine(q_len, k_len), ref(q_len, k_len), says=says)


@part(2)
def test_the_bias_is_made_on_the_embedding_s_device(submission):
    module = submission.RelativePositionBias(3).to("meta")
    on_meta(lambda: module(4, 9), says="the bias must be made on the device of the embedding")


# ------------------------------------------------------------- second paths: odd, many and far buckets, evaluation


@part(1)
def test_odd_and_many_buckets(submission, reference, rng):
    for bidirectional, n_buckets, max_distance in (
        (False, 9, 100),
        (True, 6, 100),
        (True, 14, 300),
        (False, 320, 200),
        (True, 64, 3000),
        (False, 150, 5000),
    ):
        n = n_buckets // 2 if bidirectional else n_buckets
        e = n // 2
        d = torch.arange(1, max_distance + 3)
        level = torch.log(d.double() / e) / math.log(max_distance / e) * (n - e)
        # where floating point could decide the bucket is left out
        d = d[(d <= e) | (d >= max_distance + 1) | ((level - level.round()).abs() > 2e-3)]
        d = torch.cat([-d, d])[rng.permutation(2 * len(d))]
        arguments = d, bidirectional, n_buckets, max_distance
        got, expected = submission.relative_position_bucket(*arguments), reference.relative_position_bucket(*arguments)
        same(got, expected, says=f"{n_buckets} buckets, max_distance {max_distance}, bidirectional={bidirectional}")


@part(1)
def test_positions_millions_away(submission, reference, rng):
    far = torch.tensor([-3_000_000, 3_000_000, -rng.integers(10**6, 10**8), 7])
    for positions in (far, far.int()):
        for bidirectional in (True, False):
            got = submission.relative_position_bucket(positions, bidirectional)
            expected = reference.relative_position_bucket(positions, bidirectional)
            same(got, expected, says=f"{positions.tolist()} as {positions.dtype}, bidirectional={bidirectional}")


@part(2)
def test_bias_in_evaluation_without_gradients(submission, reference, rng):
    mine, ref = pair(submission.RelativePositionBias, reference.RelativePositionBias, 3)
    mine.eval()
    with torch.no_grad():
        for q_len in (5, 1, 5):
            close(mine(q_len, 9), ref(q_len, 9), says=f"{q_len} queries, 9 keys, in evaluation mode under no_grad")
            ref.embedding.weight.mul_(-7.0)
            mine.load_state_dict({name: tensor.detach() for name, tensor in ref.state_dict().items()})
            close(mine(q_len, 9), ref(q_len, 9), says=f"{q_len} queries, 9 keys, after the weights changed")


@part(2)
def test_one_query_of_no_key_is_refused(submission):
    with raises(ValueError, says="one query, no key"):
        submission.RelativePositionBias(2)(1, 0)
