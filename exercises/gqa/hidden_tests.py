"""Hidden tests of grouped-query attention."""

import math

import pytest
import torch
import torch.nn.functional as F

# (d_model, H, H_kv): group sizes differ from H_kv wherever 1 < H_kv < H, so that tiling, striding and
# swapped head counts cannot coincide with the right answer.
GEOMETRIES = [(48, 6, 2), (60, 12, 3), (40, 8, 2)]


# ------------------------------------------------------------------------------- part 1


@part(1)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_forward_equals_the_reference(submission, reference, rng, geometry):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, *geometry)
    x = rng.normal(2, 7, geometry[0])
    y, cache = mine(x)
    close(y, ref(x)[0], says="the output of a causal forward without a cache")
    same(cache, None, says="the second value is None unless use_cache")


@part(1)
def test_shared_heads_equal_multi_head_attention_on_the_expanded_weights(submission, reference, rng):
    H, H_kv, d = 6, 2, 8
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, H * d, H, H_kv)
    x = rng.normal(3, 5, H * d)

    def heads(linear, n):
        return linear(x).view(3, 5, n, d).transpose(1, 2)

    k = heads(ref.k_proj, H_kv).repeat_interleave(H // H_kv, dim=1)
    v = heads(ref.v_proj, H_kv).repeat_interleave(H // H_kv, dim=1)
    o = F.scaled_dot_product_attention(heads(ref.q_proj, H), k, v, is_causal=True)
    expected = ref.o_proj(o.transpose(1, 2).reshape(3, 5, H * d))
    close(mine(x)[0], expected, says="each KV head serves H / H_kv consecutive query heads")


@part(1)
def test_multi_head_case(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 40, 5, 5)
    x = rng.normal(2, 6, 40)
    close(mine(x)[0], ref(x)[0], says="H_kv = H is multi-head attention")


@part(1)
def test_multi_query_case(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 42, 6, 1)
    x = rng.normal(2, 5, 42)
    close(mine(x)[0], ref(x)[0], says="H_kv = 1 is multi-query attention")


@part(1)
def test_one_token(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    x = rng.normal(3, 5, 48)
    # Beside it all five: of one token alone, several mistakes look the same.
    y, expected = (torch.cat([layer(x[:, :1])[0], layer(x)[0]], 1) for layer in (mine, ref))
    close(y, expected, says="a single token attends to itself alone (row 0; then the sequence that it starts)")


@part(1)
def test_the_future_does_not_change_the_past(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    x = rng.normal(2, 9, 48)
    changed = x.clone()
    changed[:, 5:] = rng.normal(2, 4, 48)
    close(mine(changed)[0][:, :5], ref(x)[0][:, :5], says="tokens after position 4 changed")


@part(1)
def test_large_scores_stay_finite(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    mine, ref = mine.to(torch.float64), ref.to(torch.float64)
    for _ in range(200):
        x = 300 * rng.normal(1, 5, 48, dtype=torch.float64)
        q, k = (proj(x).detach().view(5, -1, 8).transpose(0, 1) for proj in (ref.q_proj, ref.k_proj))
        scores = q @ k.repeat_interleave(3, dim=0).transpose(1, 2) / math.sqrt(8)
        hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
        first, second = scores.masked_fill(hidden, -math.inf)[:, 1:].topk(2, dim=-1).values.unbind(-1)
        ahead = (scores.masked_fill(~hidden, -math.inf).amax(-1)[:, :-1] - scores.diagonal(dim1=1, dim2=2)[:, :-1])[
            :, 0
        ]
        # One key wins by far (so a softmax in float32 is right, too), and a later key is far above the first one.
        if (first - second).min() > 50 and ahead.max() > 30_000:
            break
    close(mine(x)[0], ref(x)[0], tol=1e-5, says="inputs 300 times as large")


@part(1)
def test_float64_is_kept(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2, dtype=torch.float64)
    x = rng.normal(2, 7, 48, dtype=torch.float64)
    close(mine(x)[0], ref(x)[0], says="a float64 module on float64 input")


@part(1)
def test_bfloat16_is_kept(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2, dtype=torch.bfloat16)
    x = rng.normal(2, 7, 48, dtype=torch.bfloat16)
    close(mine(x)[0], ref(x)[0], tol=6e-2, says="a bfloat16 module on bfloat16 input")


@part(1)
def test_a_transposed_input_gives_the_same(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    x = rng.normal(7, 2, 48).transpose(0, 1)
    close(mine(x)[0], ref(x)[0], says="x need not be contiguous")


@part(1)
def test_gradients_reach_the_input_and_every_weight(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    x = rng.normal(2, 6, 48).requires_grad_()
    w = rng.normal(2, 6, 48)
    x_ref = x.detach().clone().requires_grad_()
    (ref(x_ref)[0] * w).sum().backward()
    (mine(x)[0] * w).sum().backward()
    check(x.grad is not None, "no gradient reached x")
    close(x.grad, x_ref.grad, says="the gradient of x")
    mine_grads, ref_grads = grads(mine), grads(ref)
    for name in ("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"):
        check(mine_grads.get(name) is not None, f"no gradient reached {name}")
        close(mine_grads[name], ref_grads[name], tol=1e-3, says=f"the gradient of {name}")


@part(1)
def test_rows_of_a_batch_do_not_mix(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 60, 12, 3)
    x = rng.normal(4, 5, 60)
    y = mine(x)[0]
    for row in (0, 3):
        close(y[row : row + 1], ref(x[row : row + 1])[0], says=f"row {row} of the batch, computed alone")


@part(1)
def test_a_second_call_gives_the_same(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    x, other = rng.normal(2, 7, 48), rng.normal(3, 4, 48)
    mine(other)
    close(mine(x)[0], ref(x)[0], says="after a call on another batch; nothing may be kept between calls")


@part(1)
def test_training_and_evaluation_mode_agree(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    x = rng.normal(2, 5, 48)
    close(mine.train()(x)[0], ref(x)[0], says="in training mode")
    close(mine.eval()(x)[0], ref(x)[0], says="in evaluation mode")


@part(1)
@pytest.mark.parametrize("T", [2, 3])
def test_a_few_tokens(submission, reference, rng, T):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    x = rng.normal(3, 6, 48)
    y, expected = (torch.cat([layer(x[:, :T])[0], layer(x)[0]], 1) for layer in (mine, ref))
    close(y, expected, says=f"{T} tokens: even of two, the first must not see the second; then all 6")


@part(1)
def test_a_long_sequence(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 4, 1, 1)
    x, w = 3 * rng.normal(1, 1030, 4), rng.normal(1, 1030, 4)
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    y, expected = mine(leaves[0])[0], ref(leaves[1])[0]
    close(y, expected, says="1030 tokens: nothing may be made for a fixed number of them")
    check(y.requires_grad, "the result for 1030 tokens carries a gradient")
    (y * w).sum().backward(), (expected * w).sum().backward()
    close(leaves[0].grad, leaves[1].grad, says="the gradient of 1030 tokens", tol=1e-3)


@part(1)
def test_after_a_move_to_another_dtype_and_device_nothing_old_is_used(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    x = rng.normal(2, 7, 48)
    close(mine(x)[0], ref(x)[0], says="a float32 call")
    x, ref = x.to(torch.float64), ref.to(torch.float64)
    close(mine.to(torch.float64)(x)[0], ref(x)[0], says="the same module in float64, after a float32 call")
    mine.to("meta")
    on_meta(
        lambda: mine(torch.empty(2, 7, 48, device="meta", dtype=torch.float64))[0],
        says="the module was moved after a call of the same size, and what it kept stayed on the old device",
    )


@part(1)
def test_nothing_is_made_on_another_device(submission, reference, rng):
    mine = submission.GroupedQueryAttention(48, 6, 2).to("meta")
    result = on_meta(lambda: mine(torch.empty(2, 7, 48, device="meta"))[0])
    if result is not None:
        same(tuple(result.shape), (2, 7, 48), says="the shape of the output")


@part(1)
@pytest.mark.parametrize("d_model, n_heads, n_kv_heads", [(50, 6, 2), (45, 6, 3)])
def test_a_width_that_heads_do_not_divide_is_refused(submission, d_model, n_heads, n_kv_heads):
    with raises(ValueError, says=f"d_model = {d_model} with n_heads = {n_heads}"):
        submission.GroupedQueryAttention(d_model, n_heads, n_kv_heads)


@part(1)
@pytest.mark.parametrize("d_model, n_heads, n_kv_heads", [(48, 6, 4), (48, 8, 3), (48, 4, 8)])
def test_heads_that_do_not_share_evenly_are_refused(submission, d_model, n_heads, n_kv_heads):
    with raises(ValueError, says=f"n_heads = {n_heads} with n_kv_heads = {n_kv_heads}"):
        submission.GroupedQueryAttention(d_model, n_heads, n_kv_heads)


# ------------------------------------------------------------------------------- part 2


@part(2)
def test_prefill_returns_the_cache_of_the_kv_heads(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 60, 12, 3)
    x = rng.normal(2, 7, 60)
    y, cache = mine(x, use_cache=True)
    expected, ref_cache = ref(x, use_cache=True)
    close(y, expected, says="the output with use_cache")
    check(cache is not None, "use_cache=True must return the cache")
    same(tuple(cache[0].shape), (2, 3, 7, 5), says="the cache holds H_kv heads, not expanded: (B, H_kv, T, d_head)")
    close(cache, ref_cache, says="the cached keys and values")


@part(2)
def test_one_token_decode_equals_the_full_forward(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    x = rng.normal(2, 7, 48)
    full = ref(x)[0]
    _, cache = mine(x[:, :4], use_cache=True)
    for t in (4, 5, 6):
        y, cache = mine(x[:, t : t + 1], kv_cache=cache, use_cache=True)
        close(y, full[:, t : t + 1], says=f"the decode step of token {t} against the forward over all tokens")
        same(tuple(cache[0].shape), (2, 2, t + 1, 8), says="the cache grows by one token a step")
    close(cache, ref(x, use_cache=True)[1], says="the cache after the last step")


@part(2)
def test_one_sequence_keeps_its_batch_axis(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    x = rng.normal(1, 5, 48)
    y, cache = mine(x[:, :4], use_cache=True)
    step, grown = mine(x[:, 4:], kv_cache=cache, use_cache=True)
    full, ref_cache = ref(x, use_cache=True)
    close((y, step), (full[:, :4], full[:, 4:]), says="a batch of one: four tokens, then one")
    close(grown, ref_cache, says="the cache of a batch of one")


@part(2)
def test_one_sequence_and_one_kv_head(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 1)
    x, cache = rng.normal(1, 3, 48), None
    for new in (x[:, :2], x[:, 2:]):
        (y, mine_cache), (expected, ref_cache) = (layer(new, cache, use_cache=True) for layer in (mine, ref))
        close(y, expected, says="one sequence, one KV head")
        close(mine_cache, ref_cache, says="the cache of one sequence and one KV head")
        cache = tuple(plain(t) for t in ref_cache)


@part(2)
def test_chunked_prefill_equals_one_prefill(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    x = rng.normal(2, 11, 48)
    full, ref_cache = ref(x, use_cache=True)
    cache, start = None, 0
    for end in (3, 6, 11):
        y, cache = mine(x[:, start:end], kv_cache=cache, use_cache=True)
        close(y, full[:, start:end], says=f"the chunk of tokens {start}..{end - 1} after {start} cached ones")
        start = end
    close(cache, ref_cache, says="the cache after the last chunk")


@part(2)
def test_a_chunk_is_causal_inside_and_sees_all_that_is_cached(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 60, 12, 3)
    x = rng.normal(2, 8, 60)
    _, past = ref(x[:, :3], use_cache=True)
    changed = x.clone()
    changed[:, 6:] = rng.normal(2, 2, 60)
    past = tuple(plain(t) for t in past)
    close(mine(changed[:, 3:], kv_cache=past)[0][:, :3], ref(x)[0][:, 3:6], says="tokens 3..5 after three cached ones")


@part(2)
@pytest.mark.parametrize("geometry", [(24, 4, 4), (24, 4, 1), (5, 1, 1)])
def test_other_numbers_of_heads_over_a_cache(submission, reference, rng, geometry):
    d_model, H, H_kv = geometry
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, *geometry)
    given, x = rng.normal(2, 2, H_kv, 7, d_model // H).unbind(), rng.normal(2, 4, d_model)
    w, slopes = rng.normal(2, 4, d_model), []
    step = mine(x[:, :1], kv_cache=given, use_cache=True)
    close(step, ref(x[:, :1], kv_cache=given, use_cache=True), says=f"one token over 7, {H} heads and {H_kv} KV heads")
    for layer in (mine, ref):
        k, v = (plain(t).requires_grad_() for t in given)
        y = layer(x, kv_cache=(k, v))[0]
        (y * w).sum().backward()
        slopes.append((k.grad, v.grad))
        if layer is mine:
            close(y, ref(x, kv_cache=given)[0], says=f"four tokens over 7, {H} heads and {H_kv} KV heads")
    check(all(slope is not None for slope in slopes[0]), "gradients reach the cached keys and values")
    close(slopes[0], slopes[1], says=f"the gradients of the cache, {H} heads and {H_kv} KV heads")


@part(2)
def test_large_scores_over_a_cache_stay_hidden(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    mine, ref = mine.to(torch.float64), ref.to(torch.float64)
    for _ in range(200):
        x = 300 * rng.normal(1, 5, 48, dtype=torch.float64)
        q, k = (proj(x).detach().view(5, -1, 8).transpose(0, 1) for proj in (ref.q_proj, ref.k_proj))
        scores = q @ k.repeat_interleave(3, dim=0).transpose(1, 2) / math.sqrt(8)
        seen = scores.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -math.inf)
        first, second = seen[:, 1:].topk(2, dim=-1).values.unbind(-1)
        # One key wins by far (so a softmax in float32 is right, too), and a token sees none but very low scores.
        if (first - second).min() > 50 and first[:, 1:3].min() < -30_000:
            break
    past = tuple(plain(t) for t in ref(x[:, :2], use_cache=True)[1])
    y, expected = mine(x[:, 2:], kv_cache=past)[0], ref(x)[0][:, 2:]
    close(y, expected, tol=1e-5, says="three tokens over two cached ones, inputs 300 times as large")


@part(2)
def test_a_foreign_cache_is_used_as_given(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    past = (rng.normal(2, 2, 5, 8), rng.normal(2, 2, 5, 8))
    x = rng.normal(2, 3, 48)
    y, cache = mine(x, past, True)
    expected, ref_cache = ref(x, kv_cache=past, use_cache=True)
    close(y, expected, says="any keys and values may stand in the cache")
    close(cache, ref_cache, says="the cache: the given tokens first, then the new ones")


@part(2)
def test_an_empty_cache_is_a_prefill(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    x = rng.normal(2, 5, 48)
    empty = (torch.zeros(2, 2, 0, 8), torch.zeros(2, 2, 0, 8))
    y, cache = mine(x, kv_cache=empty, use_cache=True)
    expected, ref_cache = ref(x, use_cache=True)
    close(y, expected, says="a cache of length 0")
    close(cache, ref_cache, says="the cache after a cache of length 0")
    leaves, w = [x.clone().requires_grad_() for _ in range(2)], rng.normal(2, 5, 48)
    for layer, leaf in zip((mine, ref), leaves, strict=True):
        y, (k, v) = layer(leaf, kv_cache=empty, use_cache=True)
        check(y.requires_grad and k.requires_grad and v.requires_grad, "output and cache carry gradients")
        ((y * w).sum() + (k * v).sum()).backward()
    close(leaves[0].grad, leaves[1].grad, says="the gradient of x with a cache of length 0")


@part(2)
def test_without_gradients_nothing_changes(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    mine.eval()
    with torch.no_grad():
        for _ in range(2):
            x, past = 3 * rng.normal(2, 4, 48), tuple(4 * t for t in rng.normal(2, 2, 2, 5, 8).unbind())
            x[:, -1] *= 20  # what is hidden from the first three is large
            close(mine(x)[0], ref(x)[0], tol=5e-3, says="under no_grad, in evaluation mode: no cache")
            for new in (x[:, 1:], x[:, :1]):
                y, nothing = mine(new, kv_cache=past)
                close(y, ref(new, kv_cache=past)[0], tol=5e-3, says=f"under no_grad: {new.shape[1]} over a cache")
                same(nothing, None, says="under no_grad: the second value is None unless use_cache")
                both = [layer(new, kv_cache=past, use_cache=True) for layer in (mine, ref)]
                close(*both, tol=5e-3, says=f"under no_grad: {new.shape[1]} over a cache, with use_cache")
            for parameter in ref.parameters():
                parameter.mul_(1.25)
            mine.load_state_dict({name: tensor.detach() for name, tensor in ref.state_dict().items()})
        x = x[:, :3]
        for prompt, cache in ((x, None), (x, tuple(t[:, :, :0] for t in past)), (x.flip(1), None)):
            both = [layer(prompt, kv_cache=cache, use_cache=True) for layer in (mine, ref)]
            close(*both, says="under no_grad: a prompt with use_cache; without a cache, with an empty one, and another")


@part(2)
def test_as_many_keys_are_split_otherwise(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    for past in (0, 3, 5, 1):
        x, cache = rng.normal(2, 6 - past, 48), tuple(rng.normal(2, 2, 2, past, 8).unbind())
        y, expected = mine(x, kv_cache=cache)[0], ref(x, kv_cache=cache)[0]
        close(y, expected, says=f"{6 - past} new tokens over {past} cached ones, in one module after other splits of 6")


@part(2)
def test_no_cache_comes_back_unless_asked_for(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    x = rng.normal(2, 6, 48)
    past = tuple(plain(t) for t in ref(x[:, :5], use_cache=True)[1])
    y, cache = mine(x[:, 5:], kv_cache=past)
    close(y, ref(x)[0][:, 5:], says="a decode step without use_cache")
    same(cache, None, says="the second value is None unless use_cache, also when a cache was given")


@part(2)
def test_two_continuations_of_one_cache_do_not_disturb_each_other(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    prompt, left, right = rng.normal(2, 4, 48), rng.normal(2, 2, 48), rng.normal(2, 2, 48)
    _, cache = mine(prompt, use_cache=True)
    _, left_cache = mine(left[:, :1], kv_cache=cache, use_cache=True)
    y_right, _ = mine(right[:, :1], kv_cache=cache, use_cache=True)
    y_left, _ = mine(left[:, 1:], kv_cache=left_cache, use_cache=True)
    close(y_right, ref(torch.cat([prompt, right[:, :1]], 1))[0][:, -1:], says="a second continuation of a prompt")
    close(y_left, ref(torch.cat([prompt, left], 1))[0][:, -1:], says="the first continuation, gone on with afterwards")


@part(2)
def test_evaluation_mode_keeps_caches_apart(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    mine.eval()
    prompt, left, right = rng.normal(2, 4, 48), rng.normal(2, 5, 48), rng.normal(2, 2, 48)
    _, cache = mine(prompt, use_cache=True)
    for new in (left, right, left):
        y, grown = mine(new, kv_cache=cache, use_cache=True)
        expected, ref_cache = ref(torch.cat([prompt, new], 1), use_cache=True)
        close(y, expected[:, 4:], says="in evaluation mode: one prompt, continued in several ways")
        close(grown, ref_cache, says="in evaluation mode: the cache of that continuation")


@part(2)
def test_a_long_cache(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 8, 4, 2)
    past = (3 * rng.normal(1, 2, 4200, 2), rng.normal(1, 2, 4200, 2))
    x = 6 * rng.normal(1, 16, 8)  # large, so that the mask among the new tokens is seen beside so many cached ones
    (y, grown), (expected, ref_cache) = (layer(x, kv_cache=past, use_cache=True) for layer in (mine, ref))
    close(y, expected, says="16 tokens after 4200 cached ones")
    close(grown, ref_cache, says="the cache of all 4216 tokens")


@part(2)
def test_a_new_prompt_starts_afresh(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    first, second = rng.normal(2, 6, 48), rng.normal(2, 5, 48)
    _, cache = mine(first, use_cache=True)
    mine(first[:, :1], kv_cache=cache, use_cache=True)
    y, again = mine(second, use_cache=True)
    expected, ref_cache = ref(second, use_cache=True)
    close(y, expected, says="a prompt without a cache, after another prompt was decoded")
    close(again, ref_cache, says="its cache")


@part(2)
@pytest.mark.parametrize("T, training", [(3, True), (1, False)])
def test_gradients_reach_the_cache_and_the_input(submission, reference, rng, T, training):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    mine.train(training)
    x = rng.normal(2, T, 48).requires_grad_()
    k, v = rng.normal(2, 2, 4, 8).requires_grad_(), rng.normal(2, 2, 4, 8).requires_grad_()
    x_ref, k_ref, v_ref = (t.detach().clone().requires_grad_() for t in (x, k, v))
    w, w_cache = rng.normal(2, T, 48), rng.normal(2, 2, 4 + T, 8)
    y, cache = mine(x, kv_cache=(k, v), use_cache=True)
    check(
        y.requires_grad and cache[0].requires_grad and cache[1].requires_grad, "output and cache must carry gradients"
    )
    ((y * w).sum() + (cache[0] * w_cache).sum() - (cache[1] * w_cache).sum()).backward()
    y, cache = ref(x_ref, kv_cache=(k_ref, v_ref), use_cache=True)
    ((y * w).sum() + (cache[0] * w_cache).sum() - (cache[1] * w_cache).sum()).backward()
    for name, got, want in (("x", x, x_ref), ("cached keys", k, k_ref), ("cached values", v, v_ref)):
        check(got.grad is not None, f"no gradient reached the {name}")
        close(got.grad, want.grad, says=f"the gradient of the {name}")
    for name in ("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"):
        check(grads(mine).get(name) is not None, f"no gradient reached {name}")
        close(grads(mine)[name], grads(ref)[name], tol=1e-3, says=f"the gradient of {name}")


@part(2)
def test_gradients_flow_from_a_decode_step_back_into_the_prefill(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2)
    x = rng.normal(2, 5, 48).requires_grad_()
    x_ref = x.detach().clone().requires_grad_()
    w = rng.normal(2, 1, 48)
    _, cache = mine(x[:, :4], use_cache=True)
    (mine(x[:, 4:], kv_cache=cache)[0] * w).sum().backward()
    (ref(x_ref)[0][:, 4:] * w).sum().backward()
    check(x.grad is not None, "no gradient reached the prompt")
    close(x.grad, x_ref.grad, says="the gradient of the prompt, through the cache")


@part(2)
def test_decode_in_bfloat16(submission, reference, rng):
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 48, 6, 2, dtype=torch.bfloat16)
    x = rng.normal(2, 6, 48, dtype=torch.bfloat16)
    past = tuple(plain(t) for t in ref(x[:, :5], use_cache=True)[1])
    y, cache = mine(x[:, 5:], kv_cache=past, use_cache=True)
    close(y, ref(x)[0][:, 5:], tol=6e-2, says="a bfloat16 decode step")
    same(cache[0].dtype, torch.bfloat16, says="the dtype of the cache")


@part(2)
def test_decode_makes_nothing_on_another_device(submission, reference, rng):
    mine = submission.GroupedQueryAttention(48, 6, 2).to("meta")
    past = (torch.empty(2, 2, 5, 8, device="meta"), torch.empty(2, 2, 5, 8, device="meta"))
    result = on_meta(lambda: mine(torch.empty(2, 3, 48, device="meta"), kv_cache=past, use_cache=True))
    if result is not None:
        same(tuple(result[1][0].shape), (2, 2, 8, 8), says="the shape of the cache")


# ------------------------------------------------------------------------------- part 3


@part(3)
@pytest.mark.parametrize("geometry", [(60, 12, 3), (48, 6, 1), (40, 5, 5)])
def test_kv_bytes_per_token(submission, rng, geometry):
    d_model, H, H_kv = geometry
    layer = submission.GroupedQueryAttention(*geometry)
    d = d_model // H
    same(layer.kv_bytes_per_token(), 2 * H_kv * d * 2, says="keys and values of H_kv heads, two bytes a number")
    width = rng.choice([1, 4, 8])
    same(layer.kv_bytes_per_token(width), 2 * H_kv * d * width, says=f"{width} bytes a number")
    same(layer.kv_bytes_per_token(dtype_bytes=width), 2 * H_kv * d * width, says=f"dtype_bytes={width}")


@part(3)
def test_reduction_factor(submission, rng):
    H_kv, group = rng.integers(2, 9), rng.integers(3, 8)
    close(submission.kv_cache_reduction_factor(H_kv * group, H_kv), float(group), says="H / H_kv")
    close(submission.kv_cache_reduction_factor(64, 8), 8.0, says="Llama 3 70B: 64 query heads, 8 KV heads")
    close(submission.kv_cache_reduction_factor(32, 32), 1.0, says="multi-head attention saves nothing")
    close(submission.kv_cache_reduction_factor(40, 1), 40.0, says="multi-query attention")


@part(3)
@pytest.mark.parametrize("H, H_kv, d", [(6, 2, 4), (12, 3, 5), (8, 2, 3), (6, 1, 4), (4, 1, 1)])
def test_mean_pooling_averages_the_heads_that_will_share(submission, reference, rng, H, H_kv, d):
    weight = rng.normal(H * d, H * d)
    close(
        submission.mean_pool_kv_heads(weight, H, H_kv),
        reference.mean_pool_kv_heads(weight, H, H_kv),
        says="KV head n is the mean of query heads n * H/H_kv ... (n + 1) * H/H_kv - 1",
    )


@part(3)
def test_mean_pooling_into_as_many_heads_changes_nothing(submission, rng):
    weight, w = rng.normal(20, 20, dtype=torch.float64).requires_grad_(), rng.normal(20, 20, dtype=torch.float64)
    pooled = submission.mean_pool_kv_heads(weight, 5, 5)
    close(pooled, plain(weight), trivial_ok=True, says="H_kv = H")
    check(pooled.requires_grad, "with H_kv = H, too, the pooled weight carries a gradient")
    (pooled * w).sum().backward()
    close(weight.grad, w, says="H_kv = H: the gradient of the weight is that of the pooled one")


@part(3)
def test_converted_checkpoint_with_equal_heads_is_the_same_function(submission, reference, rng):
    H, H_kv, d = 6, 2, 8
    heads = rng.normal(H_kv, 1, d, H * d) / math.sqrt(H * d)
    weight = heads.expand(H_kv, H // H_kv, d, H * d).reshape(H * d, H * d)
    close(
        submission.mean_pool_kv_heads(weight, H, H_kv),
        heads.reshape(H_kv * d, H * d),
        says="heads that are equal inside each group pool to themselves",
    )


@part(3)
def test_mean_pooling_keeps_dtype_gradient_and_strided_input(submission, rng):
    weight = rng.normal(18, 18, dtype=torch.float64).t().requires_grad_()
    pooled = submission.mean_pool_kv_heads(weight, 6, 2)
    close(pooled, weight.detach().reshape(2, 3, 3, 18).mean(1).reshape(6, 18), says="a transposed float64 weight")
    w = rng.normal(6, 18, dtype=torch.float64)
    check(pooled.requires_grad, "the pooled weight must carry a gradient")
    (pooled * w).sum().backward()
    expected = (w.reshape(2, 1, 3, 18) / 3).expand(2, 3, 3, 18).reshape(18, 18)
    close(weight.grad, expected, says="the gradient of the weight: a third of the pooled one's")


@part(3)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mean_pooling_keeps_half_precision(submission, rng, dtype):
    weight = rng.normal(24, 24, dtype=dtype)
    expected = weight.double().reshape(2, 3, 4, 24).mean(1).reshape(8, 24).to(dtype)
    close(submission.mean_pool_kv_heads(weight, 6, 2), expected, says=f"a {dtype} weight")


@part(3)
@pytest.mark.parametrize("H, H_kv", [(6, 4), (8, 3), (4, 8)])
def test_reduction_factor_refuses_heads_that_do_not_divide(submission, H, H_kv):
    with raises(ValueError, says=f"kv_cache_reduction_factor({H}, {H_kv})"):
        submission.kv_cache_reduction_factor(H, H_kv)


@part(3)
@pytest.mark.parametrize("H, H_kv", [(6, 4), (8, 3), (4, 8)])
def test_mean_pooling_refuses_heads_that_do_not_divide(submission, rng, H, H_kv):
    with raises(ValueError, says=f"mean_pool_kv_heads(weight, {H}, {H_kv})"):
        submission.mean_pool_kv_heads(rng.normal(H * 4, H * 4), H, H_kv)


@part(3)
def test_mean_pooling_refuses_rows_that_heads_do_not_divide(submission, rng):
    for rows, H_kv in ((26, 2), (26, 1), (26, 6), (3, 2)):
        with raises(ValueError, says=f"mean_pool_kv_heads of a {rows} x {rows} weight with 6 heads into {H_kv}"):
            submission.mean_pool_kv_heads(rng.normal(rows, rows), 6, H_kv)


@part(3)
def test_mean_pooling_makes_nothing_on_another_device(submission):
    result = on_meta(lambda: submission.mean_pool_kv_heads(torch.empty(24, 24, device="meta"), 6, 2))
    if result is not None:
        same(tuple(result.shape), (8, 24), says="the shape of the pooled weight")
