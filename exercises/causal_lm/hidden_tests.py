"""Hidden tests of `causal_lm`: the shifted loss, its accumulation over ragged micro-batches, perplexity."""

import pytest
import torch


def batch(rng, rows, T, V, dtype=torch.float32, ignored=()):
    """Random logits (rows, T, V) and tokens (rows, T); `ignored` lists (row, first place to ignore)."""
    tokens = rng.integers(0, V, rows, T)
    for row, start in ignored:
        tokens[row, start:] = -100
    return rng.normal(rows, T, V, dtype=dtype) * 2, tokens


def by_hand(logits, tokens, ignore_index=-100):
    """(sum, count) of the losses, one place after another, in float64."""
    log_probs = torch.log_softmax(logits.double(), -1)
    total, count = torch.zeros((), dtype=torch.float64), 0
    for row in range(tokens.shape[0]):
        for t in range(tokens.shape[1] - 1):
            target = int(tokens[row, t + 1])
            if target != ignore_index:
                total, count = total - log_probs[row, t, target], count + 1
    return total, count


def mean_by_hand(*batches):
    """The mean loss over all real targets of all batches, float32."""
    sums = [by_hand(*each) for each in batches]
    return (sum(total for total, _ in sums) / sum(count for _, count in sums)).float()


def gradient(call, logits):
    """The gradient of 3 times call(logits), so that the gradient from above counts too, and the loss."""
    own = logits.detach().clone().requires_grad_()
    loss = call(own)
    (3.0 * loss).backward()
    return own.grad, loss


# ------------------------------------------------------------------------------------------ part 1


@part(1)
def test_mean_over_all_next_tokens(submission, rng):
    logits, tokens = batch(rng, 3, 7, 11)
    close(
        submission.causal_lm_loss(logits, tokens), mean_by_hand((logits, tokens)), says="mean loss of the next tokens"
    )


@part(1)
def test_copying_the_input_is_no_prediction(submission, rng):
    tokens = torch.stack([rng.permutation(9)[:8] for _ in range(3)])
    logits = 12.0 * torch.nn.functional.one_hot(tokens, 9).float()
    loss = submission.causal_lm_loss(logits, tokens)
    close(loss, mean_by_hand((logits, tokens)), says="logits that repeat the token just read are all wrong")


@part(1)
def test_knowing_the_next_token_is_a_small_loss(submission, rng):
    tokens = rng.integers(0, 9, 3, 8)
    following = torch.cat([tokens[:, 1:], rng.integers(0, 9, 3, 1)], 1)
    logits = 4.0 * torch.nn.functional.one_hot(following, 9).float()
    loss = submission.causal_lm_loss(logits, tokens)
    close(loss, mean_by_hand((logits, tokens)), says="logits that name the next token are all right")


@part(1)
def test_uniform_logits_give_log_v(submission, rng):
    tokens = rng.integers(0, 17, 2, 6)
    loss = submission.causal_lm_loss(torch.zeros(2, 6, 17), tokens)
    close(loss, torch.tensor(17.0).log(), says="uniform logits over 17 tokens give ln 17")


@part(1)
def test_ignored_tokens_are_no_targets(submission, rng):
    logits, tokens = batch(rng, 3, 8, 11, ignored=((0, 5), (2, 2)))
    loss = submission.causal_lm_loss(logits, tokens)
    close(loss, mean_by_hand((logits, tokens)), says="mean over the targets that are not -100")


@part(1)
def test_rows_of_different_length_count_by_token(submission, rng):
    logits, tokens = batch(rng, 2, 12, 7, ignored=((1, 3),))
    loss = submission.causal_lm_loss(logits, tokens)
    close(loss, mean_by_hand((logits, tokens)), says="a long row weighs more than a short one")
    with torch.no_grad():
        loss = submission.causal_lm_loss(logits.flip(0), tokens.flip(0))
    close(loss, mean_by_hand((logits.flip(0), tokens.flip(0))), says="the rows exchanged, under no_grad")


@part(1)
def test_rows_without_targets_add_nothing(submission, rng):
    logits, tokens = batch(rng, 5, 6, 7, ignored=((0, 0), (2, 1)))  # the whole of row 0, all targets of row 2
    loss = submission.causal_lm_loss(logits, tokens)
    close(loss, mean_by_hand((logits, tokens)), says="rows without a target, before and between others")


@part(1)
def test_padding_changes_nothing(submission, rng):
    logits, tokens = batch(rng, 3, 6, 11)
    padded = torch.cat([tokens, torch.full((3, 4), -100)], 1)
    longer = torch.cat([logits, 3 * rng.normal(3, 4, 11)], 1)
    plain_loss = submission.causal_lm_loss(logits, tokens)
    close(plain_loss, mean_by_hand((logits, tokens)), says="the loss without padding")
    close(submission.causal_lm_loss(longer, padded), plain_loss, says="padding of -100 does not change the loss")


@part(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_long_sequence(submission, rng, dtype):
    logits, tokens = batch(rng, 2, 700, 5, dtype=dtype, ignored=((1, 530),))
    logits[:, 512:] *= 1.5
    loss = submission.causal_lm_loss(logits, tokens)
    close(loss, mean_by_hand((logits, tokens)).to(dtype), says="700 tokens, the last ones harder: one mean, none lost")


@part(1)
def test_padding_in_front_still_predicts_the_first_token(submission, rng):
    logits, tokens = batch(rng, 2, 7, 11)
    tokens[0, :3], tokens[1, 0] = -100, -100
    loss = submission.causal_lm_loss(logits, tokens)
    close(
        loss, mean_by_hand((logits, tokens)), says="whether a place counts is decided by its target, not by its input"
    )


@part(1)
def test_ignored_tokens_inside_a_row(submission, rng):
    logits, tokens = batch(rng, 3, 9, 131)
    tokens[torch.tensor([0, 1, 1, 2]), torch.tensor([4, 2, 6, 8])] = -100
    loss = submission.causal_lm_loss(logits, tokens)
    close(loss, mean_by_hand((logits, tokens)), says="single ignored tokens inside the rows")


@part(1)
@pytest.mark.parametrize("ignore_index", [0, 3, 6, -1])
def test_another_ignore_index(submission, rng, ignore_index):
    logits, tokens = batch(rng, 3, 8, 7)
    tokens[0, 4:], tokens[2, 6:] = ignore_index, ignore_index
    total, count = by_hand(logits, tokens, ignore_index)
    loss = submission.causal_lm_loss(logits, tokens, ignore_index=ignore_index)
    close(loss, (total / count).float(), says=f"ignore_index = {ignore_index}")


@part(1)
def test_token_zero_is_a_token(submission, rng):
    logits, tokens = batch(rng, 3, 8, 5)
    tokens[:, 2:5] = 0
    loss = submission.causal_lm_loss(logits, tokens)
    close(loss, mean_by_hand((logits, tokens)), says="token 0 is a target like any other")


@part(1)
def test_the_last_logits_and_ignored_targets_get_no_gradient(submission, reference, rng):
    logits, tokens = batch(rng, 2, 6, 7, dtype=torch.float64, ignored=((1, 3),))
    mine, _ = gradient(lambda own: submission.causal_lm_loss(own, tokens), logits)
    right, _ = gradient(lambda own: reference.causal_lm_loss(own, tokens), logits)
    check(mine is not None, "the gradient of the logits is missing")
    close(mine, right, says="gradient of 3 times the loss by the logits, zero where nothing is predicted")
    mine, right = (
        gradient(lambda own, module=module: module.causal_lm_loss(own, tokens[:1]), logits[:1])[0]
        for module in (submission, reference)
    )
    close(mine, right, says="gradient of the logits of a batch of one row")


@part(1)
def test_one_token_has_no_target(submission, rng):
    logits, tokens = batch(rng, 3, 1, 7)
    mine, loss = gradient(lambda own: submission.causal_lm_loss(own, tokens), logits)
    close(loss, torch.tensor(0.0), says="T = 1: there is nothing to predict, so the loss is 0")
    check(mine is not None and not bool(mine.any()), "T = 1: the gradient is 0")


@part(1)
def test_everything_ignored_gives_zero(submission, rng):
    logits, _ = batch(rng, 3, 5, 7)
    tokens = torch.full((3, 5), -100)
    mine, loss = gradient(lambda own: submission.causal_lm_loss(own, tokens), logits)
    close(loss, torch.tensor(0.0), says="no real target: the loss is 0, not 0/0")
    check(mine is not None and not bool(mine.any()), "no real target: the gradient is 0")


@part(1)
def test_only_the_first_token_is_real(submission, rng):
    """A real token that nobody predicts: the count of targets is 0 although the count of tokens is not."""
    logits, tokens = batch(rng, 3, 5, 7, ignored=((0, 1), (1, 1), (2, 1)))
    mine, loss = gradient(lambda own: submission.causal_lm_loss(own, tokens), logits)
    close(loss, torch.tensor(0.0), says="only first tokens are real: nothing is predicted")
    check(mine is not None and not bool(mine.any()), "only first tokens are real: the gradient is 0")


@part(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_of_ten_thousand(submission, rng, dtype):
    tokens = rng.integers(0, 6, 2, 5)
    signs = 2.0 * rng.integers(0, 2, 2, 5, 6).float() - 1.0
    logits = (1e4 * signs * rng.uniform(0.5, 1.0, 2, 5, 6)).to(dtype)
    logits[..., 0] = -1e4
    tokens[0, 2] = 0
    loss = submission.causal_lm_loss(logits, tokens)
    close(loss, mean_by_hand((logits, tokens)).to(dtype), says="logits of +-10,000 give an exact, finite loss")
    mine, _ = gradient(lambda own: submission.causal_lm_loss(own, tokens), logits)
    check(mine is not None and bool(mine.isfinite().all()), "logits of +-10,000 have finite gradients")


@part(1)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_loss_keeps_the_dtype(submission, reference, rng, dtype):
    logits, tokens = batch(rng, 3, 7, 11, dtype=dtype)
    tokens = tokens.clamp(min=1)  # whether token 0 counts is for another test: in 16 bits the difference could hide
    loss = submission.causal_lm_loss(logits, tokens)
    close(loss, mean_by_hand((logits, tokens)).to(dtype), says="the loss has the dtype of the logits")
    mine, _ = gradient(lambda own: submission.causal_lm_loss(own, tokens), logits)
    right, _ = gradient(lambda own: reference.causal_lm_loss(own, tokens), logits.double())
    check(mine is not None, f"the gradient of the logits is missing in {dtype}")
    close(mine, right.to(dtype), says=f"gradient of the logits in {dtype}", tol=0.1)


@part(1)
def test_many_rows_and_a_large_vocabulary(submission, rng):
    for rows, T, V in ((71, 2, 5), (1, 3, 1501)):
        logits, tokens = batch(rng, rows, T, V)
        loss = submission.causal_lm_loss(logits, tokens)
        close(loss, mean_by_hand((logits, tokens)), says=f"{rows} rows of {T} tokens, a vocabulary of {V}")


@part(1)
def test_strided_arguments(submission, rng):
    logits, tokens = batch(rng, 8, 3, 11)
    logits, tokens = logits.transpose(0, 1), tokens.t()
    loss = submission.causal_lm_loss(logits, tokens)
    close(loss, mean_by_hand((logits, tokens)), says="arguments that are not contiguous")


@part(1)
def test_a_batch_of_one_and_two_tokens(submission, rng):
    logits, tokens = batch(rng, 1, 2, 5)
    close(submission.causal_lm_loss(logits, tokens), mean_by_hand((logits, tokens)), says="one row of two tokens")


@part(1)
def test_loss_stays_on_its_device(submission):
    logits = torch.ones(2, 5, 7, device="meta")
    tokens = torch.zeros(2, 5, dtype=torch.int64, device="meta")
    on_meta(lambda: submission.causal_lm_loss(logits, tokens))


# ------------------------------------------------------------------------------------------ part 2


def ragged(rng, dtype=torch.float32):
    """Three micro-batches with 14, 15 and 2 real targets and quite different losses."""
    first = batch(rng, 2, 8, 7, dtype=dtype)
    second = batch(rng, 3, 6, 7, dtype=dtype)
    third = batch(rng, 2, 4, 7, dtype=dtype, ignored=((0, 2), (1, 2)))
    return [(first[0] * 0.2, first[1]), second, (third[0] * 4, third[1])]


@part(2)
def test_accumulation_equals_the_loss_of_everything_at_once(submission, rng):
    pieces = ragged(rng)
    close(
        submission.accumulated_loss(pieces), mean_by_hand(*pieces), says="the mean over all real targets of all pieces"
    )


@part(2)
def test_equal_pieces(submission, rng):
    pieces = [batch(rng, 2, 6, 7) for _ in range(4)]
    close(submission.accumulated_loss(pieces), mean_by_hand(*pieces), says="four pieces of the same size")
    pieces = ragged(rng)
    with torch.no_grad():
        loss = submission.accumulated_loss(pieces)
    close(loss, mean_by_hand(*pieces), says="another accumulation afterwards, under no_grad")


@part(2)
def test_one_piece(submission, rng):
    pieces = [batch(rng, 3, 6, 7, ignored=((1, 2),))]
    close(submission.accumulated_loss(pieces), mean_by_hand(*pieces), says="a single piece is an ordinary loss")


@part(2)
def test_cutting_a_batch_into_rows_changes_nothing(submission, rng):
    logits, tokens = batch(rng, 4, 9, 7, ignored=((0, 3), (2, 6)))
    whole = mean_by_hand((logits, tokens))
    rows = [(logits[row : row + 1], tokens[row : row + 1]) for row in range(4)]
    close(submission.accumulated_loss(rows), whole, says="one row at a time equals the batch at once")
    close(submission.accumulated_loss(rows[::-1]), whole, says="the order of the pieces does not matter")


@part(2)
def test_a_piece_without_targets(submission, rng):
    pieces = ragged(rng)
    empty = batch(rng, 2, 5, 7)[0], torch.full((2, 5), -100)
    single = batch(rng, 3, 1, 7)
    loss = submission.accumulated_loss([empty, *pieces, single])
    close(loss, mean_by_hand(*pieces), says="pieces without a real target add nothing")
    one = batch(rng, 1, 2, 7)
    close(submission.accumulated_loss([empty, one]), mean_by_hand(one), says="one real target in all pieces together")


@part(2)
def test_accumulation_passes_gradients_to_every_piece(submission, reference, rng):
    pieces = ragged(rng, dtype=torch.float64) + [batch(rng, 1, 3, 7, dtype=torch.float64) for _ in range(14)]
    found = []
    for module in (submission, reference):
        own = [(logits.clone().requires_grad_(), tokens) for logits, tokens in pieces]
        (3.0 * module.accumulated_loss(own)).backward()
        found.append([logits.grad for logits, _ in own])
    for place, (mine, right) in enumerate(zip(*found, strict=True)):
        check(mine is not None, f"the gradient of piece {place} is missing")
        close(mine, right, says=f"gradient of 3 times the loss by piece {place}")
    *frozen, (logits, tokens) = pieces[:3]
    mine, right = (
        gradient(lambda own, module=module: module.accumulated_loss([*frozen, (own, tokens)]), logits)[0]
        for module in (submission, reference)
    )
    check(mine is not None, "the gradient of the last piece is missing when the others need none")
    close(mine, right, says="gradient of the last piece when the others need none")


@part(2)
def test_no_target_in_any_piece(submission, rng):
    for lengths in ((1, 4), (1, 1)):
        own = [(batch(rng, 2, T, 7)[0].requires_grad_(), torch.full((2, T), -100)) for T in lengths]
        loss = submission.accumulated_loss(own)
        close(loss, torch.tensor(0.0), says=f"no real target anywhere, pieces of {lengths} tokens: the loss is 0")
        loss.backward()
        for place, (logits, _) in enumerate(own):
            check(
                logits.grad is None or not bool(logits.grad.any()),
                f"no real target anywhere, pieces of {lengths} tokens: the gradient of piece {place} is 0",
            )


@part(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_accumulation_keeps_the_dtype(submission, reference, rng, dtype):
    pieces = [(logits, tokens.masked_fill(tokens == 0, 1)) for logits, tokens in ragged(rng, dtype=dtype)]
    right = mean_by_hand(*pieces).to(dtype)
    close(submission.accumulated_loss(pieces), right, says="the loss has the dtype of the logits")
    found = []
    for module, given in ((submission, dtype), (reference, torch.float64)):
        own = [(logits.to(given).clone().requires_grad_(), tokens) for logits, tokens in pieces]
        module.accumulated_loss(own).backward()
        found.append([logits.grad for logits, _ in own])
    for place, (mine, right) in enumerate(zip(*found, strict=True)):
        check(mine is not None, f"the gradient of piece {place} is missing in {dtype}")
        close(mine, right.to(dtype), says=f"gradient of piece {place} in {dtype}", tol=0.1)


@part(2)
def test_counts_above_256_are_exact_in_half_precision(submission, rng):
    tokens = rng.integers(0, 3, 1, 700)
    pieces = [
        (rng.normal(1, 700, 3, dtype=torch.bfloat16), tokens),
        (rng.normal(1, 40, 3, dtype=torch.bfloat16), tokens[:, :40]),
    ]
    right = mean_by_hand(*pieces).to(torch.bfloat16)
    close(submission.accumulated_loss(pieces), right, says="738 targets in bfloat16")


@part(2)
def test_micro_batches_of_ten_thousand(submission, rng):
    pieces = [(1e4 * torch.sign(logits) + logits, tokens) for logits, tokens in ragged(rng)]
    close(submission.accumulated_loss(pieces), mean_by_hand(*pieces), says="logits of +-10,000 in every piece")


@part(2)
def test_accumulation_stays_on_its_device(submission):
    pieces = [(torch.ones(2, T, 7, device="meta"), torch.zeros(2, T, dtype=torch.int64, device="meta")) for T in (4, 6)]
    on_meta(lambda: submission.accumulated_loss(pieces))


# ------------------------------------------------------------------------------------------ part 3


@part(3)
def test_perplexity_is_the_exponential(submission, rng):
    loss = rng.uniform(0.5, 4.0, 1)[0]
    close(submission.perplexity(loss), loss.exp(), says="perplexity of a loss in nats")


@part(3)
def test_uniform_guessing_has_the_perplexity_of_the_vocabulary(submission, rng):
    V = rng.integers(50, 500)
    loss = torch.tensor(float(V), dtype=torch.float64).log()
    close(
        submission.perplexity(loss),
        torch.tensor(float(V), dtype=torch.float64),
        says=f"ln {V} nats are a perplexity of {V}",
    )


@part(3)
def test_perplexity_of_zero_is_one(submission):
    close(submission.perplexity(torch.tensor(0.0)), torch.tensor(1.0), says="a loss of 0 is a perplexity of 1")


@part(3)
def test_large_losses_are_not_cut(submission, rng):
    loss = rng.uniform(25.0, 60.0, 1)[0]
    close(submission.perplexity(loss), loss.double().exp().float(), says="perplexity of a large loss", tol=1e-3)
    loss = rng.uniform(100.0, 300.0, 1)[0].double()
    close(submission.perplexity(loss), loss.exp(), says="perplexity of a large loss in float64")
    # Here float16 would overflow.  A power of 2 rounds its exponent in 16 bits, so the tolerance is wide.
    loss = rng.uniform(12.0, 14.0, 1)[0].bfloat16()
    close(submission.perplexity(loss), loss.double().exp().bfloat16(), says="perplexity of a loss in bfloat16", tol=0.2)


@part(3)
def test_perplexity_passes_gradients(submission, rng):
    loss = rng.uniform(0.5, 3.0, 1, dtype=torch.float64)[0]
    mine, _ = gradient(submission.perplexity, loss)
    check(mine is not None, "the gradient of the loss is missing")
    close(mine, 3.0 * loss.exp(), says="the derivative of 3 times the perplexity is 3 times the perplexity")
    several = rng.uniform(0.5, 4.0, 2, 3)  # here, since whoever takes .item() has failed for its gradient by now
    close(submission.perplexity(several), several.exp(), says="one perplexity for each loss, in loss's shape")


@part(3)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_perplexity_keeps_the_dtype(submission, rng, dtype):
    loss = rng.uniform(0.5, 3.0, 1)[0].to(dtype)
    close(submission.perplexity(loss), loss.double().exp().to(dtype), says="the dtype of the loss")


@part(3)
def test_perplexity_stays_on_its_device(submission):
    on_meta(lambda: submission.perplexity(torch.ones((), device="meta")))
