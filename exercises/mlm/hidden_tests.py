"""Hidden tests of `mlm`: masking by its statistics, the two losses by their values.

False alarms.  A right answer fails a statistical test only by chance.  With N = 40,000 tokens a test, every count is
allowed 6.5 standard deviations (7 for the tests that look at ten counts), and the exact binomial probabilities of
straying further are, for both sides together (pairs of neighbours are allowed 9, which adds less than 1e-17):

    targets at p = 0.15         8.5e-11        one of 9 random ids at 0.1/11, 7 deviations               1.6e-11
    targets at p = 0.4          8.2e-11        one of 10 stretches of 4,000 tokens at 0.15, 7 deviations  1.0e-11
    [MASK] at 0.8               8.1e-11        random or kept at 0.1                                      8.8e-11 each

The count at p = 0.15 is also taken among 20,000 ordinary tokens between special ones, with the same bound. The
80/10/10 test runs at two rates; at mask_prob = 0.6 the bound is taken for the targets that were drawn. The roles at
15% and 5% of 160,000 tokens (3e-10 each) and the eighths of a vocabulary (1e-10) are allowed as much. The
sum over all tests of one run is below 3e-9; two draws of 1,000 tokens that coincide add less than 1e-100. The promise
is 1e-6. Answers that fix the number of targets instead of drawing it stray less.

What a check records is rounded coarsely, so that it depends on the submission's rule and not on its draws.
"""

import math

import pytest
import torch

ROWS, LENGTH = 4, 10_000
N = ROWS * LENGTH


def plain_tokens(rng, mask_id, vocab_size, *shape):
    """Uniform tokens other than mask_id, so that [MASK] and unchanged can be told apart."""
    tokens = rng.integers(0, vocab_size - 1, *shape)
    return tokens + (tokens >= mask_id).long()


def nothing_special(tokens):
    """No special token."""
    return torch.zeros_like(tokens, dtype=torch.bool)


def deviation(count, probability, deviations=6.5):
    """The allowed distance of a binomial count from its mean."""
    return deviations * math.sqrt(count * probability * (1 - probability))


def rounded(rate, grid=0.05):
    """A rate on a coarse grid."""
    return round(round(float(rate) / grid) * grid, 3)


def share(condition, among):
    """The rate of `condition` among the places where `among` holds, on a coarse grid; -1 where there is none."""
    return rounded((condition & among).sum() / among.sum()) if bool(among.any()) else -1.0


def gradient(call, *arguments):
    """Gradients of call(*arguments) with respect to the arguments, and the loss."""
    own = [tensor.detach().clone().requires_grad_() for tensor in arguments]
    loss = call(*own)
    loss.backward()
    return [tensor.grad for tensor in own], loss


# ------------------------------------------------------------------------------------------ part 1


@part(1)
def test_fifteen_percent_of_the_tokens_are_targets(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, ROWS, LENGTH)
    _, labels = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, rng.generator())
    targets = int((labels != -100).sum())
    check(
        abs(targets - 0.15 * N) <= deviation(N, 0.15),
        "by default 15% of the tokens have a label",
        seen=rounded(targets / N),
    )


@part(1)
def test_mask_prob_is_the_rate_of_targets(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, ROWS, LENGTH)
    _, labels = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, rng.generator(), mask_prob=0.4)
    targets = int((labels != -100).sum())
    check(
        abs(targets - 0.4 * N) <= deviation(N, 0.4),
        "with mask_prob = 0.4, 40% of the tokens have a label",
        seen=rounded(targets / N),
    )


def roles_are_drawn_apart(submission, rng, mask_prob=1.0):
    """Whoever draws one role for a whole call must not look like whoever always takes that one."""
    mask_id, generator, uniform_calls = rng.integers(100, 4900), rng.generator(), 0
    for _ in range(24):
        tokens = plain_tokens(rng, mask_id, 5000, 5, 40)
        inputs, labels = submission.mask_tokens(tokens, nothing_special(tokens), 5000, mask_id, generator, mask_prob)
        uniform_calls += bool((labels != -100).any()) and bool((inputs == mask_id)[labels != -100].all())
    mixed = uniform_calls not in range(1, 24)
    check(mixed, "every target of a call draws a role of its own", seen=mixed)


@part(1)
@pytest.mark.parametrize("mask_prob", [0.6, 1.0])
def test_targets_are_corrupted_80_10_10(submission, rng, mask_prob):
    roles_are_drawn_apart(submission, rng, mask_prob)
    vocab_size, mask_id = 5000, rng.integers(100, 4900)
    tokens = plain_tokens(rng, mask_id, vocab_size, ROWS, LENGTH)
    inputs, labels = submission.mask_tokens(
        tokens, nothing_special(tokens), vocab_size, mask_id, rng.generator(), mask_prob
    )
    target = labels != -100
    count = max(int(target.sum()), 1)
    masked = int((target & (inputs == mask_id)).sum())
    kept = int((target & (inputs == tokens)).sum())
    other = int(target.sum()) - masked - kept
    # A random id is the token itself or [MASK] once in 5000 times: about one token, never forty.
    fits = all(
        abs(seen - rate * count) <= deviation(count, rate) + 40
        for seen, rate in ((masked, 0.8), (kept, 0.1), (other, 0.1))
    )
    seen = tuple(rounded(part_count / count, 0.02) for part_count in (masked, kept, other))
    check(fits, "of the targets 80% become [MASK], 10% stay as they are and 10% become a random id", seen=seen)


@part(1)
def test_labels_are_the_original_tokens(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, ROWS, LENGTH)
    _, labels = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, rng.generator(), 0.4)
    right = (labels == tokens) | (labels == -100)
    seen = (int(labels.min()), rounded((labels == tokens).float().mean()), rounded(right.float().mean()))
    check(right.all(), "a label is the token that stood there before, or -100", seen=seen)


@part(1)
def test_every_target_has_a_label_at_rate_one(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, ROWS, LENGTH)
    _, labels = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, rng.generator(), 1.0)
    seen = (
        rounded((labels == tokens).float().mean()),
        rounded((labels == -100).float().mean()),
        int(labels.max() > 999),
    )
    check(torch.equal(labels, tokens), "with mask_prob = 1 every token has its label, unchanged ones too", seen=seen)


@part(1)
def test_other_tokens_are_left_alone(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, ROWS, LENGTH)
    inputs, labels = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, rng.generator())
    changed = (labels == -100) & (inputs != tokens)
    check(
        not bool(changed.any()), "a token without a label is shown as it is", seen=rounded(changed.float().mean(), 0.02)
    )


@part(1)
def test_special_tokens_are_never_targets(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, ROWS, LENGTH)
    special = rng.uniform(0.0, 1.0, ROWS, LENGTH) < 0.3
    inputs, labels = submission.mask_tokens(tokens, special, 1000, 3, rng.generator(), 0.5)
    labelled, changed = share(labels != -100, special), share(inputs != tokens, special)
    right = bool((labels[special] == -100).all()) and torch.equal(inputs[special], tokens[special])
    check(
        right,
        "special tokens have no label and are not changed",
        seen=(labelled, changed, share(labels != -100, ~special)),
    )


@part(1)
def test_ordinary_tokens_between_special_ones_are_targets(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, 3, 400)
    special = rng.uniform(0.0, 1.0, 3, 400) < 0.4
    _, labels = submission.mask_tokens(tokens, special, 1000, 3, rng.generator(), 1.0)
    right = torch.equal(labels, torch.where(special, -100, tokens))
    seen = (share(labels == tokens, ~special), share(labels == -100, special))
    check(right, "with mask_prob = 1 exactly the ordinary tokens have labels", seen=seen)


@part(1)
def test_special_tokens_leave_the_rate_of_the_others_alone(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, ROWS, LENGTH)
    special = (torch.arange(LENGTH, device=tokens.device) % 2 == 0).repeat(ROWS, 1)
    _, labels = submission.mask_tokens(tokens, special, 1000, 3, rng.generator())
    targets = int((labels != -100).sum())
    check(
        abs(targets - 0.15 * N / 2) <= deviation(N / 2, 0.15),
        "15% of the ordinary tokens have a label, however many special ones there are",
        seen=rounded(targets / N * 2),
    )


@part(1)
def test_only_special_mask_says_what_is_special(submission, rng):
    tokens = rng.integers(0, 9, 3, 100)  # [MASK] itself and the id 0 among them, as ordinary tokens
    _, labels = submission.mask_tokens(tokens, nothing_special(tokens), 9, 3, rng.generator(), 1.0)
    same(labels, tokens, says="with mask_prob = 1 every token has its label, whatever its id")


@part(1)
def test_nothing_but_special_tokens(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, 3, 50)
    inputs, labels = submission.mask_tokens(
        tokens, torch.ones_like(tokens, dtype=torch.bool), 1000, 3, rng.generator(), 0.5
    )
    same(labels, torch.full_like(tokens, -100), says="only special tokens: no target")
    same(inputs, tokens, says="only special tokens: nothing is changed")


@part(1)
def test_random_ids_are_uniform_over_the_vocabulary(submission, rng):
    vocab_size = 11
    token, mask_id = rng.choice([(4, 6), (5, 3), (6, 4), (3, 7)])
    tokens = torch.full((ROWS, LENGTH), token)
    inputs, _ = submission.mask_tokens(tokens, nothing_special(tokens), vocab_size, mask_id, rng.generator(), 1.0)
    counts = [int((inputs == name).sum()) for name in range(vocab_size)]
    expected, allowed = N * 0.1 / vocab_size, deviation(N, 0.1 / vocab_size, 7)
    observed = [name for name in range(vocab_size) if name not in (token, mask_id)]
    inside = all(abs(counts[name] - expected) <= allowed for name in observed)
    missing = tuple(name for name in observed if counts[name] == 0)
    outside = int(((inputs < 0) | (inputs >= vocab_size)).any())
    right = inside and not outside
    seen = (missing if len(missing) <= 2 else "many", outside)
    check(right, "random ids are uniform over 0 to vocab_size - 1", seen=seen)


@part(1)
def test_random_ids_differ_from_place_to_place(submission, rng):
    tokens = plain_tokens(rng, 3, 5000, ROWS, LENGTH)
    inputs, _ = submission.mask_tokens(tokens, nothing_special(tokens), 5000, 3, rng.generator(), 1.0)
    drawn = inputs[(inputs != tokens) & (inputs != 3)]
    # 4,000 draws from 5,000 ids hit about 2,750 different ones; fewer than 1,000 never happens.
    kinds = int(drawn.unique().numel())
    check(kinds >= 1000, "the random ids are drawn anew for each place", seen=(min(kinds, 5), int(kinds >= 1000)))


@part(1)
def test_every_stretch_of_the_sequence_has_its_share(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, ROWS, LENGTH)
    _, labels = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, rng.generator())
    size = N // 10
    counts = (labels != -100).view(ROWS, 10, LENGTH // 10).sum((0, 2)).tolist()
    even = all(abs(count - 0.15 * size) <= deviation(size, 0.15, 7) for count in counts)
    check(even, "targets are spread evenly over the positions", seen=tuple(rounded(count / size) for count in counts))


@part(1)
def test_neighbours_are_drawn_apart(submission, rng):
    # Pairs of neighbours: 900 of targets, standard deviation 33; 25,500 of [MASK], standard deviation 132.
    tokens, generator = plain_tokens(rng, 3, 1000, ROWS, LENGTH), rng.generator()
    _, labels = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, generator)
    inputs = []
    for piece in tokens.split(250, dim=1):  # many calls: one role for a whole call is not always the same role
        inputs.append(submission.mask_tokens(piece, nothing_special(piece), 1000, 3, generator, 1.0)[0])
    for drawn, rate, allowed, what in (
        (labels != -100, 0.15, 300, "a target"),
        (torch.stack(inputs) == 3, 0.8, 1200, "[MASK]"),
    ):
        pairs = drawn[..., 1:] & drawn[..., :-1]
        fits = abs(int(pairs.sum()) - rate**2 * pairs.numel()) <= allowed
        check(fits, f"whether a token is {what} does not depend on its neighbour", seen=rounded(pairs.float().mean()))


@part(1)
def test_every_row_has_targets_of_its_own(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, 5, 1000)
    _, labels = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, rng.generator())
    patterns = (labels != -100).unique(dim=0).shape[0]
    check(patterns == 5, "the rows of a batch are masked independently", seen=patterns)


@part(1)
def test_every_row_of_every_block_has_targets_of_its_own(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, 3, 4, 500)
    _, labels = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, rng.generator(), 0.5)
    patterns = (labels != -100).view(12, 500).unique(dim=0).shape[0]
    check(patterns == 12, "tokens of three dimensions are masked independently along each", seen=patterns)
    drawn = (labels != -100).view(12, 500)
    opposite = max(rounded((drawn[one] != drawn[other]).float().mean()) for one in range(12) for other in range(one))
    check(opposite < 0.9, "no row is the opposite of another", seen=opposite)


@part(1)
def test_every_row_has_roles_of_its_own(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, 5, 1000)
    inputs, _ = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, rng.generator(), 1.0)
    patterns = (inputs == 3).unique(dim=0).shape[0]
    check(patterns == 5, "whether a target becomes [MASK] is drawn for every row anew", seen=patterns)


@part(1)
def test_every_row_has_random_ids_of_its_own(submission, rng):
    # About 1,900 pairs of random ids stand in one column; two of 30,000 ids seldom agree.
    tokens = plain_tokens(rng, 3, 30_000, 20, 1000)
    inputs, _ = submission.mask_tokens(tokens, nothing_special(tokens), 30_000, 3, rng.generator(), 1.0)
    drawn = (inputs != 3) & (inputs != tokens)
    pairs = drawn[:, None] & drawn[None] & ~torch.eye(20, dtype=torch.bool, device=drawn.device)[:, :, None]
    agree = share(inputs[:, None] == inputs[None], pairs)
    check(agree < 0.5, "the random ids of a row are not those of another row", seen=agree)


@part(1)
def test_two_calls_mask_differently(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, 2, 1000)
    generator = rng.generator()
    _, first = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, generator)
    _, second = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, generator)
    check(not torch.equal(first, second), "a second call with the same generator draws new targets (dynamic masking)")


@part(1)
def test_the_same_generator_state_gives_the_same_result(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, 2, 1000)
    generator = rng.generator()
    state = generator.get_state()
    first = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, generator)
    generator.set_state(state)
    second = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, generator)
    check(torch.equal(first[1], second[1]), "the targets depend on the generator alone")
    check(torch.equal(first[0], second[0]), "the corruption depends on the generator alone")


@part(1)
def test_different_generators_give_different_results(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, 2, 1000)
    _, first = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, rng.generator())
    _, second = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, rng.generator())
    check(not torch.equal(first, second), "another seed gives other targets")


@part(1)
def test_the_generator_advances(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, 2, 300)
    generator = rng.generator()
    before = generator.get_state()
    submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, generator)
    check(not torch.equal(before, generator.get_state()), "the generator that was given has advanced")


@part(1)
def test_the_global_generator_is_left_alone(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, 2, 300)
    submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, rng.generator())
    check(submission.global_rng_untouched(), "no number is drawn from a global random generator")


@part(1)
@pytest.mark.parametrize("shape", [(37,), (2, 3, 19), (5, 1)])
def test_any_shape(submission, rng, shape):
    tokens = plain_tokens(rng, 3, 1000, *shape)
    special = rng.uniform(0.0, 1.0, *shape) < 0.3
    inputs, labels = submission.mask_tokens(tokens, special, 1000, 3, rng.generator(), 1.0)
    check(inputs.shape == tokens.shape, "inputs have the shape of the tokens", seen=tuple(inputs.shape))
    same(labels, torch.where(special, -100, tokens), says="labels for tokens of another shape")


@part(1)
@pytest.mark.parametrize("mask_prob", [0.15, 0.05])
def test_the_roles_in_one_long_row_at_an_ordinary_rate(submission, rng, mask_prob):
    roles_are_drawn_apart(submission, rng)
    tokens, options = plain_tokens(rng, 3, 5000, 1, 4 * N), {} if mask_prob == 0.15 else {"mask_prob": mask_prob}
    inputs, labels = submission.mask_tokens(tokens, nothing_special(tokens), 5000, 3, rng.generator(), **options)
    target = labels != -100
    count = max(int(target.sum()), 1)
    masked, kept = int((target & (inputs == 3)).sum()), int((target & (inputs == tokens)).sum())
    roles = ((masked, 0.8), (kept, 0.1), (count - masked - kept, 0.1))
    fits = all(abs(seen - rate * count) <= deviation(count, rate) + 40 for seen, rate in roles)
    fits = fits and abs(count - mask_prob * 4 * N) <= deviation(4 * N, mask_prob)
    seen = (rounded(count / (4 * N)), *(rounded(seen / count) for seen, _ in roles))
    check(fits, f"80/10/10 of the targets in one row, at a rate of {mask_prob}", seen=seen)


@part(1)
def test_two_calls_corrupt_differently(submission, rng):
    tokens, generator = plain_tokens(rng, 3, 30_000, ROWS, LENGTH), rng.generator()
    first, second = (
        submission.mask_tokens(tokens, nothing_special(tokens), 30_000, 3, generator, 1.0)[0] for _ in range(2)
    )
    roles = rounded(((first == 3) == (second == 3)).float().mean())  # about 0.68
    check(roles < 0.9, "a second call draws new roles", seen=roles)
    both = (first != 3) & (first != tokens) & (second != 3) & (second != tokens)  # about 400 places
    agree = share(first == second, both)
    check(-0.5 < agree < 0.5, "a second call draws new random ids", seen=agree)


@part(1)
def test_random_ids_of_bert_s_vocabulary(submission, rng):
    roles_are_drawn_apart(submission, rng)
    tokens = plain_tokens(rng, 3, 30_522, ROWS, 4 * LENGTH)
    inputs, _ = submission.mask_tokens(tokens, nothing_special(tokens), 30_522, 3, rng.generator(), 1.0)
    drawn = inputs[(inputs != 3) & (inputs != tokens)]
    counts = [int((drawn * 8 // 30_522 == eighth).sum()) for eighth in range(8)]
    even = all(abs(count - 4 * N * 0.1 / 8) <= deviation(4 * N, 0.1 / 8, 7) for count in counts)
    check(even, "every eighth of 30,522 ids has its share", seen=int(even))
    kinds = int(drawn.unique().numel())  # 16,000 draws hit about 12,400 different ids
    check(kinds > 10_000, "any of 30,522 ids can be drawn", seen=int(kinds > 10_000))


@part(1)
def test_random_ids_may_be_special_ones(submission, rng):
    roles_are_drawn_apart(submission, rng)
    tokens = torch.full((ROWS, LENGTH), 4)
    tokens[:, :10] = 7
    inputs, _ = submission.mask_tokens(tokens, tokens == 7, 11, 3, rng.generator(), 1.0)
    kinds = inputs[:, 10:].unique()
    right = kinds.numel() < 8 or bool((kinds == 7).any())  # about 363 times; who draws a few ids only fails elsewhere
    check(right, "random ids may hit a special id", seen=int(right))


@part(1)
def test_ids_of_a_large_vocabulary(submission, rng):
    vocab_size = 2**25  # beyond the whole numbers of float32
    tokens = 2 * rng.integers(2**23, 2**23 + 1000, 3000) + 1
    inputs, labels = submission.mask_tokens(tokens, nothing_special(tokens), vocab_size, 5, rng.generator(), 0.5)
    target = labels != -100
    check(bool((labels == tokens)[target].all()), "labels are the original ids, to the last digit")
    check(bool((inputs == tokens)[~target].all()), "what is no target stays as it is, to the last digit")
    tokens = 2 * rng.integers(100, 50_000, 10_000)
    inputs, _ = submission.mask_tokens(tokens, nothing_special(tokens), 100_000, 5, rng.generator(), 0.3)
    ids = inputs[(inputs != 5) & (inputs != tokens)]  # about 300
    check(bool(((ids >= 0) & (ids < 100_000)).all()), "random ids lie in 0 to vocab_size - 1")
    odd = bool((ids[ids > 50_000] % 2 == 1).any())  # none: a chance below 1e-30
    check(odd, "odd random ids occur in the upper half of a vocabulary of 100,000", seen=odd)


@part(1)
def test_mask_id_may_be_zero(submission, rng):
    tokens = rng.integers(1, 9, 2000)
    inputs, labels = submission.mask_tokens(tokens, nothing_special(tokens), 9, 0, rng.generator(), 1.0)
    check(bool((labels == tokens).all()), "with mask_prob = 1 every token has its label")
    seen = rounded((inputs == 0).float().mean(), 0.2)
    same(seen, 0.8, says="[MASK] is id 0: its share of the targets")


@part(1)
def test_a_rate_of_zero_leaves_everything_alone(submission, rng):
    tokens = rng.integers(0, 9, 2, 500)
    inputs, labels = submission.mask_tokens(tokens, nothing_special(tokens), 9, 3, rng.generator(), 0.0)
    check(bool((inputs == tokens).all()), "mask_prob = 0: the inputs are the tokens")
    check(bool((labels == -100).all()), "mask_prob = 0: no labels")


@part(1)
def test_masking_without_gradients(submission, rng):
    tokens = rng.integers(0, 9, 2, 500)
    with torch.no_grad():
        _, labels = submission.mask_tokens(tokens, nothing_special(tokens), 9, 3, rng.generator(), 0.5)
    target = labels != -100
    check(bool((labels == tokens)[target].all()), "under no_grad: labels are the original ids")


@part(1)
def test_inputs_and_labels_are_int64(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, 3, 40)
    inputs, labels = submission.mask_tokens(tokens, nothing_special(tokens), 1000, 3, rng.generator())
    seen = (str(inputs.dtype), str(labels.dtype))
    check(seen == ("torch.int64", "torch.int64"), "inputs and labels are int64, as the tokens are", seen=seen)


@part(1)
def test_masking_takes_strided_arguments(submission, rng):
    tokens = plain_tokens(rng, 3, 1000, 40, 3).t()
    special = (rng.uniform(0.0, 1.0, 40, 3) < 0.3).t()
    inputs, labels = submission.mask_tokens(tokens, special, 1000, 3, rng.generator(), 1.0)
    same(labels, torch.where(special, -100, tokens), says="labels for tokens that are not contiguous")
    changed = bool((inputs != tokens)[~special].any())  # none of about 84: a chance of 1e-84
    check(changed, "targets are corrupted in tokens that are not contiguous", seen=changed)


@part(1)
def test_masking_stays_on_the_device_of_the_tokens(submission, rng):
    tokens = torch.empty(3, 7, dtype=torch.int64, device="meta")
    special = torch.empty(3, 7, dtype=torch.bool, device="meta")
    on_meta(lambda: submission.mask_tokens(tokens, special, 50, 3, rng.generator()))


# ------------------------------------------------------------------------------------------ part 2


def scored(rng, *shape, V=7, rate=0.4, dtype=torch.float32):
    """Logits (*shape, V) and labels with at least two targets and one place without."""
    labels = rng.integers(0, V, *shape)
    flat = labels.view(-1)
    flat[rng.uniform(0.0, 1.0, flat.numel()) >= rate] = -100
    flat[0], flat[1], flat[-1] = 0, -100, V - 1
    return 2 * rng.normal(*shape, V, dtype=dtype), labels


def mean_by_hand(logits, labels):
    """The mean over targets, place by place, in float64; returned in float32."""
    log_probs = torch.log_softmax(logits.double().reshape(-1, logits.shape[-1]), -1)
    losses = [-log_probs[place, label] for place, label in enumerate(labels.reshape(-1).tolist()) if label != -100]
    return torch.stack(losses).mean().float()


@part(2)
def test_loss_is_the_mean_over_targets(submission, rng):
    logits, labels = scored(rng, 3, 8)
    close(submission.mlm_loss(logits, labels), mean_by_hand(logits, labels), says="mean cross-entropy over the targets")


@part(2)
def test_rows_count_by_their_targets(submission, rng):
    logits, labels = scored(rng, 2, 9, rate=1.1)
    labels[0, 2:] = -100
    close(submission.mlm_loss(logits, labels), mean_by_hand(logits, labels), says="one row with 1 target, one with 9")
    labels = rng.integers(0, 7, 2, 9).masked_fill(torch.arange(9, device=logits.device) % 4 == 3, -100)
    with torch.no_grad():
        loss = submission.mlm_loss(logits, labels)
    close(loss, mean_by_hand(logits, labels), says="other labels for the same logits, under no_grad")


@part(2)
def test_other_places_do_not_matter(submission, rng):
    logits, labels = scored(rng, 3, 8)
    first = submission.mlm_loss(logits, labels)
    close(first, mean_by_hand(logits, labels), says="the loss before anything is changed")
    changed = torch.where((labels == -100)[..., None], 5 * rng.normal(3, 8, 7), logits)
    close(submission.mlm_loss(changed, labels), first, says="logits at places without a label do not change the loss")


@part(2)
def test_every_place_a_target(submission, rng):
    logits = 2 * rng.normal(2, 6, 7)
    labels = rng.integers(0, 7, 2, 6)
    close(submission.mlm_loss(logits, labels), mean_by_hand(logits, labels), says="every place is a target")


@part(2)
def test_hundreds_of_targets(submission, rng):
    logits, labels = scored(rng, 2, 350, V=131, rate=0.6)
    right = mean_by_hand(logits, labels)
    close(submission.mlm_loss(logits, labels), right, says="about 420 targets, a vocabulary of 131")
    loss = submission.mlm_loss(logits.bfloat16(), labels)
    close(loss, mean_by_hand(logits.bfloat16(), labels).bfloat16(), says="about 420 targets in bfloat16")


@part(2)
def test_thousands_of_targets(submission, rng):
    logits, labels = scored(rng, 2, 4500, V=5, rate=0.7)
    logits[1], labels[1] = 3 * logits[1], labels[1].masked_fill(torch.arange(4500) % 3 > 0, -100)
    right = torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), labels.flatten(), ignore_index=-100)
    close(
        submission.mlm_loss(logits, labels),
        right.float(),
        says="about 4,200 targets among 9,000 places, most in one row",
    )


@part(2)
def test_one_row(submission, rng):
    logits, labels = scored(rng, 1, 9)
    close(submission.mlm_loss(logits, labels), mean_by_hand(logits, labels), says="a batch of one row")
    logits = 2 * rng.normal(7)
    label = rng.integers(0, 7, 1).reshape(())
    close(submission.mlm_loss(logits, label), mean_by_hand(logits, label), says="labels without any dimension")


@part(2)
def test_one_target(submission, rng):
    logits = 2 * rng.normal(3, 6, 7)
    labels = torch.full((3, 6), -100)
    labels[1, 4] = rng.integers(0, 7)
    (mine,), loss = gradient(lambda own: submission.mlm_loss(own, labels), logits)
    (right,), expected = gradient(lambda own: mean_by_hand(own, labels), logits)
    close(loss, expected, says="a single target")
    check(mine is not None, "the gradient of the logits is missing")
    close(mine, right, says="gradient of the logits for a single target")


@part(2)
def test_label_zero_is_a_label(submission, rng):
    logits = 2 * rng.normal(2, 8, 7)
    labels = torch.full((2, 8), -100)
    labels[:, :3] = 0
    labels[:, 5] = 4
    close(submission.mlm_loss(logits, labels), mean_by_hand(logits, labels), says="the token 0 can be a target")


@part(2)
def test_no_target_gives_zero(submission, rng):
    logits = rng.normal(2, 5, 7)
    labels = torch.full((2, 5), -100)
    (mine,), loss = gradient(lambda own: submission.mlm_loss(own, labels), logits)
    close(loss, torch.tensor(0.0), says="no target: the loss is 0, not 0/0")
    check(mine is not None and not bool(mine.any()), "no target: the gradient is 0")
    logits, labels = scored(rng, 2, 150)
    close(submission.mlm_loss(logits, labels), mean_by_hand(logits, labels), says="300 places, some with a label")
    none = submission.mlm_loss(logits, torch.full((2, 150), -100))
    close(none, torch.tensor(0.0), says="300 places without a label, after a call that had some")


@part(2)
def test_mlm_loss_passes_gradients(submission, reference, rng):
    logits, labels = scored(rng, 2, 5, dtype=torch.float64)
    (mine,), _ = gradient(lambda own: submission.mlm_loss(own, labels), logits)
    (right,), _ = gradient(lambda own: reference.mlm_loss(own, labels), logits)
    check(mine is not None, "the gradient of the logits is missing")
    close(mine, right, says="gradient of the logits, zero where there is no label")


@part(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mlm_logits_of_ten_thousand(submission, rng, dtype):
    logits, labels = scored(rng, 2, 6)
    logits = (1e4 * torch.sign(logits) * rng.uniform(0.5, 1.0, 2, 6, 7)).to(dtype)
    logits[0, 0, 0], logits[0, 0, 1] = -1e4, 1e4
    right = mean_by_hand(logits, labels).to(dtype)
    close(submission.mlm_loss(logits, labels), right, says="logits of +-10,000 give an exact, finite loss")


@part(2)
def test_mlm_logits_far_from_zero_in_float16(submission, rng):
    logits, labels = scored(rng, 2, 60, V=31)
    logits = (60 + 2 * logits).half()  # their sum, and the exponential of one, are beyond float16
    right = mean_by_hand(logits, labels).half()
    close(submission.mlm_loss(logits, labels), right, says="logits around 60 in float16", tol=2e-2)


@part(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_mlm_loss_keeps_the_dtype(submission, rng, dtype):
    logits, labels = scored(rng, 3, 6, dtype=dtype)
    right = mean_by_hand(logits, labels).to(dtype)
    close(submission.mlm_loss(logits, labels), right, says="the loss has the dtype of the logits")


@part(2)
@pytest.mark.parametrize("shape", [(9,), (2, 3, 4)])
def test_loss_of_any_shape(submission, rng, shape):
    logits, labels = scored(rng, *shape)
    close(submission.mlm_loss(logits, labels), mean_by_hand(logits, labels), says="labels of another shape")


@part(2)
def test_as_many_places_as_ids(submission, rng):
    for shape, V in (((7,), 7), ((5, 5), 5), ((3, 6), 18)):
        logits, labels = scored(rng, *shape, V=V)
        says = f"labels of shape {shape}, a vocabulary of {V}"
        close(submission.mlm_loss(logits, labels), mean_by_hand(logits, labels), says=says)


@part(2)
def test_gradient_of_three_times_the_loss(submission, reference, rng):
    logits, labels = scored(rng, 2, 5)
    (mine,), _ = gradient(lambda own: 3 * submission.mlm_loss(own, labels) - 1, logits)
    (right,), _ = gradient(lambda own: 3 * reference.mlm_loss(own, labels) - 1, logits)
    check(mine is not None, "the gradient of the logits is missing")
    close(mine, right, says="gradient of 3 times the loss")


@part(2)
def test_mlm_loss_takes_strided_arguments(submission, rng):
    logits, labels = scored(rng, 6, 3)
    logits, labels = logits.transpose(0, 1), labels.t()
    close(submission.mlm_loss(logits, labels), mean_by_hand(logits, labels), says="arguments that are not contiguous")


@part(2)
def test_mlm_loss_stays_on_its_device(submission):
    logits, labels = torch.ones(2, 5, 7, device="meta"), torch.zeros(2, 5, dtype=torch.int64, device="meta")
    on_meta(lambda: submission.mlm_loss(logits, labels))


# ------------------------------------------------------------------------------------------ part 3


def sentence_pairs(rng, rows, d, dtype=torch.float32):
    """Hidden states, classifier and labels of both kinds, unevenly many."""
    is_next = rng.permutation(rows) < rows // 3 + 1
    return rng.normal(rows, d, dtype=dtype), rng.normal(d, dtype=dtype), is_next


def nsp_by_hand(cls_hidden, weight, is_next):
    """Mean of softplus(-z) for pairs that follow and softplus(z) for the others, in float64; returned in float32."""
    logits = (cls_hidden.double() @ weight.double()).tolist()
    signed = [-z if follows else z for z, follows in zip(logits, is_next.bool().tolist(), strict=True)]
    return torch.tensor(sum(max(z, 0.0) + math.log1p(math.exp(-abs(z))) for z in signed) / len(signed))


@part(3)
def test_next_sentence_loss(submission, rng):
    args = sentence_pairs(rng, 7, 5)
    close(submission.nsp_loss(*args), nsp_by_hand(*args), says="mean binary cross-entropy, 1 = really next")
    for rows, d in ((5, 5), (6, 1)):
        args = sentence_pairs(rng, rows, d)
        with torch.no_grad():
            loss = submission.nsp_loss(*args)
        close(loss, nsp_by_hand(*args), says=f"{rows} pairs, hidden states of size {d}, under no_grad")


@part(3)
@pytest.mark.parametrize("kind", ["int", "float", "bool"])
def test_labels_may_be_bool_int_or_float(submission, rng, kind):
    cls_hidden, weight, is_next = sentence_pairs(rng, 8, 3)
    labels = {"int": is_next.long(), "float": is_next.float(), "bool": is_next}[kind]
    right = nsp_by_hand(cls_hidden, weight, is_next)
    close(submission.nsp_loss(cls_hidden, weight, labels), right, says=f"labels of type {kind}")


@part(3)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.float64, torch.float16])
def test_labels_of_another_width(submission, rng, dtype):
    cls_hidden, weight, is_next = sentence_pairs(rng, 8, 3)
    right = nsp_by_hand(cls_hidden, weight, is_next)
    close(submission.nsp_loss(cls_hidden, weight, is_next.to(dtype)), right, says=f"labels of type {dtype}")


@part(3)
def test_thousands_of_pairs(submission, rng):
    args = sentence_pairs(rng, 5000, 3)
    close(submission.nsp_loss(*args), nsp_by_hand(*args), says="5,000 pairs")


@part(3)
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("trained", ["cls_hidden", "weight"])
def test_gradient_of_one_argument_alone(submission, reference, rng, trained, rows):
    args = dict(zip(("cls_hidden", "weight", "is_next"), sentence_pairs(rng, rows, 4), strict=True))
    found = []
    for module in (submission, reference):
        leaf = args[trained].clone().requires_grad_()
        module.nsp_loss(**{**args, trained: leaf}).backward()
        found.append(leaf.grad)
    check(found[0] is not None, f"the gradient of {trained} is missing where the other argument needs none")
    close(*found, says=f"gradient of {trained} where the other argument needs none, {rows} pairs")


@part(3)
@pytest.mark.parametrize("follows", [True, False])
def test_pairs_of_one_kind_only(submission, reference, rng, follows):
    cls_hidden, weight, _ = sentence_pairs(rng, 6, 4)
    is_next = torch.full((6,), follows)
    right = nsp_by_hand(cls_hidden, weight, is_next)
    close(
        submission.nsp_loss(cls_hidden, weight, is_next),
        right,
        says="all pairs follow" if follows else "no pair follows",
    )
    mine, _ = gradient(lambda a, b: submission.nsp_loss(a, b, is_next), cls_hidden, weight)
    right, _ = gradient(lambda a, b: reference.nsp_loss(a, b, is_next), cls_hidden, weight)
    for found, expected, name in zip(mine, right, ("cls_hidden", "weight"), strict=True):
        check(found is not None, f"the gradient of {name} is missing")
        close(found, expected, says=f"gradient of {name}, pairs of one kind")


@part(3)
def test_one_pair(submission, rng):
    args = sentence_pairs(rng, 1, 6)
    close(submission.nsp_loss(*args), nsp_by_hand(*args), says="a batch of one pair")


@part(3)
def test_one_pair_of_either_kind(submission, rng):
    hidden, weight, _ = sentence_pairs(rng, 1, 6)
    mine, right = [], []
    for follows in (True, False):
        is_next = torch.tensor([follows], device=hidden.device)
        mine.append(submission.nsp_loss(hidden, weight, is_next))
        right.append(nsp_by_hand(hidden, weight, is_next))
    close(torch.stack(mine), torch.stack(right), says="one pair, which is next; and one which is not")


@part(3)
@pytest.mark.parametrize("size", [8.5, 60.0, 1e4, 1e6])
def test_large_logits_are_exact(submission, rng, size):
    cls_hidden, weight, is_next = sentence_pairs(rng, 7, 4)
    z = cls_hidden @ weight
    cls_hidden = (
        cls_hidden * (size * rng.uniform(0.5, 1.0, 7) / z)[:, None] * (2.0 * rng.integers(0, 2, 7).float() - 1)[:, None]
    )
    cls_hidden[0] *= -torch.sign((cls_hidden[0] @ weight) * (2.0 * float(is_next[0]) - 1))
    right = nsp_by_hand(cls_hidden, weight, is_next)
    close(
        submission.nsp_loss(cls_hidden, weight, is_next),
        right,
        says=f"logits of about +-{size:g}, some of them badly wrong",
    )


@part(3)
def test_gradients_of_large_logits_are_finite(submission, reference, rng):
    cls_hidden, weight, is_next = sentence_pairs(rng, 7, 4)
    cls_hidden = cls_hidden * 300
    mine, _ = gradient(lambda a, b: submission.nsp_loss(a, b, is_next), cls_hidden, weight)
    right, _ = gradient(lambda a, b: reference.nsp_loss(a, b, is_next), cls_hidden, weight)
    for found, expected, name in zip(mine, right, ("cls_hidden", "weight"), strict=True):
        check(found is not None, f"the gradient of {name} is missing")
        close(found, expected, says=f"gradient of {name} for large logits")


@part(3)
def test_nsp_passes_gradients(submission, reference, rng):
    cls_hidden, weight, is_next = sentence_pairs(rng, 7, 4, dtype=torch.float64)
    mine, _ = gradient(lambda a, b: submission.nsp_loss(a, b, is_next), cls_hidden, weight)
    right, _ = gradient(lambda a, b: reference.nsp_loss(a, b, is_next), cls_hidden, weight)
    for found, expected, name in zip(mine, right, ("cls_hidden", "weight"), strict=True):
        check(found is not None, f"the gradient of {name} is missing")
        close(found, expected, says=f"gradient of {name}")


@part(3)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_nsp_loss_keeps_the_dtype(submission, rng, dtype):
    args = sentence_pairs(rng, 7, 4, dtype=dtype)
    close(
        submission.nsp_loss(*args),
        nsp_by_hand(*args).to(dtype),
        tol=5e-2 if dtype != torch.float64 else None,
        says="the dtype of cls_hidden",
    )


@part(3)
def test_nsp_loss_in_float64_without_gradients(submission, rng):
    cls_hidden, weight, is_next = sentence_pairs(rng, 9, 4, dtype=torch.float64)
    logit = cls_hidden @ weight
    right = torch.nn.functional.binary_cross_entropy_with_logits(logit, is_next.double())
    with torch.no_grad():
        loss = submission.nsp_loss(cls_hidden, weight, is_next)
    close(loss, right, says="float64 under no_grad")


@part(3)
def test_nsp_takes_strided_arguments(submission, rng):
    cls_hidden, weight, is_next = rng.normal(4, 7).t(), rng.normal(8)[::2], sentence_pairs(rng, 7, 4)[2]
    right = nsp_by_hand(cls_hidden, weight, is_next)
    close(submission.nsp_loss(cls_hidden, weight, is_next), right, says="arguments that are not contiguous")


@part(3)
def test_nsp_stays_on_its_device(submission):
    args = torch.ones(3, 4, device="meta"), torch.ones(4, device="meta"), torch.ones(3, dtype=torch.bool, device="meta")
    on_meta(lambda: submission.nsp_loss(*args))
