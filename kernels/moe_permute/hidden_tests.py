"""What is asked of topk_route: the choice, the weights, the stable order; then bytes, sectors and the compiler."""


def chosen(logits, k):
    """Weights and indices: falling logit, of equal ones the lower index first."""
    indices = torch.argsort(logits.double(), dim=-1, descending=True, stable=True)[:, :k]
    return torch.softmax(logits.double().gather(1, indices), dim=-1).float(), indices


def sorted_slots(indices, E):
    """Order and offsets of the slots by expert, stable."""
    flat = indices.reshape(-1)
    counts = torch.bincount(flat, minlength=E)
    return torch.argsort(flat, stable=True), torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])


def as_given(submission, logits, k, **how):
    """All four results, integers as int32 or int64."""
    got, report = submission.metered("topk_route", logits, k, **how)
    for place, name in ((1, "indices"), (2, "order"), (3, "offsets")):
        # Nothing is noted down as seen: either width is right, and must not hide what an answer shares with a mistake.
        check(got[place].dtype in (torch.int32, torch.int64), f"{name} is int32 or int64, not {got[place].dtype}")
    return got, report


def routed(submission, logits, k, **how):
    """All four results, integers as int64 (int32 is asked for, int64 accepted)."""
    got, report = as_given(submission, logits, k, **how)
    return (got[0], *(part.long() for part in got[1:])), report


def distinct(rng, T, E, scale=1.0):
    """Logits without ties and without near ties."""
    ranks = rng.uniform(0, 1, T, E).argsort(dim=1).float()
    return (ranks - E / 2 + rng.uniform(0.1, 0.9, T, E)) * scale


@part(1)
def test_the_k_largest_logits_in_falling_order(submission, rng):
    for T, E, k in ((7, 8, 2), (5, 16, 4), (3, 4, 3)):
        logits = distinct(rng, T, E)
        (_, indices, _, _), _ = routed(submission, logits, k)
        same(indices, chosen(logits, k)[1], says=f"{k} of {E} experts for {T} tokens")


@part(1)
def test_weights_are_a_softmax_over_the_chosen(submission, rng):
    for T, E, k in ((7, 8, 2), (5, 16, 4), (3, 6, 5)):
        logits = distinct(rng, T, E, scale=0.3)
        (weights, _, _, _), _ = routed(submission, logits, k)
        close(weights, chosen(logits, k)[0], says=f"weights of {k} of {E}")


@part(1)
def test_one_expert_a_token_has_weight_one(submission, rng):
    logits = distinct(rng, 6, 7)
    (weights, indices, _, _), _ = routed(submission, logits, 1)
    close(weights, torch.ones(6, 1), says="k = 1", trivial_ok=True)
    same(indices, chosen(logits, 1)[1], says="k = 1")


@part(1)
def test_all_experts_chosen(submission, rng):
    logits = distinct(rng, 5, 6, scale=0.3)
    (weights, indices, _, _), _ = routed(submission, logits, 6)
    same(indices, chosen(logits, 6)[1], says="k = E sorts every expert")
    close(weights, chosen(logits, 6)[0], says="k = E is a softmax over all")


@part(1)
def test_expert_counts_that_are_no_powers_of_two(submission, rng):
    for E, k in ((5, 2), (7, 3), (33, 4), (130, 3), (35, 33)):
        logits = distinct(rng, 4, E)
        (weights, indices, _, _), _ = routed(submission, logits, k)
        same(indices, chosen(logits, k)[1], says=f"{k} of {E}")
        close(weights, chosen(logits, k)[0], says=f"{k} of {E}")


@part(1)
def test_a_single_expert(submission, rng):
    (weights, indices, order, offsets), _ = routed(submission, rng.normal(5, 1), 1)
    close(weights, torch.ones(5, 1), says="one expert has weight 1", trivial_ok=True)
    same(indices, torch.zeros(5, 1, dtype=torch.int64), says="the only expert is 0")
    same(order, torch.arange(5), says="one expert has all slots in their order")
    same(offsets, torch.tensor([0, 5]), says="one expert has all slots")


@part(1)
def test_all_logits_negative(submission, rng):
    logits = -rng.uniform(3, 90, 5, 11)
    (weights, indices, _, _), _ = routed(submission, logits, 4)
    same(indices, chosen(logits, 4)[1], says="every logit below 0")
    close(weights, chosen(logits, 4)[0], says="every logit below 0")


@part(1)
def test_ties_go_to_the_lowest_index(submission, rng):
    logits = rng.integers(0, 3, 9, 13).float()
    (weights, indices, _, _), _ = routed(submission, logits, 5)
    same(indices, chosen(logits, 5)[1], says="many equal logits")
    close(weights, chosen(logits, 5)[0], says="many equal logits")


@part(1)
def test_a_tie_with_everything(submission, rng):
    logits = torch.full((4, 9), float(rng.uniform(-3, 3)))
    (weights, indices, _, _), _ = routed(submission, logits, 3)
    same(indices, torch.arange(3).repeat(4, 1), says="all logits equal: experts 0, 1, 2")
    close(weights, torch.full((4, 3), 1 / 3), says="all logits equal", trivial_ok=True)


@part(1)
def test_large_logits_do_not_overflow(submission, rng):
    logits = distinct(rng, 4, 9, scale=0.3)
    for moved in (logits + 1e4, logits * 100):
        (weights, indices, _, _), _ = routed(submission, moved, 3)
        same(indices, chosen(moved, 3)[1], says="large logits")
        close(weights, chosen(moved, 3)[0], says="large logits")


@part(1)
def test_logits_far_below_zero(submission, rng):
    logits = distinct(rng, 5, 11, scale=0.3)
    moved = logits - 1e4
    (weights, indices, _, _), _ = routed(submission, moved, 4)
    same(indices, chosen(moved, 4)[1], says="logits around -10000")
    close(weights, chosen(moved, 4)[0], says="logits around -10000")
    # A router that forbids experts by a large negative number: fewer than k are left.
    forbidden = [0, 2, 3, 5, 7, 8]
    low = logits.clone()
    low[:, forbidden] = logits[:, forbidden] * 1e30 - 1e31
    (weights, indices, _, _), _ = routed(submission, low, 8)
    same(indices, chosen(low, 8)[1], says="six experts forbidden by -1e31, eight chosen")
    close(weights, chosen(low, 8)[0], says="six experts forbidden by -1e31, eight chosen")
    low[:, forbidden] = torch.finfo(torch.float32).min
    (weights, indices, _, _), _ = routed(submission, low, 8)
    same(indices, chosen(low, 8)[1], says="six experts forbidden by the lowest float32, eight chosen")
    close(weights, chosen(low, 8)[0], says="six experts forbidden by the lowest float32, eight chosen")


@part(1)
def test_tokens_at_different_levels(submission, rng):
    logits = distinct(rng, 9, 7, scale=0.3)
    logits += (rng.permutation(9).float() - 4)[:, None] * 150
    (weights, indices, _, _), _ = routed(submission, logits, 3)
    same(indices, chosen(logits, 3)[1], says="one token's logits lie hundreds above another's")
    close(weights, chosen(logits, 3)[0], says="one token's logits lie hundreds above another's")


@part(1)
def test_logits_that_differ_in_their_last_bits(submission, rng):
    ranks = rng.uniform(0, 1, 4, 11).argsort(dim=1).float()
    logits = (1 + ranks * 2.0**-23) * torch.tensor([1.0, -4.0, 2.0**12, -(2.0**-9)], device=ranks.device)[:, None]
    (_, indices, _, _), _ = routed(submission, logits, 5)
    same(indices, chosen(logits, 5)[1], says="logits one unit in the last place apart are no tie")


@part(1)
def test_many_hundred_experts(submission, rng):
    # One token: several would race in an answer whose counts do, and only where a block holds one.
    logits = distinct(rng, 1, 610, scale=0.1)
    logits[0, 607] += 200
    expected = sorted_slots(chosen(logits, 3)[1], 610)
    (weights, indices, order, offsets), _ = routed(submission, logits, 3)
    same(indices, chosen(logits, 3)[1], says="3 of 610 experts")
    close(weights, chosen(logits, 3)[0], says="3 of 610 experts")
    same(order, expected[0], says="three slots by 610 experts")
    same(offsets, expected[1], says="three slots by 610 experts")


@part(1)
def test_zeros_of_either_sign_are_equal(submission, rng):
    logits = torch.zeros(6, 9) * (rng.integers(0, 2, 6, 9) * 2 - 1)
    logits[:, 3] = -1.0
    (_, indices, _, _), _ = routed(submission, logits, 4)
    same(indices, chosen(logits, 4)[1], says="0 and -0 are a tie")


@part(1)
def test_a_bad_k_is_refused(submission, rng):
    for k, E in ((5, 4), (0, 4), (-1, 4), (4, 3)):  # the first is what an answer that checks nothing gets through
        with raises(ValueError, says=f"k = {k} of {E} experts"):
            submission.topk_route(distinct(rng, 3, E), k)


@part(2)
def test_order_and_offsets(submission, rng):
    for T, E, k in ((6, 4, 2), (37, 8, 2), (23, 5, 3), (6, 4, 2)):  # a size comes back with other logits
        logits = distinct(rng, T, E)
        expected = sorted_slots(chosen(logits, k)[1], E)
        (_, _, order, offsets), _ = routed(submission, logits, k)
        same(offsets, expected[1], says=f"where each of {E} experts begins")
        same(order, expected[0], says=f"{T * k} slots by expert")


@part(2)
def test_one_token(submission, rng):
    logits = distinct(rng, 1, 5)
    expected = sorted_slots(chosen(logits, 3)[1], 5)
    (_, _, order, offsets), _ = routed(submission, logits, 3)
    same(order, expected[0], says="one token, three slots")
    same(offsets, expected[1], says="one token, three slots")


@part(2)
def test_experts_that_nobody_chooses(submission, rng):
    logits = distinct(rng, 19, 9)
    logits[:, [0, 3, 4, 8]] -= 50
    expected = sorted_slots(chosen(logits, 2)[1], 9)
    (_, _, order, offsets), _ = routed(submission, logits, 2)
    same(offsets, expected[1], says="four of nine experts are empty, the first and the last too")
    same(order, expected[0], says="four of nine experts are empty")


@part(2)
def test_one_expert_takes_every_token(submission, rng):
    logits = distinct(rng, 150, 6)
    logits[:, 4] += 50
    expected = sorted_slots(chosen(logits, 2)[1], 6)
    (_, _, order, offsets), _ = routed(submission, logits, 2)
    same(offsets, expected[1], says="expert 4 has a slot of every token")
    same(order, expected[0], says="expert 4 has a slot of every token")


@part(2)
def test_more_tokens_than_a_block_holds(submission, rng):
    for T, E, k in ((300, 6, 2), (129, 3, 2), (257, 9, 1), (1100, 3, 2), (90, 19, 7)):
        logits = distinct(rng, T, E)
        expected = sorted_slots(chosen(logits, k)[1], E)
        (_, indices, order, offsets), _ = routed(submission, logits, k)
        same(indices, chosen(logits, k)[1], says=f"{T} tokens")
        same(offsets, expected[1], says=f"{T} tokens")
        same(order, expected[0], says=f"{T} tokens: slots of one expert stay in their order")


@part(2)
def test_the_order_of_programs_does_not_show(submission, rng):
    logits = distinct(rng, 270, 5)
    expected = sorted_slots(chosen(logits, 2)[1], 5)
    (_, _, order, offsets), _ = routed(submission, logits, 2, reverse=True)
    same(offsets, expected[1], says="the last program runs first")
    same(order, expected[0], says="the last program runs first")


@part(2)
def test_row_strides_are_free(submission, rng):
    wide = rng.normal(21, 12)
    wide[:, :7] = distinct(rng, 21, 7)
    logits = wide[:, :7]
    expected = sorted_slots(chosen(logits, 2)[1], 7)
    (weights, indices, order, offsets), _ = routed(submission, logits, 2)
    same(indices, chosen(logits, 2)[1], says="rows 12 apart")
    close(weights, chosen(logits, 2)[0], says="rows 12 apart")
    same(order, expected[0], says="rows 12 apart")
    same(offsets, expected[1], says="rows 12 apart")
    (_, indices, _, _), _ = routed(submission, logits[:1].expand(3, 7), 2)
    same(indices, chosen(logits[:1], 2)[1].expand(3, 2), says="one row of logits for three tokens, rows 0 apart")


@part(2)
def test_offsets_past_two_to_the_31(submission, rng):
    logits = distinct(rng, 3, 6)
    (weights, indices, _, _), _ = routed(submission, logits, 2, far={0: 1 << 30})
    same(indices, chosen(logits, 2)[1], says="rows 2^30 numbers apart")
    close(weights, chosen(logits, 2)[0], says="rows 2^30 numbers apart")


@part(3)
def test_bytes_at_the_cost_shape(submission, rng):
    T, E, k = 512, 64, 2
    logits = rng.normal(T, E)
    (weights, indices, order, offsets), report = as_given(submission, logits, k)
    expected = sorted_slots(chosen(logits, k)[1], E)
    same(indices.long(), chosen(logits, k)[1], says="the cost shape's indices")
    close(weights, chosen(logits, k)[0], says="the cost shape's weights")
    same(order.long(), expected[0], says="the cost shape's order")
    same(offsets.long(), expected[1], says="the cost shape's offsets")
    # Indices are written and read again; where results are int64, which is accepted, they are twice as wide.
    slot_bytes = weights.element_size() + 2 * indices.element_size() + order.element_size()
    ideal = 4 * T * E + slot_bytes * T * k + offsets.element_size() * (E + 1)
    cost(report, ideal, says=f"topk_route of ({T}, {E}), k = {k}")


@part(3)
def test_it_compiles_for_real_gpus(submission, rng):
    reports = []
    for T, E, k in ((256, 64, 2), (37, 10, 3)):
        logits = distinct(rng, T, E, scale=0.3)
        (weights, indices, order, offsets), report = routed(submission, logits, k)
        expected = sorted_slots(chosen(logits, k)[1], E)
        same(indices, chosen(logits, k)[1], says=f"indices of ({T}, {E}), k = {k}")
        close(weights, chosen(logits, k)[0], says=f"weights of ({T}, {E}), k = {k}")
        same(order, expected[0], says=f"order of ({T}, {E}), k = {k}")
        same(offsets, expected[1], says=f"offsets of ({T}, {E}), k = {k}")
        reports.append(report)
    compiles(reports)
