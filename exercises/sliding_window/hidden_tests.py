"""Hidden tests of `sliding_window`."""

import math

import pytest
import torch


def random_mask(rng, n_queries, n_keys):
    """A bool mask in which every query has a visible and a blocked key, one has several; above the diagonal too."""
    while True:
        mask = rng.uniform(0.0, 1.0, n_queries, n_keys) < 0.5
        counts = mask.sum(dim=1)
        if bool((counts > 0).all() and (counts < n_keys).all() and counts.max() > 1 and mask.triu(1).any()):
            return mask


def same_mask(mask, expected, says):
    """The dtype first; then row i as the numbers 1 + j of its visible keys, which a failure can show."""
    check(mask.dtype == torch.bool, f"{says}: a mask is torch.bool", seen=str(mask.dtype))
    numbers = torch.arange(1, expected.shape[-1] + 1)
    same(torch.where(mask.cpu(), numbers, 0), torch.where(expected, numbers, 0), says=f"{says} (visible keys, from 1)")


# ------------------------------------------------------------------------------------------------ part 1


@part(1)
def test_window_mask_holds_the_last_keys_of_each_query(submission, reference, rng):
    for _ in range(3):
        window = rng.integers(3, 6)
        T = window + rng.integers(3, 8)
        same_mask(
            submission.sliding_window_mask(T, window),
            reference.sliding_window_mask(T, window),
            says=f"the mask for T = {T} and window = {window}",
        )


@part(1)
def test_window_counts_the_query_itself(submission, rng):
    T = rng.integers(5, 11)
    same(
        submission.sliding_window_mask(T, 1),
        torch.eye(T, dtype=torch.bool),
        says="a window of 1 lets each query read itself and nothing else",
    )
    mask = submission.sliding_window_mask(5, 2)
    same(mask.sum(dim=1).tolist(), [1, 2, 2, 2, 2], says="keys per query for T = 5 and window = 2")


@part(1)
def test_window_as_long_as_the_sequence_is_plain_causal(submission, rng):
    T = rng.integers(4, 9)
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    for window in (T, T + 1, 10 * T):
        same(submission.sliding_window_mask(T, window), causal, says=f"T = {T}, window = {window} hides no past key")
    same(submission.sliding_window_mask(T, T - 1), causal.triu(2 - T), says="one short of T hides one key only")


@part(1)
def test_window_mask_of_several_hundred_positions(submission, reference, rng):
    T, window = 300 + rng.integers(0, 20), 257 + rng.integers(0, 20)
    same_mask(
        submission.sliding_window_mask(T=T, window=window),
        reference.sliding_window_mask(T, window),
        says=f"the mask for T = {T} and window = {window}: distances are counted exactly",
    )


@part(1)
def test_window_mask_of_every_small_size(submission, reference):
    for T in range(4):
        for window in range(1, 5):
            same(
                submission.sliding_window_mask(T, window),
                reference.sliding_window_mask(T, window),
                says=f"the mask for T = {T} and window = {window}",
            )


@part(1)
def test_window_of_zero_is_refused(submission, rng):
    for T in (rng.integers(3, 9), 0):
        with raises(ValueError, says=f"T = {T}, window = 0"):
            submission.sliding_window_mask(T, 0)


@part(1)
def test_negative_window_is_refused(submission, rng):
    with raises(ValueError, says="a negative window"):
        submission.sliding_window_mask(rng.integers(3, 9), -rng.integers(1, 5))


@part(1)
def test_negative_length_is_refused(submission, rng):
    with raises(ValueError, says="a negative T"):
        submission.sliding_window_mask(-rng.integers(1, 5), 3)


# ------------------------------------------------------------------------------------------------ part 2


@part(2)
def test_sink_mask_adds_the_first_keys(submission, reference, rng):
    for _ in range(3):
        n_sink = rng.integers(2, 5)
        window = n_sink + rng.integers(2, 4)
        T = n_sink + window + rng.integers(3, 8)
        same_mask(
            submission.attention_sink_mask(T, window, n_sink),
            reference.attention_sink_mask(T, window, n_sink),
            says=f"the mask for T = {T}, window = {window}, n_sink = {n_sink}",
        )


@part(2)
def test_no_sink_is_the_sliding_window(submission, reference, rng):
    window = rng.integers(2, 5)
    T = window + rng.integers(3, 7)
    same(
        submission.attention_sink_mask(T, window, 0),
        reference.sliding_window_mask(T, window),
        says="n_sink = 0 is the plain sliding window",
    )


@part(2)
def test_more_sinks_than_tokens_is_plain_causal(submission, rng):
    T = rng.integers(3, 8)
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    for n_sink in (T, T + 3):
        same(submission.attention_sink_mask(T, 1, n_sink), causal, says=f"T = {T}, n_sink = {n_sink}")
    same(submission.attention_sink_mask(0, 2, 1), torch.zeros(0, 0, dtype=torch.bool), says="T = 0")


@part(2)
def test_sink_mask_with_a_window_of_one(submission, reference, rng):
    T, n_sink = rng.integers(6, 11), rng.integers(1, 4)
    same(
        submission.attention_sink_mask(T, 1, n_sink),
        reference.attention_sink_mask(T, 1, n_sink),
        says="each query reads the sinks and itself",
    )


@part(2)
def test_masks_of_several_hundred_positions(submission, reference, rng):
    T, size, first = 300 + rng.integers(0, 20), 130 + rng.integers(0, 10), rng.integers(5, 9)
    same_mask(
        submission.attention_sink_mask(T=T, window=2 * size, n_sink=first),
        reference.attention_sink_mask(T, 2 * size, first),
        says=f"the mask for T = {T}, window = {2 * size}, n_sink = {first}",
    )
    same_mask(
        submission.block_sparse_mask(T=T, block=size, global_tokens=first),
        reference.block_sparse_mask(T, size, first),
        says=f"the mask for T = {T}, block = {size}, global_tokens = {first}",
    )


@part(2)
def test_negative_sinks_are_refused(submission, rng):
    for T in (rng.integers(5, 9), 0):
        with raises(ValueError, says=f"T = {T}, a negative n_sink"):
            submission.attention_sink_mask(T, 3, -rng.integers(1, 4))


@part(2)
def test_sink_mask_refuses_a_window_below_one(submission, rng):
    for T in (rng.integers(5, 9), 0):
        with raises(ValueError, says=f"T = {T}, window = 0"):
            submission.attention_sink_mask(T, 0, 2)


@part(2)
def test_sink_mask_refuses_a_negative_length(submission, rng):
    with raises(ValueError, says="a negative T"):
        submission.attention_sink_mask(-rng.integers(1, 5), 3, 2)


@part(2)
def test_block_mask_holds_own_and_previous_block(submission, reference, rng):
    for _ in range(3):
        block = rng.integers(3, 6)
        T = block * rng.integers(4, 6) + rng.integers(1, block)
        same_mask(
            submission.block_sparse_mask(T, block),
            reference.block_sparse_mask(T, block),
            says=f"the mask for T = {T} and block = {block}, no global tokens",
        )


@part(2)
def test_block_mask_adds_global_keys(submission, reference, rng):
    for _ in range(3):
        block = rng.integers(3, 6)
        T = block * rng.integers(4, 6) + rng.integers(1, block)
        global_tokens = rng.integers(2, block)
        same_mask(
            submission.block_sparse_mask(T, block, global_tokens),
            reference.block_sparse_mask(T, block, global_tokens),
            says=f"the mask for T = {T}, block = {block}, global_tokens = {global_tokens}",
        )


@part(2)
def test_block_mask_with_globals_that_fill_several_blocks(submission, reference, rng):
    for block, blocks in ((1, 5), (1, 7), (3, 3), (4, 2)):
        T, global_tokens = block * (blocks + 4) + rng.integers(0, block), block * blocks + rng.integers(0, block)
        same_mask(
            submission.block_sparse_mask(T, block, global_tokens),
            reference.block_sparse_mask(T, block, global_tokens),
            says=f"the mask for T = {T}, block = {block}, global_tokens = {global_tokens}",
        )


@part(2)
def test_masks_of_many_blocks_and_late_sinks(submission, reference, rng):
    T, window, first = 530 + rng.integers(0, 20), rng.integers(1, 4), rng.integers(1, 4)
    same(
        submission.block_sparse_mask(T, 1, first),
        reference.block_sparse_mask(T, 1, first),
        says=f"the mask for T = {T}, block = 1, global_tokens = {first}: blocks are counted exactly",
    )
    same(
        submission.attention_sink_mask(T, window, first),
        reference.attention_sink_mask(T, window, first),
        says=f"the mask for T = {T}, window = {window}, n_sink = {first}: the last query still reads the sinks",
    )


@part(2)
def test_block_mask_when_blocks_fill_the_sequence(submission, reference, rng):
    block = rng.integers(2, 5)
    T = 4 * block
    same_mask(
        submission.block_sparse_mask(T, block), reference.block_sparse_mask(T, block), says="T = 4 blocks exactly"
    )


@part(2)
def test_block_mask_at_the_edges(submission, reference, rng):
    T = rng.integers(5, 9)
    for block, global_tokens in ((1, 0), (1, 2), (T, 0), (T + 4, 1), (2, T), (2, T + 3)):
        same(
            submission.block_sparse_mask(T, block, global_tokens=global_tokens),
            reference.block_sparse_mask(T, block, global_tokens),
            says=f"the mask for T = {T}, block = {block}, global_tokens = {global_tokens}",
        )
    same(submission.block_sparse_mask(0, 3, 1), torch.zeros(0, 0, dtype=torch.bool), says="T = 0")
    same(submission.block_sparse_mask(1, 3), torch.ones(1, 1, dtype=torch.bool), says="T = 1")


@part(2)
def test_block_below_one_is_refused(submission, rng):
    for T, block in ((7, -rng.integers(1, 4)), (7, 0), (0, 0)):
        with raises(ValueError, says=f"T = {T}, block = {block}"):
            submission.block_sparse_mask(T, block)


@part(2)
def test_negative_global_tokens_are_refused(submission, rng):
    for T in (7, 0):
        with raises(ValueError, says=f"T = {T}, negative global_tokens"):
            submission.block_sparse_mask(T, 2, -rng.integers(1, 4))


@part(2)
def test_block_mask_refuses_a_negative_length(submission, rng):
    with raises(ValueError, says="a negative T"):
        submission.block_sparse_mask(-rng.integers(1, 5), 3)


# ------------------------------------------------------------------------------------------------ part 3


@part(3)
def test_attention_under_a_window(submission, reference, rng):
    T, window = rng.integers(7, 10), rng.integers(2, 5)
    q, k, v = (rng.normal(2, 3, T, 5) for _ in range(3))
    mask = reference.sliding_window_mask(T, window).to(q.device)
    close(
        submission.masked_attention(q, k, v, mask),
        reference.masked_attention(q, k, v, mask),
        says="attention under the sliding window mask",
    )


@part(3)
def test_attention_under_any_mask(submission, reference, rng):
    T = rng.integers(6, 9)
    q, k, v = (rng.normal(2, 3, T, 10) for _ in range(3))
    mask = random_mask(rng, T, T)
    close(
        submission.masked_attention(q, k, v, mask),
        reference.masked_attention(q, k, v, mask),
        says="attention under a mask that is not causal",
    )


@part(3)
def test_attention_with_fewer_queries_than_keys(submission, reference, rng):
    for n_queries, n_keys, d_head in ((1, 5, 6), (3, 7, 6), (7, 4, 6), (4, 6, 1)):
        q, k, v = (rng.normal(2, 3, n, d_head) for n in (n_queries, n_keys, n_keys))
        mask = rng.uniform(0.0, 1.0, n_queries, n_keys) < 0.6
        mask[:, -1] = True
        close(
            submission.masked_attention(q, k, v, mask),
            reference.masked_attention(q, k, v, mask),
            says=f"{n_queries} queries, {n_keys} keys, heads of width {d_head}",
        )


@part(3)
def test_attention_without_any_blocked_key(submission, rng):
    q, k, v = (rng.normal(2, 2, 5, 7) for _ in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool, device=q.device)
    weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(7), dim=-1)
    got = submission.masked_attention(q=q, k=k, v=v, mask=mask)
    close(got, weights @ v, says="a mask of all True blocks nothing")


@part(3)
def test_query_without_keys_gives_zeros(submission, reference, rng):
    T = rng.integers(5, 8)
    q, k, v = (rng.normal(2, 3, T, 4) for _ in range(3))
    mask = random_mask(rng, T, T)
    mask[rng.integers(0, T)] = False
    close(
        submission.masked_attention(q, k, v, mask),
        reference.masked_attention(q, k, v, mask),
        says="a fully masked row gives zeros, the other rows are ordinary",
    )


@part(3)
def test_all_queries_without_keys_give_zeros(submission, rng):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        leaves = [rng.normal(1, 2, 4, 3, dtype=dtype).requires_grad_() for _ in range(3)]
        mask = torch.zeros(4, 4, dtype=torch.bool, device=leaves[0].device)
        out, zeros = submission.masked_attention(*leaves, mask), torch.zeros_like(leaves[0])
        close(out, zeros, says=f"nothing may be read, so everything is 0 ({dtype})", trivial_ok=True)
        if out.requires_grad:  # zeros that depend on nothing are an answer too
            out.sum().backward()
        for name, leaf in zip("qkv", leaves, strict=True):
            if leaf.grad is not None:
                close(leaf.grad, zeros, says=f"the gradient of {name} when nothing may be read", trivial_ok=True)


@part(3)
def test_gradients_stay_finite_when_a_query_has_no_keys(submission, reference, rng):
    T = rng.integers(5, 8)
    inputs = [rng.normal(2, 3, T, 4).requires_grad_() for _ in range(3)]
    mirror = [plain(tensor).requires_grad_() for tensor in inputs]
    mask = random_mask(rng, T, T)
    mask[rng.integers(0, T)] = False
    w = rng.normal(2, 3, T, 4)
    out, expected = submission.masked_attention(*inputs, mask), reference.masked_attention(*mirror, mask)
    close(out, expected, says="the result with a fully masked row")
    (out * w).sum().backward()
    (expected * w).sum().backward()
    for name, mine, ref in zip("qkv", inputs, mirror, strict=True):
        check(mine.grad is not None, f"a gradient reaches {name}")
        close(mine.grad, ref.grad, says=f"the gradient of {name} with a fully masked row")


@part(3)
@pytest.mark.parametrize(("n_queries", "blocks"), [(4, True), (1, True), (4, False), (1, False)])
def test_gradients_reach_queries_keys_and_values(submission, reference, rng, n_queries, blocks):
    q, k, v = rng.normal(2, 3, n_queries, 6), rng.normal(2, 3, 7, 6), rng.normal(2, 3, 7, 6)
    mine = [plain(tensor).requires_grad_() for tensor in (q, k, v)]
    ref = [plain(tensor).requires_grad_() for tensor in (q, k, v)]
    mask = random_mask(rng, n_queries, 7)
    mask = mask if blocks else torch.ones_like(mask)
    w = rng.normal(2, 3, n_queries, 6)
    (submission.masked_attention(*mine, mask) * w).sum().backward()
    (reference.masked_attention(*ref, mask) * w).sum().backward()
    for name, got, expected in zip("qkv", mine, ref, strict=True):
        check(got.grad is not None, f"a gradient reaches {name}")
        close(got.grad, expected.grad, says=f"the gradient of {name}")


@part(3)
def test_blocked_keys_lose_against_any_score(submission, reference, rng):
    # Allowed scores near -262144 and blocked ones near +262144; products and the scale 1/2 are exact in float32.
    n_keys = 6
    sign = rng.choice((1.0, -1.0))
    q = torch.zeros(1, 2, 2, 4)
    q[..., 0] = 1024.0 * sign
    steps = rng.permutation(n_keys).cpu() / 512.0
    mask = torch.tensor([[True, True, False, True, False, False], [False, True, True, True, False, True]])
    k = torch.zeros(1, 2, n_keys, 4)
    k[..., 0] = (-512.0 + steps) * sign
    k[..., 4, 0] = 512.0 * sign  # blocked for both queries, with by far the best score
    v = rng.normal(1, 2, n_keys, 3 + 1)
    q, k, mask = q.to(v.device), k.to(v.device), mask.to(v.device)
    close(
        submission.masked_attention(q, k, v, mask),
        reference.masked_attention(q, k, v, mask),
        says="allowed scores of -262144 still win against blocked scores of +262144",
        tol=2e-2,
    )


@part(3)
def test_blocked_keys_of_huge_scores_lose_against_ordinary_ones(submission, reference, rng):
    q, k, v = rng.normal(1, 2, 4, 4), rng.normal(1, 2, 6, 4), rng.normal(1, 2, 6, 4)
    q[..., 0] = 2048.0 * rng.choice((1.0, -1.0))
    k[..., 0] = 0.0
    k[..., 3, 0] = q[..., :1, 0].squeeze(-1).sign() * 16384.0  # a score of 2^24 for every query
    mask = random_mask(rng, 4, 6)
    mask[:, 3], mask[:, 1] = False, True
    close(
        submission.masked_attention(q, k, v, mask),
        reference.masked_attention(q, k, v, mask),
        says="ordinary scores, and a blocked key whose score is 16777216",
        tol=1e-3,
    )


@part(3)
def test_large_scores_do_not_overflow(submission, reference, rng):
    q = torch.zeros(1, 2, 3, 4)
    q[..., 0] = 256.0
    k = torch.zeros(1, 2, 5, 4)
    k[..., 0] = 128.0 + rng.permutation(5).cpu() / 128.0
    v = rng.normal(1, 2, 5, 4)
    q, k = q.to(v.device), k.to(v.device)
    mask = random_mask(rng, 3, 5)
    close(
        submission.masked_attention(q, k, v, mask),
        reference.masked_attention(q, k, v, mask),
        says="scores of +16384",
        tol=2e-2,
    )


@part(3)
def test_half_precision_attention(submission, reference, rng):
    T = rng.integers(5, 8)
    mask = random_mask(rng, T, T)
    mask[rng.integers(0, T)] = False
    for dtype in (torch.bfloat16, torch.float16):
        q, k, v = (rng.normal(2, 3, T, 8, dtype=dtype) for _ in range(3))
        expected = reference.masked_attention(q.float(), k.float(), v.float(), mask).to(dtype)
        out = submission.masked_attention(q, k, v, mask)
        check(out.dtype == dtype, f"the result for {dtype} inputs has their dtype", seen=str(out.dtype))
        close(out, expected, says=f"the result for {dtype} inputs", tol=4e-2)


@part(3)
def test_double_precision_attention(submission, reference, rng):
    q, k, v = (rng.normal(2, 3, 6, 5, dtype=torch.float64) for _ in range(3))
    mask = random_mask(rng, 6, 6)
    close(
        submission.masked_attention(q, k, v, mask),
        reference.masked_attention(q, k, v, mask),
        says="the result for float64 inputs",
        tol=1e-5,
    )


@part(3)
def test_non_contiguous_attention(submission, reference, rng):
    q, k, v = (rng.normal(2, 6, 3, 5).transpose(1, 2) for _ in range(3))
    mask = random_mask(rng, 6, 6).T.contiguous().T
    mask[:, 0] = True
    close(
        submission.masked_attention(q, k, v, mask),
        reference.masked_attention(q, k, v, mask),
        says="inputs that are transposed views",
    )


@part(3)
def test_attention_follows_the_device_of_its_inputs(submission, rng):
    q, k, v = (torch.randn(2, 3, 5, 4, device="meta") for _ in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool, device="meta")
    on_meta(lambda: submission.masked_attention(q, k, v, mask))


def fill(ring, k, v, count, start=0):
    for t in range(start, start + count):
        ring.append(k[:, :, t : t + 1], v[:, :, t : t + 1])


@part(3)
def test_ring_returns_the_last_tokens_in_order(submission, rng):
    window = rng.integers(3, 6)
    k, v = rng.normal(1, 2, 5 * window, 5), rng.normal(1, 2, 5 * window, 5)
    ring = submission.RollingKVCache(window, 2, 5)
    found, expected = [], []
    for t in range(5 * window - 1):
        fill(ring, k, v, 1, start=t)
        first = max(0, t + 1 - window)
        found.append(ring.window_kv())
        expected.append((k[:, :, first : t + 1], v[:, :, first : t + 1]))
    # All at once: right after the ring is full, several wrong orders look the same.
    close(found, expected, says=f"after 1, 2, ... tokens with window = {window}", trivial_ok=True)


@part(3)
def test_ring_read_once_after_many_tokens(submission, rng):
    window = rng.integers(4, 7)
    count = 2 * window + rng.integers(1, window)
    k, v = rng.normal(1, 3, count, 4), rng.normal(1, 3, count, 4)
    ring = submission.RollingKVCache(window, 3, 4)
    fill(ring, k, v, count)
    expected = (k[:, :, -window:], v[:, :, -window:])
    close(ring.window_kv(), expected, says=f"{count} tokens, window = {window}")
    close(ring.window_kv(), expected, says="reading does not change the ring")


@part(3)
def test_ring_that_is_not_full(submission, rng):
    count = rng.integers(2, 5)
    k, v = rng.normal(1, 2, count, 3), rng.normal(1, 2, count, 3)
    ring = submission.RollingKVCache(count + 3, 2, 3)
    fill(ring, k, v, count)
    close(ring.window_kv(), (k, v), says="a ring that is not full returns what was appended, no more", trivial_ok=True)


@part(3)
def test_ring_copies_what_goes_in_and_what_comes_out(submission, reference, rng):
    ring, expected = submission.RollingKVCache(3, 2, 4), reference.RollingKVCache(3, 2, 4)
    for _ in range(5):
        k_t, v_t = rng.normal(1, 2, 1, 4), rng.normal(1, 2, 1, 4)
        with spoiled():
            ring.append(k_t, v_t)
        expected.append(k_t, v_t)
        with spoiled():
            read = ring.window_kv()
        says = "the window, while the caller writes to what it gave and got before"
        close(read, expected.window_kv(), says, trivial_ok=True)  # after one token it is that token


@part(3)
def test_ring_with_one_slot(submission, rng):
    k, v = rng.normal(1, 2, 4, 3), rng.normal(1, 2, 4, 3)
    ring = submission.RollingKVCache(1, 2, 3)
    for t in range(4):
        fill(ring, k, v, 1, start=t)
        close(
            ring.window_kv(),
            (k[:, :, t : t + 1], v[:, :, t : t + 1]),
            says="a window of 1 holds the newest token",
            trivial_ok=True,
        )


@part(3)
def test_ring_with_one_head(submission, rng):
    found, expected = [], []
    for n_heads, d_head, count in ((1, 3, 7), (1, 1, 8), (3, 1, 6), (1, 2, 2)):
        k, v = rng.normal(1, n_heads, count, d_head), rng.normal(1, n_heads, count, d_head)
        ring = submission.RollingKVCache(3, n_heads, d_head)
        fill(ring, k, v, count)
        found.append(ring.window_kv())
        expected.append((k[:, :, -3:], v[:, :, -3:]))
    close(found, expected, says="one head of width 3, of width 1, three of width 1, one of width 2", trivial_ok=True)


@part(3)
def test_empty_ring_has_length_zero(submission):
    k, v = submission.RollingKVCache(4, 2, 3).window_kv()
    same((tuple(k.shape), tuple(v.shape)), ((1, 2, 0, 3), (1, 2, 0, 3)), says="the shapes of an empty ring")


@part(3)
def test_ring_agrees_with_the_windowed_mask(submission, reference, rng):
    window, T = rng.integers(2, 5), rng.integers(7, 10)
    q, k, v = (rng.normal(1, 3, T, 4) for _ in range(3))
    ring = submission.RollingKVCache(window, 3, 4)
    full = reference.masked_attention(q, k, v, reference.sliding_window_mask(T, window).to(q.device))
    for t in range(T):
        fill(ring, k, v, 1, start=t)
        k_w, v_w = ring.window_kv()
        everything = torch.ones(1, k_w.shape[2], dtype=torch.bool, device=q.device)
        out = reference.masked_attention(q[:, :, t : t + 1], k_w, v_w, everything)
        close(out, full[:, :, t : t + 1], says=f"attention of query {t} over the ring", trivial_ok=True)


@part(3)
def test_ring_takes_the_dtype_of_its_first_token(submission, rng):
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        k, v = rng.normal(1, 2, 5, 3, dtype=dtype), rng.normal(1, 2, 5, 3, dtype=dtype)
        for read_first in (False, True):
            ring = submission.RollingKVCache(3, 2, 3)
            if read_first:
                same(ring.window_kv()[0].shape[2], 0, says="the length of an empty ring")
            fill(ring, k, v, 5)
            says = f"a ring of {dtype}" + (", read once while it was empty" if read_first else "")
            close(ring.window_kv(), (k[:, :, 2:], v[:, :, 2:]), says=says, tol=1e-9)


@part(3)
def test_ring_takes_the_device_of_its_first_token(submission):
    ring = submission.RollingKVCache(3, 2, 5)
    token = torch.randn(1, 2, 1, 5, device="meta")

    def use():
        for _ in range(4):
            ring.append(token, token)
        return ring.window_kv()

    on_meta(use)


@part(3)
def test_rings_are_independent(submission, rng):
    k, v = rng.normal(1, 2, 6, 3), rng.normal(1, 2, 6, 3)
    one, two = submission.RollingKVCache(3, 2, 3), submission.RollingKVCache(4, 2, 3)
    fill(one, k, v, 4)
    fill(two, -k, -v, 2)
    fill(one, k, v, 1, start=4)
    close(one.window_kv(), (k[:, :, 2:5], v[:, :, 2:5]), says="the first of two rings")
    close(two.window_kv(), (-k[:, :, :2], -v[:, :, :2]), says="the second of two rings")
    three = submission.RollingKVCache(3, 2, 3)
    fill(three, 2 * k, 2 * v, 3)
    close(one.window_kv(), (k[:, :, 2:5], v[:, :, 2:5]), says="the first of two rings of the same sizes")
    close(three.window_kv(), (2 * k[:, :, :3], 2 * v[:, :, :3]), says="the second of two rings of the same sizes")


@part(3)
def test_ring_without_slots_is_refused(submission, rng):
    for window in (0, -rng.integers(1, 4)):
        with raises(ValueError, says=f"a ring with window = {window}"):
            submission.RollingKVCache(window, 2, 4)


# -------------------------------------------------------------------------- second paths: long, large, repeated


@part(1)
def test_a_long_window(submission, reference, rng):
    for window in (rng.integers(520, 590), 2000):
        same(
            submission.sliding_window_mask(601, window),
            reference.sliding_window_mask(601, window),
            says="601 positions",
        )


@part(1)
def test_one_position_less_than_none_is_refused(submission):
    with raises(ValueError, says="T = -1"):
        submission.sliding_window_mask(-1, 2)


@part(2)
def test_masks_of_one_size_with_other_numbers(submission, reference, rng):
    T = rng.integers(9, 14)
    for n in (3, 0, 2):
        for window in (2, 3 * T):
            says = f"T = {T}, window {window}, {n} sinks, after others"
            got = submission.attention_sink_mask(T, window, n)
            same(got, reference.attention_sink_mask(T, window, n), says=says)
        got = submission.block_sparse_mask(T, 2, n)
        same(got, reference.block_sparse_mask(T, 2, n), says=f"T = {T}, blocks of 2, {n} globals, after others")


@part(2)
def test_one_position_less_than_none_is_refused_by_the_other_masks(submission):
    with raises(ValueError, says="attention_sink_mask with T = -1"):
        submission.attention_sink_mask(-1, 2, 1)
    with raises(ValueError, says="block_sparse_mask with T = -1"):
        submission.block_sparse_mask(-1, 2, 1)


@part(3)
def test_many_queries_and_keys(submission, reference, rng):
    q, k, v = rng.normal(1, 1, 601, 3), rng.normal(1, 1, 617, 3), rng.normal(1, 1, 617, 3)
    mask = rng.uniform(0, 1, 601, 617) < 0.6
    got, expected = submission.masked_attention(q, k, v, mask), reference.masked_attention(q, k, v, mask)
    close(got, expected, says="601 queries, 617 keys")


@part(3)
def test_rows_of_very_different_scores(submission, reference, rng):
    q, k, v = rng.normal(2, 2, 5, 4), rng.normal(2, 2, 6, 4), rng.normal(2, 2, 6, 4)
    k[..., 0] = 20 + rng.uniform(0, 1, 2, 2, 6)
    q[..., 0] = torch.tensor([-40.0, 40.0, 0.0, -20.0, 30.0])  # scores from -400 to 400
    mask = rng.uniform(0, 1, 5, 6) < 0.7
    mask[:, 2] = True
    got, expected = submission.masked_attention(q, k, v, mask), reference.masked_attention(q, k, v, mask)
    close(got, expected, says="rows whose scores lie 800 apart", tol=1e-3)


@part(3)
def test_one_key_that_is_hidden(submission, reference, rng):
    q, k, v = rng.normal(2, 2, 4, 5), rng.normal(2, 2, 1, 5), rng.normal(2, 2, 1, 5)
    mask = torch.tensor([[True], [False], [True], [False]])
    got, expected = submission.masked_attention(q, k, v, mask), reference.masked_attention(q, k, v, mask)
    close(got, expected, says="one key, hidden from every second query")


@part(3)
def test_dead_rows_without_gradients(submission, reference, rng):
    q, k, v = rng.normal(2, 2, 4, 5), rng.normal(2, 2, 6, 5), rng.normal(2, 2, 6, 5)
    mask = rng.uniform(0, 1, 4, 6) < 0.6
    mask[rng.integers(0, 4)] = False
    with torch.no_grad():
        got, expected = submission.masked_attention(q, k, v, mask), reference.masked_attention(q, k, v, mask)
    close(got, expected, says="a row that sees nothing, under no_grad")


@part(3)
def test_large_values_in_float16(submission, rng):
    q, k = torch.zeros(1, 2, 3, 4, dtype=torch.float16), rng.normal(1, 2, 5, 4, dtype=torch.float16)
    v = rng.uniform(2e4, 4e4, 1, 2, 5, 4).to(torch.float16)
    mask = torch.ones(3, 5, dtype=torch.bool)
    expected = v.double().mean(2, keepdim=True).expand(1, 2, 3, 4).to(torch.float16)
    got = submission.masked_attention(q, k, v, mask)
    close(got, expected, says="the mean of five values of 20000 to 40000 in float16", trivial_ok=True)


@part(3)
def test_gradients_in_bfloat16(submission, reference, rng):
    q, k, v = (rng.normal(2, 2, n, 4, dtype=torch.bfloat16) for n in (5, 6, 6))
    mask = rng.uniform(0, 1, 5, 6) < 0.7
    mask[2], mask[:2, :2] = False, True
    w = rng.normal(2, 2, 5, 4, dtype=torch.bfloat16)
    slopes = []
    for attention in (submission.masked_attention, reference.masked_attention):
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        (attention(*leaves, mask) * w).sum().backward()
        check(all(t.grad is not None for t in leaves), "gradients reach q, k and v in bfloat16")
        slopes.append([t.grad for t in leaves])
    close(*slopes, says="the gradients of q, k and v in bfloat16", tol=6e-2)


@part(3)
def test_a_ring_of_one_slot_copies_too(submission, rng):
    ring, tokens = (
        submission.RollingKVCache(1, 2, 3),
        [(rng.normal(1, 2, 1, 3), rng.normal(1, 2, 1, 3)) for _ in range(2)],
    )
    for k_t, v_t in tokens:
        with spoiled():
            ring.append(k_t.clone(), v_t.clone())
        close(ring.window_kv(), (k_t, v_t), says="a ring of one slot, its memory overwritten outside", trivial_ok=True)


@part(3)
def test_a_ring_of_300_slots(submission, rng):
    ring, k, v = submission.RollingKVCache(300, 1, 2), rng.normal(1, 1, 310, 2), rng.normal(1, 1, 310, 2)
    fill(ring, k, v, 300)
    close(ring.window_kv(), (k[:, :, :300], v[:, :, :300]), says="300 tokens, exactly as many as slots")
    for t in range(300, 310):
        ring.append(k_t=k[:, :, t : t + 1], v_t=v[:, :, t : t + 1])
    close(ring.window_kv(), (k[:, :, 10:], v[:, :, 10:]), says="the last 300 of 310 tokens")
