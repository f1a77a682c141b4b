"""Hidden tests of `balance_loss`. Indices are drawn apart from the probabilities; the loss takes them as they are."""


def draw_probs(rng, n_tokens, n_experts, dtype=torch.float32):
    return torch.softmax(1.5 * rng.normal(n_tokens, n_experts, dtype=torch.float64), dim=-1).to(dtype)


def draw_choices(rng, n_tokens, n_experts, k):
    return torch.stack([rng.permutation(n_experts)[:k] for _ in range(n_tokens)])


def skewed(rng, n_tokens, n_experts, k):
    """(N, k) distinct experts per token, with one expert in nearly every row."""
    popular = rng.integers(0, n_experts)
    choices = draw_choices(rng, n_tokens, n_experts, k)
    for n in range(n_tokens - 2):
        if popular not in choices[n]:
            choices[n, rng.integers(0, k)] = popular
    return choices


def clear_logits(rng, n_tokens, n_experts, dtype=torch.float32):
    """(N, E) logits with gaps of at least 0.3 between a token's experts, and a popular expert."""
    steps = torch.stack([rng.permutation(n_experts) for _ in range(n_tokens)]).double() * 0.5
    popular = rng.integers(0, n_experts)
    steps[: n_tokens - 3, popular] += 0.5 * n_experts
    return (steps + rng.uniform(-0.1, 0.1, n_tokens, n_experts, dtype=torch.float64) - 1.0).to(dtype)


def together(losses):
    """Several losses as one tensor, after a check that each is a scalar."""
    shapes = [tuple(loss.shape) for loss in losses]
    check(all(shape == () for shape in shapes), "a loss is a scalar", seen=str(shapes))
    return torch.stack(losses)


def pull(loss, says):
    check(loss.requires_grad, f"{says}: the result carries a gradient")
    loss.backward()


def same_gradient(functions, leaf_value, call, says, tol=None):
    both = []
    for function in functions:
        leaf = leaf_value.clone().requires_grad_()
        pull(1.7 * call(function, leaf), says)  # as a coefficient would: the gradient from above is not 1
        check(leaf.grad is not None, f"{says}: a gradient arrives")
        both.append(leaf.grad)
    close(both[0], both[1], says=f"{says}: gradient", tol=tol, trivial_ok=True)


# ------------------------------------------------------------------------------------------------------- part 1


@part(1)
def test_loss_of_arbitrary_routing(submission, reference, rng):
    mine, ref = [], []
    for n_tokens, n_experts, k in ((13, 5, 2), (11, 7, 3), (6, 6, 2), (9, 4, 1), (9, 300, 2)):
        probs, indices = draw_probs(rng, n_tokens, n_experts), skewed(rng, n_tokens, n_experts, k)
        mine.append(submission.load_balancing_loss(probs, indices))
        ref.append(reference.load_balancing_loss(probs, indices))
    close(together(mine), torch.stack(ref), says="losses of 2 of 5, 3 of 7, 2 of 6, 1 of 4 and 2 of 300 experts")


@part(1)
def test_loss_of_the_worked_example(submission, reference, rng):
    probs = torch.tensor([[0.6, 0.3, 0.1], [0.5, 0.1, 0.4], [0.2, 0.5, 0.3], [0.7, 0.2, 0.1]])
    indices = torch.tensor([[0, 1], [0, 2], [1, 2], [0, 1]])
    order, names = rng.permutation(4), rng.permutation(3)
    probs, indices = probs[order][:, names.argsort()], names[indices[order]]
    close(submission.load_balancing_loss(probs, indices), torch.tensor(1.040625), says="the worked example")


@part(1)
def test_balanced_slots_give_one(submission, reference, rng):
    for k in (1, 2, 3):
        start = torch.cat([rng.permutation(5) for _ in range(3)])
        indices = torch.stack([(start + j) % 5 for j in range(k)], dim=1)
        close(
            submission.load_balancing_loss(draw_probs(rng, 15, 5), indices), torch.tensor(1.0), says=f"balance, k = {k}"
        )


@part(1)
def test_collapse_gives_the_number_of_experts(submission, reference, rng):
    n_experts = rng.choice([4, 6, 7])
    winner = rng.integers(0, n_experts)
    probs = torch.zeros(9, n_experts)
    probs[:, winner] = 1.0
    loss = submission.load_balancing_loss(probs, torch.full((9, 1), winner))
    close(loss, torch.tensor(float(n_experts)), says="all tokens certain of one expert")


@part(1)
def test_every_expert_chosen_by_every_token_gives_one(submission, reference, rng):
    indices = torch.stack([rng.permutation(4) for _ in range(7)])
    close(submission.load_balancing_loss(draw_probs(rng, 7, 4), indices), torch.tensor(1.0), says="k = E")


@part(1)
def test_experts_that_nobody_chose(submission, reference, rng):
    for unused in (2, 0, 5):
        used = torch.tensor([e for e in range(6) if e != unused])
        probs, indices = draw_probs(rng, 11, 6), used[skewed(rng, 11, 5, 2)]
        expected = reference.load_balancing_loss(probs, indices)
        close(submission.load_balancing_loss(probs, indices), expected, says=f"nobody chose expert {unused} of 6")


@part(1)
def test_order_of_a_tokens_experts_means_nothing(submission, reference, rng):
    probs, indices = draw_probs(rng, 12, 5), skewed(rng, 12, 5, 3)
    expected = reference.load_balancing_loss(probs, indices)
    shuffled = torch.stack([row[rng.permutation(3)] for row in indices])
    close(submission.load_balancing_loss(probs, shuffled), expected, says="a token's experts in another order")


@part(1)
def test_a_single_token(submission, reference, rng):
    probs, indices = draw_probs(rng, 1, 6), draw_choices(rng, 1, 6, 2)
    close(submission.load_balancing_loss(probs, indices), reference.load_balancing_loss(probs, indices), says="N = 1")


@part(1)
def test_gradient_goes_through_the_mean_probability(submission, reference, rng):
    probs, indices = draw_probs(rng, 12, 5), skewed(rng, 12, 5, 2)
    functions = (submission.load_balancing_loss, reference.load_balancing_loss)
    same_gradient(functions, probs, lambda loss, leaf: loss(leaf, indices), "the balance loss")
    probs[rng.integers(0, 12)] = torch.eye(5)[rng.integers(0, 5)]
    same_gradient(functions, probs, lambda loss, leaf: loss(leaf, indices), "one token certain of its expert")


@part(1)
def test_gradient_of_the_loss_in_other_sizes_and_dtypes(submission, reference, rng):
    functions = (submission.load_balancing_loss, reference.load_balancing_loss)
    for n_tokens, n_experts, k, dtype in (
        (9, 4, 1, torch.float32),
        (7, 4, 4, torch.bfloat16),
        (1, 6, 2, torch.float16),
    ):
        probs, indices = draw_probs(rng, n_tokens, n_experts, dtype), draw_choices(rng, n_tokens, n_experts, k)
        tol, says = 1e-4 if dtype == torch.float32 else 0.1, f"{n_tokens} tokens, {k} of {n_experts} experts, {dtype}"
        same_gradient(functions, probs, lambda loss, leaf, indices=indices: loss(leaf, indices), says, tol)


@part(1)
def test_gradient_pushes_a_busy_expert_down(submission, reference, rng):
    logits = clear_logits(rng, 14, 5)
    indices = logits.topk(2, dim=-1).indices

    def through_softmax(loss, leaf):
        return loss(torch.softmax(leaf, dim=-1), indices)

    functions = (submission.load_balancing_loss, reference.load_balancing_loss)
    same_gradient(functions, logits, through_softmax, "the balance loss of a softmax")


@part(1)
def test_loss_keeps_the_dtype_of_the_probabilities(submission, reference, rng):
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        probs, indices = draw_probs(rng, 14, 5, dtype), skewed(rng, 14, 5, 2)
        expected = reference.load_balancing_loss(probs.double(), indices).to(dtype)
        close(submission.load_balancing_loss(probs, indices), expected, says=f"{dtype} probabilities")


@part(1)
def test_counts_are_exact_in_half_precision(submission, reference, rng):
    for dtype in (torch.bfloat16, torch.float16):
        popular = rng.integers(0, 4)
        indices = torch.full((6000, 1), popular)
        indices[:900] = rng.integers(0, 4, 900, 1)
        probs = draw_probs(rng, 6000, 4, dtype)
        probs[:900] = torch.eye(4)[popular].to(dtype)
        expected = reference.load_balancing_loss(probs.double(), indices).to(dtype)
        close(submission.load_balancing_loss(probs, indices), expected, says=f"6000 tokens, {dtype} probabilities")


@part(1)
def test_non_contiguous_arguments(submission, reference, rng):
    probs, indices = draw_probs(rng, 12, 5), skewed(rng, 12, 5, 3)
    expected = reference.load_balancing_loss(probs, indices)
    columns = (probs.T.contiguous().T, indices.T.contiguous().T)
    close(submission.load_balancing_loss(*columns), expected, says="arguments stored column by column")


@part(1)
def test_one_expert_in_all(submission, reference, rng):
    probs, indices = torch.ones(7, 1), torch.zeros(7, 1, dtype=torch.long)
    close(submission.load_balancing_loss(probs, indices), torch.tensor(1.0), says="one expert, whom all choose")


@part(1)
def test_loss_without_gradients_and_by_name(submission, reference, rng):
    with torch.no_grad():
        for turn in ("first", "second"):
            probs, indices = draw_probs(rng, 13, 5), skewed(rng, 13, 5, 2)
            expected = reference.load_balancing_loss(probs, indices)
            loss = submission.load_balancing_loss(probs=probs, indices=indices)
            close(loss, expected, says=f"arguments by name, without gradients, the {turn} batch of 13 tokens")


@part(1)
def test_no_token_is_refused(submission, reference, rng):
    with raises(ValueError, says="a loss of no tokens"):
        submission.load_balancing_loss(torch.zeros(0, 5), torch.zeros(0, 2, dtype=torch.long))


@part(1)
def test_loss_makes_no_tensor_on_another_device(submission, reference, rng):
    probs, indices = torch.empty(7, 5, device="meta"), torch.empty(7, 2, dtype=torch.long, device="meta")
    on_meta(lambda: submission.load_balancing_loss(probs, indices), "the balance loss")


# ------------------------------------------------------------------------------------------------------- part 2


@part(2)
def test_usage_is_the_share_of_the_slots(submission, reference, rng):
    for n_tokens, n_experts, k in ((13, 5, 2), (11, 7, 3), (9, 4, 1), (9, 300, 2)):
        indices = skewed(rng, n_tokens, n_experts, k).T.contiguous().T
        expected = reference.expert_usage_fraction(indices, n_experts)
        usage = submission.expert_usage_fraction(indices, n_experts)
        check(usage.is_floating_point(), "usage is a float tensor", seen=str(usage.dtype))
        close(usage, expected, says=f"usage of {n_experts} experts, k = {k}", dtype=False, tol=1e-4)


@part(2)
def test_usage_sums_to_one(submission, reference, rng):
    usage = submission.expert_usage_fraction(skewed(rng, 12, 5, 3), 5)
    check(tuple(usage.shape) == (5,), "usage has one entry per expert", seen=tuple(usage.shape))
    close(usage.sum(), torch.tensor(1.0), says="usage sums to 1 for k = 3", dtype=False, tol=1e-4)
    usage = submission.expert_usage_fraction(torch.zeros(7, 1, dtype=torch.long), 1)
    close(usage, torch.ones(1), says="usage of the only expert", dtype=False, tol=1e-4, trivial_ok=True)


@part(2)
def test_usage_of_experts_nobody_chose_is_zero(submission, reference, rng):
    for unused in ((0,), (5,), (4, 5), (2, 3)):
        used = torch.tensor([e for e in range(6) if e not in unused])
        indices = used[skewed(rng, 10, len(used), 2)]
        expected = reference.expert_usage_fraction(indices, 6)
        says = f"nobody chose {' and '.join(map(str, unused))} of 6 experts"
        close(submission.expert_usage_fraction(indices, 6), expected, says=says, dtype=False, tol=1e-4)
    for n_tokens in (7, 1):
        usage = submission.expert_usage_fraction(torch.full((n_tokens, 1), 3), 5)
        says = f"usage is a float tensor, also when one expert has every slot of {n_tokens}"
        check(usage.is_floating_point(), says, seen=str(usage.dtype))


@part(2)
def test_usage_of_many_tokens_is_exact(submission, reference, rng):
    indices = torch.full((40000, 2), 1)
    indices[:, 0] = rng.integers(2, 7, 40000)
    expected = reference.expert_usage_fraction(indices, 7)
    usage = submission.expert_usage_fraction(indices, 7)
    close(usage, expected, says="40,000 tokens, one expert in every row", dtype=False, tol=1e-4)


@part(2)
def test_usage_of_no_token_is_refused(submission, reference, rng):
    with raises(ValueError, says="usage of no tokens"):
        submission.expert_usage_fraction(torch.zeros(0, 2, dtype=torch.long), 4)


def padded(rng, n_tokens, n_experts, k, dtype=torch.float32, n_padding=None, on=None):
    """(probs, indices, mask): padding scattered among real tokens, all of it on one expert (`on`, or any)."""
    probs, indices = draw_probs(rng, n_tokens, n_experts, dtype), skewed(rng, n_tokens, n_experts, k)
    mask = torch.ones(n_tokens, dtype=torch.bool)
    mask[rng.permutation(n_tokens)[: n_padding or n_tokens // 3 + 1]] = False
    pad = rng.permutation(n_experts)
    pad = pad if on is None else torch.cat([torch.tensor([on]), pad[pad != on]])
    indices[~mask] = pad[:k]
    sharp = torch.full((n_experts,), 0.1 / (n_experts - 1), dtype=torch.float64)
    sharp[pad[0]] = 0.9
    probs[~mask] = sharp.to(dtype)
    return probs, indices, mask


@part(2)
def test_padded_equals_unpadded(submission, reference, rng):
    mine, ref = [], []
    for n_tokens, n_experts, k in ((14, 5, 2), (11, 7, 3), (10, 4, 1), (17, 6, 2)):
        probs, indices, mask = padded(rng, n_tokens, n_experts, k)
        mine.append(submission.masked_load_balancing_loss(probs, indices, mask))
        ref.append(reference.load_balancing_loss(probs[mask], indices[mask]))
    close(
        together(mine),
        torch.stack(ref),
        says="losses of 2 of 5, 3 of 7, 1 of 4 and 2 of 6 experts, a third of it padding",
    )
    mine, ref = [], []
    for n_tokens, n_padding, k, on in ((10, 2, 2, None), (5, 1, 2, None), (11, 4, 1, 0), (11, 4, 1, 3)):
        probs, indices, mask = padded(rng, n_tokens, 4, k, n_padding=n_padding, on=on)
        columns = (probs.T.contiguous().T, indices.T.contiguous().T)
        mine.append(submission.masked_load_balancing_loss(*columns, mask))
        ref.append(reference.load_balancing_loss(probs[mask], indices[mask]))
    says = "2 tokens of 10 padding, then 1 of 5, then 4 of 11 on the first expert and on the last; stored by columns"
    close(together(mine), torch.stack(ref), says=says)


@part(2)
def test_masked_loss_of_the_worked_example(submission, reference, rng):
    probs = torch.tensor([[0.6, 0.3, 0.1], [0.5, 0.1, 0.4], [0.2, 0.5, 0.3], [0.7, 0.2, 0.1]])
    indices, mask = torch.tensor([[0, 1], [0, 2], [1, 2], [0, 1]]), torch.tensor([True, True, False, False])
    order, names = rng.permutation(4), rng.permutation(3)
    probs, indices, mask = probs[order][:, names.argsort()], names[indices[order]], mask[order]
    loss = submission.masked_load_balancing_loss(probs, indices, mask)
    close(loss, torch.tensor(1.1625), says="tokens 2 and 3 of the worked example as padding")


@part(2)
def test_a_mask_without_padding_changes_nothing(submission, reference, rng):
    probs, indices = draw_probs(rng, 12, 5), skewed(rng, 12, 5, 2)
    expected = reference.load_balancing_loss(probs, indices)
    loss = submission.masked_load_balancing_loss(probs, indices, torch.ones(12, dtype=torch.bool))
    close(loss, expected, says="every token is real")


@part(2)
def test_one_real_token(submission, reference, rng):
    probs, indices = draw_probs(rng, 9, 5), draw_choices(rng, 9, 5, 2)
    place = rng.integers(0, 9)
    mask = torch.zeros(9, dtype=torch.bool)
    mask[place] = True
    expected = reference.load_balancing_loss(probs[place : place + 1], indices[place : place + 1])
    close(submission.masked_load_balancing_loss(probs, indices, mask), expected, says="one real token of nine")


@part(2)
def test_usage_and_masked_loss_without_gradients_and_by_name(submission, reference, rng):
    with torch.no_grad():
        for turn in ("first", "second"):
            probs, indices, mask = padded(rng, 14, 5, 2)
            usage = submission.expert_usage_fraction(indices=indices, n_experts=5)
            expected = reference.expert_usage_fraction(indices, 5)
            says = f"without gradients, the {turn} batch of 14 tokens"
            close(usage, expected, says=f"usage by name, {says}", dtype=False, tol=1e-4)
            loss = submission.masked_load_balancing_loss(probs=probs, indices=indices, token_mask=mask)
            close(loss, reference.load_balancing_loss(probs[mask], indices[mask]), says=f"masked loss by name, {says}")


@part(2)
def test_gradient_of_the_masked_loss(submission, reference, rng):
    probs, indices, mask = padded(rng, 13, 5, 2)
    functions = (submission.masked_load_balancing_loss, reference.masked_load_balancing_loss)
    same_gradient(functions, probs, lambda loss, leaf: loss(leaf, indices, mask), "the masked loss")
    probs[mask.nonzero()[0]] = torch.eye(5)[rng.integers(0, 5)]
    for n_real in (12, 1):
        mask = torch.arange(13) < n_real
        says = f"the masked loss of {n_real} real tokens, the first certain of its expert"
        same_gradient(functions, probs, lambda loss, leaf, mask=mask: loss(leaf, indices, mask), says)


@part(2)
def test_gradient_of_the_masked_loss_in_other_sizes_and_dtypes(submission, reference, rng):
    functions = (submission.masked_load_balancing_loss, reference.masked_load_balancing_loss)
    for n_experts, k, dtype in ((4, 1, torch.float32), (5, 2, torch.bfloat16), (4, 4, torch.float16)):
        probs, indices, mask = padded(rng, 13, n_experts, k, dtype)
        tol, says = 1e-4 if dtype == torch.float32 else 0.1, f"the masked loss of {k} of {n_experts} experts, {dtype}"
        same_gradient(functions, probs, lambda loss, leaf, rest=(indices, mask): loss(leaf, *rest), says, tol)
    probs, indices, mask = draw_probs(rng, 9, 5), skewed(rng, 9, 5, 2), torch.ones(9, dtype=torch.bool)
    same_gradient(functions, probs, lambda loss, leaf: loss(leaf, indices, mask), "the masked loss without padding")


@part(2)
def test_padding_gets_no_gradient(submission, reference, rng):
    probs, indices, mask = padded(rng, 13, 5, 2)
    leaf = probs.clone().requires_grad_()
    pull(submission.masked_load_balancing_loss(leaf, indices, mask), "the masked loss")
    check(leaf.grad is not None, "the masked loss reaches the probabilities")
    padding = leaf.grad[~mask]
    close(padding, torch.zeros_like(padding), says="gradient of padding rows", trivial_ok=True)


@part(2)
def test_masked_loss_in_other_dtypes(submission, reference, rng):
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        probs, indices, mask = padded(rng, 14, 5, 2, dtype)
        expected = reference.load_balancing_loss(probs[mask].double(), indices[mask]).to(dtype)
        close(submission.masked_load_balancing_loss(probs, indices, mask), expected, says=f"masked, {dtype}")


@part(2)
def test_masked_counts_are_exact_in_half_precision(submission, reference, rng):
    for dtype in (torch.bfloat16, torch.float16):
        popular = rng.integers(0, 4)
        indices = torch.full((6000, 1), popular)
        indices[:900] = rng.integers(0, 4, 900, 1)
        probs, mask = draw_probs(rng, 6000, 4, dtype), torch.ones(6000, dtype=torch.bool)
        mask[rng.permutation(6000)[: 6000 - 21 * 256]] = False  # 256 divides what is left
        expected = reference.load_balancing_loss(probs[mask].double(), indices[mask]).to(dtype)
        loss = submission.masked_load_balancing_loss(probs, indices, mask)
        close(loss, expected, says=f"5376 real tokens, {dtype} probabilities")


@part(2)
def test_nothing_but_padding_is_refused(submission, reference, rng):
    probs, indices = draw_probs(rng, 6, 5), draw_choices(rng, 6, 5, 2)
    with raises(ValueError, says="a mask without a real token"):
        submission.masked_load_balancing_loss(probs, indices, torch.zeros(6, dtype=torch.bool))
    empty = (torch.zeros(0, 5), torch.zeros(0, 2, dtype=torch.long), torch.zeros(0, dtype=torch.bool))
    with raises(ValueError, says="no token at all"):
        submission.masked_load_balancing_loss(*empty)


# ------------------------------------------------------------------------------------------------------- part 3


@part(3)
def test_token_convention(submission, reference, rng):
    mine, ref = [], []
    for n_tokens, n_experts, k in ((13, 5, 2), (11, 7, 3), (9, 4, 1), (10, 6, 4)):
        logits, coef = clear_logits(rng, n_tokens, n_experts), rng.uniform(0.1, 2.0)
        mine.append(submission.token_fraction_loss(logits, k, coef))
        ref.append(reference.token_fraction_loss(logits, k, coef))
    close(together(mine), torch.stack(ref), says="losses of 2 of 5, 3 of 7, 1 of 4 and 4 of 6 experts")
    loss = submission.token_fraction_loss(logits.T.contiguous().T, 2, 0.6)
    close(loss, reference.token_fraction_loss(logits, 2, 0.6), says="logits stored column by column")


@part(3)
def test_token_convention_is_k_times_the_slot_convention(submission, reference, rng):
    k = rng.choice([3, 4])
    logits = clear_logits(rng, 12, 6)
    slots = reference.load_balancing_loss(torch.softmax(logits, dim=-1), logits.topk(k, dim=-1).indices)
    close(submission.token_fraction_loss(logits, k, 1.0), k * slots, says=f"coef = 1: {k} times the slot convention")


@part(3)
def test_coefficient_has_a_default_and_scales(submission, reference, rng):
    logits = clear_logits(rng, 11, 5)
    close(
        submission.token_fraction_loss(logits, 3),
        reference.token_fraction_loss(logits, 3),
        says="the default coefficient",
    )
    for coef in (rng.uniform(2.0, 5.0), rng.uniform(0.0005, 0.005)):
        expected, says = reference.token_fraction_loss(logits, 3, coef), f"a coefficient of {coef:.4f} by name"
        close(submission.token_fraction_loss(logits, 3, coef=coef), expected, says=says)


@part(3)
def test_a_coefficient_of_zero_gives_zero(submission, reference, rng):
    loss = submission.token_fraction_loss(clear_logits(rng, 9, 5), 2, 0.0)
    close(loss, torch.tensor(0.0), says="a coefficient of 0", trivial_ok=True)


@part(3)
def test_token_convention_without_gradients_and_by_name(submission, reference, rng):
    with torch.no_grad():
        for turn in ("first", "second"):
            logits = clear_logits(rng, 12, 5)
            loss = submission.token_fraction_loss(logits=logits, k=3, coef=0.7)
            expected = reference.token_fraction_loss(logits, 3, 0.7)
            close(loss, expected, says=f"arguments by name, without gradients, the {turn} batch of 12 tokens")


@part(3)
def test_choice_among_improbable_experts(submission, reference, rng):
    logits = torch.stack([rng.permutation(5) for _ in range(11)]).float() * 12  # the third has a probability of 4e-11
    logits[:7, rng.integers(0, 5)] += 54
    expected = reference.token_fraction_loss(logits, 3, 1.0)
    close(submission.token_fraction_loss(logits, 3, 1.0), expected, says="logits 12 apart, k = 3")


@part(3)
def test_token_convention_at_balance_gives_k(submission, reference, rng):
    base = rng.permutation(5).double()
    logits = torch.stack([base.roll(shift) for shift in range(5)]).float()  # every expert takes every rank once
    for k in (1, 2, 4):
        close(submission.token_fraction_loss(logits, k, 1.0), torch.tensor(float(k)), says=f"balance, k = {k}")


@part(3)
def test_all_experts_chosen_in_the_token_convention(submission, reference, rng):
    logits = clear_logits(rng, 7, 4)
    close(submission.token_fraction_loss(logits, 4, 1.0), torch.tensor(4.0), says="k = E")


@part(3)
def test_last_expert_unused_in_the_token_convention(submission, reference, rng):
    logits = clear_logits(rng, 10, 6)
    for unused in (0, 5):
        without = logits.clone()
        without[:, unused] = -4.0 - rng.uniform(0.0, 1.0, 10)
        expected = reference.token_fraction_loss(without, 3, 1.0)
        close(submission.token_fraction_loss(without, 3, 1.0), expected, says=f"nobody chooses expert {unused} of 6")


@part(3)
def test_gradient_of_the_token_convention(submission, reference, rng):
    logits = clear_logits(rng, 12, 5)
    functions = (submission.token_fraction_loss, reference.token_fraction_loss)
    same_gradient(functions, logits, lambda loss, leaf: loss(leaf, 3, 0.7), "the token convention")
    for n_tokens, k, dtype in ((9, 1, torch.float32), (1, 2, torch.bfloat16), (12, 3, torch.float16)):
        logits = clear_logits(rng, n_tokens + 3, 5, dtype)[:n_tokens]
        tol, says = 1e-4 if dtype == torch.float32 else 0.1, f"{n_tokens} tokens, {k} of 5 experts, {dtype}"
        same_gradient(functions, logits, lambda loss, leaf, k=k: loss(leaf, k, 0.7), says, tol)


@part(3)
def test_large_logits_stay_finite(submission, reference, rng):
    logits = clear_logits(rng, 11, 5)
    for shift in (200.0, -200.0):
        expected = reference.token_fraction_loss(logits + shift, 3, 1.0)
        close(
            submission.token_fraction_loss(logits + shift, 3, 1.0),
            expected,
            says=f"logits around {shift:+.0f}",
            tol=1e-3,
        )
    expected = reference.token_fraction_loss(1e4 * logits, 1, 1.0)
    close(submission.token_fraction_loss(1e4 * logits, 1, 1.0), expected, says="saturated logits, k = 1")


@part(3)
def test_token_convention_in_other_dtypes(submission, reference, rng):
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        logits = clear_logits(rng, 14, 5, dtype)
        expected = reference.token_fraction_loss(logits.double(), 3, 0.5).to(dtype)
        close(submission.token_fraction_loss(logits, 3, 0.5), expected, says=f"{dtype} logits")


@part(3)
def test_token_counts_are_exact_in_half_precision(submission, reference, rng):
    for dtype, k in ((torch.bfloat16, 1), (torch.float16, 2)):
        logits = torch.stack([rng.permutation(4) for _ in range(40)]).repeat(150, 1).to(dtype)
        logits[900:, rng.integers(0, 4)] += 4
        expected = reference.token_fraction_loss(logits.double(), k, 0.5).to(dtype)
        close(submission.token_fraction_loss(logits, k, 0.5), expected, says=f"6000 tokens, {dtype} logits, k = {k}")


@part(3)
def test_one_token_in_the_token_convention(submission, reference, rng):
    logits = clear_logits(rng, 4, 6)[:1]
    close(submission.token_fraction_loss(logits, 3, 1.0), reference.token_fraction_loss(logits, 3, 1.0), says="N = 1")


@part(3)
def test_bad_arguments_are_refused(submission, reference, rng):
    n_experts = rng.integers(2, 6)
    with raises(ValueError, says="k > E"):
        submission.token_fraction_loss(rng.normal(4, n_experts), n_experts + 1)
    with raises(ValueError, says="no tokens"):
        submission.token_fraction_loss(torch.zeros(0, 5), 2)


@part(3)
def test_token_convention_makes_no_tensor_on_another_device(submission, reference, rng):
    logits = torch.empty(7, 5, device="meta")
    on_meta(lambda: submission.token_fraction_loss(logits, 2), "the token convention")
