"""Hidden tests of T5 span corruption.

`sample_spans` is random, so each draw is held to what is exact (counts, order, gaps), and nine statistics of 64 draws
are held to what chance allows.  They are sums of differences d_i between two groups of as many spans (or of as many
stretches between spans).  A right sampler makes the groups exchangeable, so each d_i is as likely as -d_i, and given
the |d_i| the sum is a Rademacher sum: by Hoeffding's inequality P(|sum d_i| >= 5.8 sqrt(sum d_i^2)) <=
2 exp(-5.8^2 / 2) = 9.9e-8, whatever the distribution.  The tests that wait for two draws to differ, or for one of many
to reach an end of the text, meet a right sampler that disappoints them with a chance below 1e-18.  In all a run refuses
a right sampler with a chance below 9e-7.
"""

import math

import pytest
import torch

BOUND = 5.8
DRAWS = 64


def drawn_spans(rng, n_spans, at_start=False, at_end=False):
    """Separated spans, and the length of the text around them."""
    gaps = [rng.integers(1, 5) for _ in range(n_spans + 1)]
    gaps[0] *= not at_start
    gaps[-1] *= not at_end
    spans, position = [], 0
    for gap in gaps[:-1]:
        start = position + gap
        position = start + rng.integers(1, 6)
        spans.append((start, position))
    return spans, position + gaps[-1]


def drawn_tokens(rng, length, first_sentinel, n_sentinels=100):
    """Token ids on both sides of the sentinels, some right beside them, none a sentinel."""
    below = first_sentinel - n_sentinels
    edges = (below, below - 1, first_sentinel + 1, first_sentinel + 2)
    return [
        rng.choice([rng.integers(3, below - 5), rng.integers(first_sentinel + 3, first_sentinel + 500), *edges])
        for _ in range(length)
    ]


# ----------------------------------------------------------------------------------------- part 1


@part(1)
def test_each_span_becomes_one_sentinel(submission, reference, rng):
    for n_spans in (1, 2, 5):
        first = rng.integers(900, 40000)
        spans, length = drawn_spans(rng, n_spans)
        tokens = [rng.integers(3, 700) for _ in range(length)]
        mine = submission.corrupt_spans(tokens, spans, first)
        same(
            mine,
            reference.corrupt_spans(tokens, spans, first),
            says=f"(inputs, targets) of {n_spans} spans in the middle",
        )


@part(1)
def test_the_worked_example(submission):
    mine = submission.corrupt_spans([11, 12, 13, 14, 15, 16, 17], [(1, 3), (5, 6)], 99)
    same(mine, ([11, 99, 14, 15, 98, 17], [99, 12, 13, 98, 16, 97]), says="the example of the statement")


@part(1)
def test_a_span_at_the_start(submission, reference, rng):
    for n_spans in (1, 3):
        spans, length = drawn_spans(rng, n_spans, at_start=True)
        tokens = [rng.integers(3, 700) for _ in range(length)]
        mine = submission.corrupt_spans(tokens, spans, 32099)
        same(mine, reference.corrupt_spans(tokens, spans, 32099), says="the first span starts at token 0")


@part(1)
def test_a_span_at_the_end(submission, reference, rng):
    for n_spans in (1, 3):
        spans, length = drawn_spans(rng, n_spans, at_end=True)
        tokens = [rng.integers(3, 700) for _ in range(length)]
        mine = submission.corrupt_spans(tokens, spans, 32099)
        same(mine, reference.corrupt_spans(tokens, spans, 32099), says="the last span ends with the text")


@part(1)
def test_the_whole_text_in_one_span(submission, rng):
    tokens = [rng.integers(3, 700) for _ in range(rng.integers(1, 9))]
    mine = submission.corrupt_spans(tokens, [(0, len(tokens))], 32099)
    same(mine, ([32099], [32099, *tokens, 32098]), says="one span over everything")


@part(1)
def test_single_tokens_parted_by_single_tokens(submission, reference, rng):
    tokens = [rng.integers(3, 700) for _ in range(11)]
    spans = [(start, start + 1) for start in range(1, 11, 2)]
    mine = submission.corrupt_spans(tokens, spans, 5000)
    same(mine, reference.corrupt_spans(tokens, spans, 5000), says="every other token is a span")


@part(1)
def test_more_than_a_hundred_spans_keep_counting_down(submission, reference, rng):
    spans, length = drawn_spans(rng, rng.integers(105, 140))
    tokens = [rng.integers(3, 700) for _ in range(length)]
    mine = submission.corrupt_spans(tokens, spans, 5000)
    same(mine, reference.corrupt_spans(tokens, spans, 5000), says=f"{len(spans)} spans: every one has its own sentinel")


@part(1)
def test_ids_above_the_sentinels_are_tokens_like_others(submission, reference, rng):
    spans, length = drawn_spans(rng, 3)
    tokens = drawn_tokens(rng, length, 2000)
    mine = submission.corrupt_spans(tokens, spans, 2000)
    same(mine, reference.corrupt_spans(tokens, spans, 2000), says="token ids on both sides of the sentinels")


@part(1)
def test_no_span_leaves_the_text_as_it_is(submission, rng):
    tokens = [rng.integers(3, 700) for _ in range(rng.integers(2, 9))]
    mine = submission.corrupt_spans(tokens, [], 32099)
    same(mine, (tokens, [32099]), says="without a span the targets are the closing sentinel alone")
    same(submission.corrupt_spans([], [], 32099), ([], [32099]), says="an empty text")


@part(1)
def test_equal_neighbours_and_any_id_stay(submission, reference, rng):
    spans, length = drawn_spans(rng, 5)
    tokens = [rng.choice([0, 0, 1, 5, 70_000 + rng.integers(0, 9)]) for _ in range(length)]
    tokens += [9, 9, 0, 0, 70_001, 70_001]
    mine = submission.corrupt_spans(tokens, spans, 128_000)
    says = "ids that repeat their neighbour, the id 0, ids and sentinels beyond 16 bits"
    same(mine, reference.corrupt_spans(tokens, spans, 128_000), says=says)


def refused(submission, rng, spans, says):
    tokens = [rng.integers(3, 700) for _ in range(20)]
    with raises(ValueError, says=says):
        submission.corrupt_spans(tokens, spans, 32099)


def five_spans(rng):
    """Five spans of two tokens in 20, two kept tokens between them, and maybe one before the first."""
    first = rng.integers(0, 2)
    return [(start, start + 2) for start in range(first, first + 20, 4)]


@part(1)
def test_an_empty_span_is_refused(submission, rng):
    at = rng.integers(4, 12)
    refused(submission, rng, [(1, 3), (at, at)], "a span without a token")
    refused(submission, rng, [(1, 3), (20, 20)], "a span without a token at the end of the text")
    for n in range(5):
        spans = five_spans(rng)
        spans[n] = (spans[n][1], spans[n][1])
        refused(submission, rng, spans, f"span {n + 1} of five has no token")


@part(1)
def test_a_reversed_span_is_refused(submission, rng):
    at = rng.integers(6, 12)
    refused(submission, rng, [(1, 3), (at, at - 2)], "a span that ends before it starts")
    for n in range(5):
        spans = five_spans(rng)
        spans[n] = (spans[n][1], spans[n][0])
        refused(submission, rng, spans, f"span {n + 1} of five ends before it starts")


@part(1)
def test_a_span_before_the_text_is_refused(submission, rng):
    refused(submission, rng, [(-rng.integers(1, 5), 3)], "a span that starts before the text")
    refused(submission, rng, [(-1, 3), *five_spans(rng)[2:]], "the first of four spans starts one before the text")


@part(1)
def test_a_span_beyond_the_text_is_refused(submission, rng):
    refused(submission, rng, [(1, 3), (17, 20 + rng.integers(2, 6))], "a span that ends after the 20 tokens")
    refused(submission, rng, [(rng.integers(1, 20), 21)], "a span that ends one after the 20 tokens")
    refused(submission, rng, [*five_spans(rng)[:4], (20, 21)], "the last of five spans starts after the 20 tokens")


@part(1)
def test_touching_spans_are_refused(submission, rng):
    at = rng.integers(5, 9)
    refused(submission, rng, [(3, at), (at, at + 2)], "two spans with no kept token between them")
    for n in range(4):
        spans = five_spans(rng)
        spans[n] = (spans[n][0], spans[n + 1][0])
        refused(submission, rng, spans, f"spans {n + 1} and {n + 2} of five touch")


@part(1)
def test_overlapping_spans_are_refused(submission, rng):
    at = rng.integers(6, 9)
    refused(submission, rng, [(3, at), (at - 1, at + 4)], "two spans that share a token")
    for n in range(4):
        spans = five_spans(rng)
        spans[n] = (spans[n][0], spans[n + 1][0] + 1)
        refused(submission, rng, spans, f"spans {n + 1} and {n + 2} of five share a token")


@part(1)
def test_unsorted_spans_are_refused(submission, rng):
    at = rng.integers(9, 12)
    refused(submission, rng, [(at, at + 2), (2, 5)], "a later span before an earlier one")
    for n in range(4):
        spans = five_spans(rng)
        spans[n], spans[n + 1] = spans[n + 1], spans[n]
        refused(submission, rng, spans, f"spans {n + 1} and {n + 2} of five have changed places")


# ----------------------------------------------------------------------------------------- part 2

# length, density, mean span: the counts and their quotients are clear of every .5
ORDINARY = [
    (50, 0.25, 3.0),
    (107, 0.15, 3.0),
    (64, 0.3, 2.0),
    (91, 0.12, 5.0),
    (200, 0.15, 3.0),
    (512, 0.15, 3.0),
    (83, 0.2, 1.0),
    (107, 0.3, 3.0),  # lengths and densities that stood above, with another density or mean
    (107, 0.15, 2.0),
    (1207, 0.15, 3.0),
    (2011, 0.15, 3.0),
]


def noise_of(length, density):
    return min(max(round(length * density), 1), length - 1)


def spans_of(length, density, mean):
    return max(1, round(noise_of(length, density) / mean))


@part(2)
def test_the_number_of_noise_tokens_is_exact(submission, rng):
    generator = rng.generator()
    drawn = [submission.sample_spans(length, generator, density, mean) for length, density, mean in ORDINARY]
    noise = [sum(end - start for start, end in spans) for spans in drawn]
    same(noise, [noise_of(*case[:2]) for case in ORDINARY], says="tokens in spans: round(length * density)")


@part(2)
def test_the_number_of_spans_is_exact(submission, rng):
    generator = rng.generator()
    drawn = [submission.sample_spans(length, generator, density, mean) for length, density, mean in ORDINARY]
    says = "spans: round(noise tokens / mean span)"
    same([len(spans) for spans in drawn], [spans_of(*case) for case in ORDINARY], says=says)


@part(2)
def test_spans_are_counted_from_the_rounded_noise(submission, rng):
    # 3.55, 7.6 and 15.4 tokens become 4, 8 and 15, and each time the number of spans is another than from the former.
    generator = rng.generator()
    cases = [(71, 0.05, 2.4), (76, 0.1, 3.1), (154, 0.1, 4.35)]
    drawn = [submission.sample_spans(length, generator, density, mean) for length, density, mean in cases]
    same(
        [len(spans) for spans in drawn], [spans_of(*case) for case in cases], says="spans for 4, 8 and 15 noise tokens"
    )


@part(2)
def test_the_defaults_are_t5_s(submission, rng):
    generator = rng.generator()
    lengths = (48, 107, 200, 307, 512)
    drawn = [submission.sample_spans(length, generator) for length in lengths]
    counts = [(sum(end - start for start, end in spans), len(spans)) for spans in drawn]
    expected = [(noise_of(length, 0.15), spans_of(length, 0.15, 3.0)) for length in lengths]
    same(counts, expected, says="(noise tokens, spans) at density 0.15 and mean span 3")


@part(2)
def test_a_long_text_is_sampled_all_over(submission, rng):
    # 600 spans; a sampler that chooses places among the first few hundred leaves the rest of the text without any.
    spans = submission.sample_spans(length=12_000, generator=rng.generator(), noise_density=0.15, mean_span=3.0)
    counts = (sum(end - start for start, end in spans), len(spans))
    same(counts, (1800, 600), says="(noise tokens, spans) of 12,000 tokens, arguments by name")
    late = any(start >= 6000 for start, _ in spans)
    check(late, "of 600 spans some start in the second half of 12,000 tokens", seen=late)
    moving = spans != submission.sample_spans(12_000, rng.generator(), 0.15, 3.0)
    check(moving, "two draws of 600 spans must differ", seen=moving)


@part(2)
def test_one_noise_token_at_least(submission, rng):
    generator = rng.generator()
    cases = [(2, 0.15), (3, 0.15), (2, 0.01), (9, 0.02), (30, 0.01)]
    drawn = [submission.sample_spans(length, generator, density) for length, density in cases]
    counts = [(sum(end - start for start, end in spans), len(spans)) for spans in drawn]
    same(counts, [(1, 1)] * len(cases), says="(noise tokens, spans) of short texts and low densities")
    try:
        spans = submission.sample_spans(30, generator, 0.0)
    except ValueError:
        return  # not to accept such a density is as good an answer
    counts = (sum(end - start for start, end in spans), len(spans))
    same(counts, (1, 1), says="(noise tokens, spans) of a density of 0")


@part(2)
def test_one_kept_token_at_least(submission, rng):
    generator = rng.generator()
    cases = [(2, 0.9), (4, 0.95), (10, 1.0), (6, 0.99)]
    drawn = [submission.sample_spans(length, generator, density, 100.0) for length, density in cases]
    noise = [sum(end - start for start, end in spans) for spans in drawn]
    same(noise, [1, 3, 9, 5], says="noise tokens leave one token of the text")


@part(2)
def test_one_span_at_least(submission, rng):
    generator = rng.generator()
    cases = [(40, 0.1, 9.0), (60, 0.1, 50.0), (20, 0.05, 3.0)]
    drawn = [submission.sample_spans(*case[:1], generator, *case[1:]) for case in cases]
    counts = [(sum(end - start for start, end in spans), len(spans)) for spans in drawn]
    same(counts, [(4, 1), (6, 1), (1, 1)], says="(noise tokens, spans) when the mean span exceeds the noise")


@part(2)
def test_no_more_spans_than_kept_tokens_can_separate(submission, rng):
    generator = rng.generator()
    seen = []
    for length, density, mean in ((5, 0.8, 1.0), (20, 0.8, 1.0), (30, 0.9, 2.0), (41, 0.7, 1.0)):
        noise = noise_of(length, density)
        kept = length - noise
        drawn = [submission.sample_spans(length, generator, density, mean) for _ in range(12)]
        whole = all(sum(end - start for start, end in spans) == noise for spans in drawn)
        separated = all(facts_of(spans, length)["separated"] for spans in drawn)
        # An outer gap may be empty (kept + 1 spans) or may not (kept spans): both are right.
        seen.append((whole, separated, all(len(spans) in (kept, kept + 1) for spans in drawn)))
    says = "(noise tokens as asked, separated, as many spans as the kept tokens can separate), all of 12 draws"
    same(seen, [(True, True, True)] * 4, says=says)


def facts_of(spans, length):
    return {
        "sorted": sorted(spans) == spans,
        "filled": all(start < end for start, end in spans),
        "inside": all(start >= 0 and end <= length for start, end in spans),
        "separated": all(spans[n][1] < spans[n + 1][0] for n in range(len(spans) - 1)),
    }


@part(2)
@pytest.mark.parametrize(
    ("fact", "says"),
    [
        ("sorted", "spans must be sorted by their start"),
        ("filled", "every span must hold a token: start < end"),
        ("inside", "spans must lie inside the text"),
        ("separated", "a kept token must lie between two spans"),
    ],
)
def test_every_draw_is_a_proper_set_of_spans(submission, rng, fact, says):
    generator = rng.generator()
    for _ in range(8):
        for length, density, mean in ((23, 0.5, 1.0), (61, 0.45, 2.0), (19, 0.3, 3.0)):
            spans = submission.sample_spans(length, generator, density, mean)
            holds = facts_of(spans, length)[fact]
            if not holds:
                break
        if not holds:
            break
    check(holds, says, seen=holds)


@part(2)
def test_what_is_drawn_can_be_corrupted(submission, reference, rng):
    generator = rng.generator()
    fits = True
    for length in (2, 3, 5, 8, 21, 150, 150, 150):
        spans = submission.sample_spans(length, generator, 0.4, 2.0)
        tokens = list(range(length))
        fits = fits and all(facts_of(spans, length).values())
        if fits:
            inputs, targets = reference.corrupt_spans(tokens, spans, 30000)
            fits = reference.restore(inputs, targets, 30000) == tokens
    check(fits, "every draw must be spans that can be corrupted, and restored to the text", seen=fits)


@part(2)
def test_the_same_generator_state_gives_the_same_spans(submission, rng):
    # Two independent draws of 100 noise tokens in 33 spans agree with a chance far below 1e-20.
    seed = rng.integers(0, 2**40)
    first = submission.sample_spans(400, torch.Generator().manual_seed(seed), 0.25, 3.0)
    second = submission.sample_spans(400, torch.Generator().manual_seed(seed), 0.25, 3.0)
    check(
        first == second, "the same generator state must give the same spans: draw from it alone", seen=first == second
    )
    few = [(90, 0.1, 9.0), (90, 0.2, 9.0), (90, 0.3, 9.0)]  # 1, 2 and 3 spans
    for length, density, mean in few * 3:
        first = submission.sample_spans(length, torch.Generator().manual_seed(seed), density, mean)
        second = submission.sample_spans(length, torch.Generator().manual_seed(seed), density, mean)
        says = f"the same generator state must give the same spans, when they are {len(first)}, too"
        check(first == second, says, seen=first == second)


@part(2)
def test_other_seeds_give_other_spans(submission, rng):
    first = submission.sample_spans(400, torch.Generator().manual_seed(rng.integers(0, 2**20)), 0.25, 3.0)
    second = submission.sample_spans(400, torch.Generator().manual_seed(rng.integers(2**20, 2**40)), 0.25, 3.0)
    check(first != second, "generators with different seeds must give different spans", seen=first != second)


@part(2)
def test_the_generator_advances(submission, rng):
    generator = rng.generator()
    before = generator.get_state()
    first = submission.sample_spans(400, generator, 0.25, 3.0)
    moved = not torch.equal(before, generator.get_state())
    check(moved, "a draw must advance the generator", seen=moved)
    second = submission.sample_spans(400, generator, 0.25, 3.0)
    check(first != second, "two draws in a row must differ", seen=first != second)


@part(2)
def test_no_global_random_state_is_touched(submission, rng):
    submission.sample_spans(100, rng.generator(), 0.3, 2.0)
    untouched = submission.global_rng_untouched()
    check(untouched, "the global random generators of torch, numpy and random must stay as they are", seen=untouched)
    for density in (0.1, 0.2, 0.3):
        spans = submission.sample_spans(90, rng.generator(), density, 9.0)
        untouched = submission.global_rng_untouched()
        says = f"the global random generators must stay as they are, when {len(spans)} spans are drawn, too"
        check(untouched, says, seen=untouched)


def many(submission, rng, length, density, mean):
    """Draws, and for each its span lengths and the kept stretches between its spans."""
    generator = rng.generator()
    lengths, between = [], []
    for _ in range(DRAWS):
        spans = submission.sample_spans(length, generator, density, mean)
        lengths.append([end - start for start, end in spans])
        between.append([spans[n + 1][0] - spans[n][1] for n in range(len(spans) - 1)])
    moving = any(draw != lengths[0] for draw in lengths) or any(draw != between[0] for draw in between)
    check(moving, f"{DRAWS} draws in a row must not all be the same", seen=moving)
    return lengths, between


def tilt(differences):
    """0 when a sum of symmetric differences is within what chance allows (see the head of this file), else its sign."""
    total, spread = sum(differences), math.sqrt(sum(difference**2 for difference in differences))
    return (total > BOUND * spread) - (total < -BOUND * spread)


def contrast(values):
    """Twice the contrast of two groups of equal size: first half against last, outer against inner; each in [-1, 1]."""
    half, quarter = len(values) // 2, len(values) // 4
    values = values[: 2 * half]
    whole = sum(values) or 1
    first = sum(values[:half])
    outer = sum(values[:quarter]) + sum(values[len(values) - quarter :])
    inner = sum(values[quarter : 2 * quarter]) + sum(values[len(values) - 2 * quarter : len(values) - quarter])
    return (2 * first - whole) / whole, (outer - inner) / whole


@part(2)
def test_no_span_is_favoured(submission, rng):
    lengths, _ = many(submission, rng, 400, 0.25, 5.0)  # 100 noise tokens in 20 spans
    varied = any(draw != lengths[0] for draw in lengths)
    seen = (varied, max(lengths[0]) - min(lengths[0]) <= 1)
    check(varied, "the lengths of the spans must differ from draw to draw", seen=seen)
    early, outer = (tilt(column) for column in zip(*map(contrast, lengths), strict=True))
    check((early, outer) == (0, 0), "early and late, outer and inner spans must be equally long on average", seen=early)


@part(2)
def test_no_span_is_favoured_where_most_tokens_are_noise(submission, rng):
    lengths, _ = many(submission, rng, 60, 0.6, 3.0)  # 36 noise tokens in 12 spans
    early, outer = (tilt(column) for column in zip(*map(contrast, lengths), strict=True))
    check((early, outer) == (0, 0), "early and late, outer and inner spans must be equally long on average", seen=early)


@part(2)
def test_single_tokens_lie_at_random(submission, rng):
    generator = rng.generator()
    drawn = [submission.sample_spans(83, generator, 0.2, 1.0) for _ in range(4)]  # 17 of 83 tokens
    moving = any(spans != drawn[0] for spans in drawn)
    check(moving, "four draws of 17 single tokens must not all be the same", seen=moving)


@part(2)
def test_no_stretch_is_favoured(submission, rng):
    _, between = many(submission, rng, 200, 0.25, 2.0)  # 150 kept tokens, 25 spans, 24 stretches between them
    varied = any(draw != between[0] for draw in between)
    seen = (varied, max(between[0]) - min(between[0]) <= 1)
    check(varied, "the stretches between spans must differ from draw to draw", seen=seen)
    early, outer = (tilt(column) for column in zip(*map(contrast, between), strict=True))
    says = "early and late, outer and inner stretches between spans must be equally long on average"
    check((early, outer) == (0, 0), says, seen=early)


@part(2)
def test_neither_of_two_is_favoured(submission, rng):
    lengths, _ = many(submission, rng, 120, 0.25, 15.0)  # 30 noise tokens in 2 spans
    early = tilt([contrast(draw)[0] for draw in lengths])
    check(early == 0, "two spans must be equally long on average", seen=early)
    varied = any(draw != lengths[0] for draw in lengths)
    check(varied, "the lengths of two spans must differ from draw to draw", seen=varied)
    lengths, between = many(submission, rng, 104, 0.25, 8.0)  # 78 kept tokens, 3 spans, 2 stretches between them
    early = tilt([contrast(draw)[0] for draw in between])
    check(early == 0, "two stretches between three spans must be equally long on average", seen=early)
    early = tilt([sum(draw[:1]) - sum(draw[-1:]) for draw in lengths])
    check(early == 0, "the first and the last of three spans must be equally long on average", seen=early)


@part(2)
def test_spans_reach_both_ends_of_the_text(submission, rng):
    # In a right sampler the first of 10 spans starts in the first fifth, and the last ends in the last fifth, in most
    # draws: 64 draws that all miss have a chance below 0.5^64.
    generator = rng.generator()
    drawn = [submission.sample_spans(100, generator, 0.3, 3.0) for _ in range(DRAWS)]
    early = any(start < 20 for spans in drawn for start, _ in spans)
    late = any(end > 80 for spans in drawn for _, end in spans)
    check(early and late, "spans must come to lie anywhere, near the start and near the end too", seen=(early, late))


@part(2)
@pytest.mark.parametrize("length", [1, 0, -3])
def test_a_text_too_short_to_corrupt_is_refused(submission, rng, length):
    with raises(ValueError, says=f"length {length}: there is no token to keep beside a corrupted one"):
        submission.sample_spans(length, rng.generator())


# ----------------------------------------------------------------------------------------- part 3


def corrupted(reference, rng, n_spans, first_sentinel, n_sentinels, **where):
    spans, length = drawn_spans(rng, n_spans, **where)
    tokens = drawn_tokens(rng, length, first_sentinel, n_sentinels)
    return tokens, *reference.corrupt_spans(tokens, spans, first_sentinel)


@part(3)
def test_a_corrupted_text_is_restored(submission, reference, rng):
    for n_spans in (1, 2, 7):
        first = rng.integers(900, 40000)
        spans, length = drawn_spans(rng, n_spans)
        tokens = [rng.integers(3, 700) for _ in range(length)]
        inputs, targets = reference.corrupt_spans(tokens, spans, first)
        same(submission.restore(inputs, targets, first), tokens, says=f"the text around {n_spans} spans")


@part(3)
def test_equal_neighbours_and_any_id_are_restored(submission, reference, rng):
    spans, length = drawn_spans(rng, 5)
    tokens = [rng.choice([0, 0, 1, 5, 70_000 + rng.integers(0, 9)]) for _ in range(length)]
    tokens += [9, 9, 0, 0, 70_001, 70_001]
    inputs, targets = reference.corrupt_spans(tokens, spans, 128_000)
    says = "ids that repeat their neighbour, the id 0, ids and sentinels beyond 16 bits"
    same(submission.restore(inputs, targets, 128_000), tokens, says=says)


@part(3)
def test_spans_at_both_ends_are_restored(submission, reference, rng):
    for at_start, at_end in ((True, False), (False, True), (True, True)):
        spans, length = drawn_spans(rng, 3, at_start, at_end)
        tokens = [rng.integers(3, 700) for _ in range(length)]
        inputs, targets = reference.corrupt_spans(tokens, spans, 32099)
        same(submission.restore(inputs, targets, 32099), tokens, says="spans at the start and at the end of the text")


@part(3)
def test_the_whole_text_is_restored_from_one_span(submission, rng):
    tokens = [rng.integers(3, 700) for _ in range(6)]
    same(submission.restore([32099], [32099, *tokens, 32098], 32099), tokens, says="one sentinel hides everything")


@part(3)
def test_a_text_without_spans_is_restored(submission, rng):
    tokens = [rng.integers(3, 700) for _ in range(rng.integers(2, 9))]
    same(submission.restore(tokens, [32099], 32099), tokens, says="no span: the targets are the closing sentinel alone")
    same(submission.restore([], [32099], 32099), [], says="an empty text")


@part(3)
def test_ids_above_the_sentinels_are_restored(submission, reference, rng):
    spans, length = drawn_spans(rng, 3)
    tokens = [rng.choice([rng.integers(3, 700), 2001, 2002, rng.integers(2003, 9000)]) for _ in range(length)]
    inside = spans[1][0]
    tokens[inside], tokens[spans[0][0] - 1] = 2001, 2002
    inputs, targets = reference.corrupt_spans(tokens, spans, 2000)
    same(submission.restore(inputs, targets, 2000), tokens, says="ids above first_sentinel are ordinary tokens")


@part(3)
def test_ids_below_the_sentinels_are_restored(submission, reference, rng):
    first, count = rng.integers(900, 4000), rng.integers(5, 20)
    spans, length = drawn_spans(rng, 3)
    tokens = [rng.integers(3, 700) for _ in range(length)]
    tokens[spans[1][0]] = first - count  # the first id that is no sentinel any more, in a span
    tokens[spans[0][0] - 1] = first - count  # and outside
    inputs, targets = reference.corrupt_spans(tokens, spans, first)
    says = f"with {count} sentinels, first_sentinel - {count} is an ordinary token"
    same(submission.restore(inputs, targets, first, count), tokens, says=says)


@part(3)
def test_every_sentinel_may_be_used(submission, reference, rng):
    count = rng.integers(4, 9)
    spans, length = drawn_spans(rng, count - 1)
    tokens = [rng.integers(3, 700) for _ in range(length)]
    inputs, targets = reference.corrupt_spans(tokens, spans, 5000)
    says = f"{count - 1} spans and the closing sentinel use all {count} sentinels"
    same(submission.restore(inputs, targets, 5000, count), tokens, says=says)


@part(3)
def test_a_hundred_sentinels_by_default(submission, reference, rng):
    spans, length = drawn_spans(rng, 99)
    tokens = [rng.integers(3, 700) for _ in range(length)]
    tokens[spans[4][0]] = tokens[spans[7][0] - 1] = 32099 - 100
    inputs, targets = reference.corrupt_spans(tokens, spans, 32099)
    same(
        submission.restore(inputs, targets, 32099),
        tokens,
        says="99 spans and the closing sentinel, with 32,099 the first",
    )


@part(3)
def test_more_sentinels_than_a_hundred(submission, reference, rng):
    spans, length = drawn_spans(rng, 119)
    tokens = [rng.integers(3, 700) for _ in range(length)]
    inputs, targets = reference.corrupt_spans(tokens, spans, 9000)
    same(submission.restore(inputs, targets, 9000, 130), tokens, says="119 spans with 130 sentinels")


@part(3)
def test_mixed_ids_are_restored(submission, reference, rng):
    for _ in range(3):
        count = rng.integers(8, 30)
        tokens, inputs, targets = corrupted(reference, rng, 6, 3000, count)
        same(
            submission.restore(inputs, targets, 3000, count),
            tokens,
            says="ids right beside the sentinels on both sides",
        )
