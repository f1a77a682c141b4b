"""Hidden tests of `expert_choice`.

Tokens are redrawn until every expert's choice is clear, so that float noise cannot flip it. Four experts and dyadic
capacity factors make capacity_factor * N / E exact. The order inside an expert's row is free: rows are compared as
a dense (E, N) table of weights.
"""

import math


def capacity_of(n_tokens, n_experts, factor):
    return min(n_tokens, math.ceil(factor * n_tokens / n_experts))


def clear_tokens(rng, ref, n_tokens, factor, gap=0.01, dtype=torch.float32):
    """(N, d) tokens for which every expert's last choice and first refusal lie apart.

    With a token that nobody takes and one that several take, where there can be both.
    """
    d, n_experts = ref.gate.in_features, ref.gate.out_features
    capacity = capacity_of(n_tokens, n_experts, factor)
    weight = plain(ref.gate.weight).double()
    while True:  # many candidates at once
        x = (1.5 * rng.normal(200, n_tokens, d, dtype=torch.float64)).to(dtype)
        probs = torch.softmax(x.double() @ weight.T, dim=-1)  # (200, N, E)
        ranked = probs.sort(dim=1, descending=True).values
        good = torch.ones(200, dtype=torch.bool)
        if capacity < n_tokens:
            good &= (ranked[:, capacity - 1] - ranked[:, capacity]).amin(dim=-1) > gap
            taken = (probs >= ranked[:, capacity - 1 : capacity]).sum(dim=-1)  # (200, N)
            if factor <= 1 and n_experts > 2:  # otherwise nearly every token is taken
                good &= (taken == 0).any(dim=-1) & (taken > 1).any(dim=-1)
        if bool(good.any()):
            return x[good][0]


def build(submission, reference, rng, shape=(2, 7), factor=1.0, dtype=None, gap=0.01, n_experts=4):
    """(mine, ref, x, taken): the same weights, x (B, T, d), and (N,) bool: which tokens somebody takes."""
    options = {} if factor == 1.0 else {"capacity_factor": factor}
    mine, ref = pair(submission.ExpertChoiceMoE, reference.ExpertChoiceMoE, 9, 6, n_experts, dtype=dtype, **options)
    n_tokens = shape[0] * shape[1]
    flat = clear_tokens(rng, ref, n_tokens, factor, gap, dtype or torch.float32)
    taken = reference.experts_per_token(ref.route(flat)[1], n_tokens) > 0
    return mine, ref, flat.view(*shape, 9), taken


def table(weights, token_indices, n_tokens):
    """(E, N): each expert's weight for each token, 0 where it was not taken."""
    empty = torch.zeros(weights.shape[0], n_tokens, dtype=weights.dtype, device=weights.device)
    return empty.scatter_add(1, token_indices.long(), weights)


def same_route(got, expected, n_tokens, says):
    (weights, tokens), (ref_weights, ref_tokens) = got, expected
    check(not tokens.is_floating_point(), f"{says}: token indices are integers", seen=str(tokens.dtype))
    check(tokens.shape == ref_tokens.shape, f"{says}: token indices are (E, C)", seen=tuple(tokens.shape))
    check(weights.shape == ref_weights.shape, f"{says}: weights are (E, C)", seen=tuple(weights.shape))
    check(weights.dtype == ref_weights.dtype, f"{says}: weights have the tokens' dtype", seen=str(weights.dtype))
    in_range = bool(((tokens >= 0) & (tokens < n_tokens)).all())
    check(in_range, f"{says}: token indices lie in 0..{n_tokens - 1}", seen=in_range)
    same(tokens.long().sort(dim=1).values, ref_tokens.sort(dim=1).values, says=f"{says}: the tokens each expert takes")
    mine, ref = table(weights, tokens, n_tokens), table(ref_weights, ref_tokens, n_tokens)
    close(mine, ref, says=f"{says}: the weight of each token taken")


def same_gradients(mine, ref, says):
    got = grads(mine)
    for name, parameter in ref.named_parameters():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        actual = torch.zeros_like(parameter) if got.get(name) is None else got[name]
        close(actual, expected, says=f"{says}: gradient of {name}", trivial_ok=True)


def pull(loss, says):
    check(loss.requires_grad, f"{says}: the result carries a gradient")
    loss.backward()


# ------------------------------------------------------------------------------------------------------- part 1


@part(1)
def test_every_expert_takes_its_best_tokens(submission, reference, rng):
    mine, ref, x, _ = build(submission, reference, rng)
    flat = x.reshape(14, 9)
    same_route(mine.route(flat), ref.route(flat), 14, "capacity 4 of 14 tokens")


@part(1)
def test_close_probabilities_are_told_apart(submission, reference, rng):
    mine, ref, _, _ = build(submission, reference, rng)
    gap = 0.0
    while gap < 1e-5:  # float noise is a hundred times smaller
        flat = 0.01 * rng.normal(40, 9)
        ranked = torch.softmax(ref.gate(flat).double(), dim=-1).sort(dim=0, descending=True).values
        gap = (ranked[9] - ranked[10]).min().item()
    same_route(mine.route(flat), ref.route(flat), 40, "probabilities that differ in the fourth digit")


@part(1)
def test_capacity_follows_the_factor_and_is_rounded_up(submission, reference, rng):
    for factor, n_tokens in ((0.5, 14), (1.5, 11), (2, 13), (1.25, 13), (0.75, 16)):
        mine, ref, x, _ = build(submission, reference, rng, shape=(1, n_tokens), factor=factor)
        flat = x.reshape(n_tokens, 9)
        same_route(mine.route(flat), ref.route(flat), n_tokens, f"ceil({factor} * {n_tokens} / 4) tokens per expert")


@part(1)
def test_capacity_that_is_a_whole_number_stays_as_it_is(submission, reference, rng):
    mine, ref, x, _ = build(submission, reference, rng, shape=(1, 12))
    same_route(mine.route(x[0]), ref.route(x[0]), 12, "12 / 4 = 3 tokens per expert")


@part(1)
def test_capacity_is_at_most_all_tokens(submission, reference, rng):
    for factor, n_tokens in ((4.0, 7), (6.0, 5)):
        mine, ref, x, _ = build(submission, reference, rng, shape=(1, n_tokens), factor=factor)
        says = f"factor {factor}: every expert takes all {n_tokens} tokens"
        same_route(mine.route(x[0]), ref.route(x[0]), n_tokens, says)


@part(1)
def test_route_of_a_single_token(submission, reference, rng):
    mine, ref, x, _ = build(submission, reference, rng, shape=(1, 1))
    same_route(mine.route(x[0]), ref.route(x[0]), 1, "one token is taken by every expert")


@part(1)
def test_route_of_two_and_of_eight_experts(submission, reference, rng):
    for n_experts, factor in ((2, 1.0), (8, 1.0), (8, 0.5)):
        mine, ref, x, _ = build(
            submission, reference, rng, shape=(1, 20), factor=factor, n_experts=n_experts, gap=0.004
        )
        same_route(mine.route(x[0]), ref.route(x[0]), 20, f"{n_experts} experts, factor {factor}")


@part(1)
def test_a_token_that_every_expert_takes(submission, reference, rng):
    for n_experts in (4, 6):
        n_tokens = 2 * n_experts + 1
        args = {"d_model": 9, "d_ff": 6, "n_experts": n_experts, "capacity_factor": 1.25}
        mine, ref = pair(submission.ExpertChoiceMoE, reference.ExpertChoiceMoE, **args)
        # Each expert has two tokens of its own and takes a third: the last one, which likes all alike.
        logits = rng.uniform(0.0, 0.3, n_tokens, n_experts, dtype=torch.float64)
        own = torch.arange(n_experts).repeat(2)
        logits[torch.arange(2 * n_experts), own] += 3.5
        weight = plain(ref.gate.weight).double()
        flat = (logits @ torch.linalg.pinv(weight).T).float()[rng.permutation(n_tokens)]
        says = f"one token is taken by all {n_experts} experts"
        same_route(mine.route(flat), ref.route(flat), n_tokens, says)
        close(mine(flat[None])[0], ref(flat[None])[0], says=f"{says}: y")


@part(1)
def test_capacity_of_a_thousand_tokens(submission, reference, rng):
    mine, ref = pair(submission.ExpertChoiceMoE, reference.ExpertChoiceMoE, 5, 3, 2, capacity_factor=2.0)
    x = rng.normal(2, 550, 5)  # capacity N: no choice that noise could flip
    same_route(mine.route(x.reshape(1100, 5)), ref.route(x.reshape(1100, 5)), 1100, "each of two experts takes all")
    close(mine(x)[0], ref(x)[0], says="each of two experts takes all of 1100 tokens: y")


@part(1)
def test_the_gate_is_one_matrix_without_bias(submission, reference, rng):
    names = [name for name in submission.ExpertChoiceMoE(7, 5, 3).parameter_names()[0] if name.startswith("gate")]
    same(names, ["gate.weight"], says="the gate's parameters by name")


@part(1)
def test_output_of_the_tokens_taken(submission, reference, rng):
    mine, ref, x, taken = build(submission, reference, rng)
    close(mine(x)[0].reshape(14, 9)[taken], ref(x)[0].reshape(14, 9)[taken], says="y of the tokens somebody took")


@part(1)
def test_output_of_eight_experts(submission, reference, rng):
    mine, ref, x, taken = build(submission, reference, rng, shape=(3, 7), gap=0.003, n_experts=8)
    y, expected = mine(x)[0].reshape(21, 9)[taken], ref(x)[0].reshape(21, 9)[taken]
    close(y, expected, says="8 experts: y of the tokens somebody took")


@part(1)
def test_output_when_every_expert_takes_everything(submission, reference, rng):
    mine, ref, x, _ = build(submission, reference, rng, shape=(3, 4), factor=4.0)
    flat = x.reshape(12, 9)
    probs = torch.softmax(ref.gate(flat), dim=-1)
    outputs = torch.stack([expert(flat) for expert in ref.experts], dim=1)
    dense = (probs[..., None] * outputs).sum(dim=1).view_as(x)
    close(mine(x)[0], dense, says="capacity N: the probability-weighted sum of all experts")
    mine.eval()
    close(mine(x)[0], dense, says="capacity N, in eval mode: the probability-weighted sum of all experts")


@part(1)
def test_experts_choose_among_all_sequences(submission, reference, rng):
    for shape, gap in (((3, 5), 0.01), ((13, 1), 0.01), ((2, 70), 1e-5)):
        mine, ref, x, taken = build(submission, reference, rng, shape=shape, gap=gap)
        y, expected = mine(x)[0].reshape(-1, 9)[taken], ref(x)[0].reshape(-1, 9)[taken]
        close(y, expected, says=f"{shape[0]} sequences of {shape[1]} as one group: y")


@part(1)
def test_output_with_other_factors(submission, reference, rng):
    for factor in (0.5, 2.0):
        mine, ref, x, taken = build(submission, reference, rng, factor=factor)
        y, expected = mine(x)[0].reshape(14, 9)[taken], ref(x)[0].reshape(14, 9)[taken]
        close(y, expected, says=f"capacity factor {factor}: y of the tokens somebody took")


@part(1)
def test_gradients_reach_gate_experts_and_tokens(submission, reference, rng):
    mine, ref, x, taken = build(submission, reference, rng)
    direction = rng.normal(14, 9)[taken]
    both = []
    for layer in (mine, ref):
        leaf = x.clone().requires_grad_()
        pull((layer(leaf)[0].reshape(14, 9)[taken] * direction).sum(), "a loss on y")
        check(leaf.grad is not None, "a loss on y reaches x")
        both.append(leaf.grad)
    close(both[0], both[1], says="gradient of x")
    same_gradients(mine, ref, "from y")


@part(1)
def test_gradient_of_the_weights(submission, reference, rng):
    mine, ref, x, _ = build(submission, reference, rng)
    direction = rng.normal(4, 14)
    both = []
    for layer in (mine, ref):
        leaf = x.reshape(14, 9).clone().requires_grad_()
        weights, tokens = layer.route(leaf)
        pull((table(weights, tokens, 14) * direction).sum(), "a loss on the weights")
        both.append(leaf.grad)
    check(both[0] is not None, "a loss on the weights reaches the tokens")
    close(both[0], both[1], says="gradient of the tokens from the weights")
    same_gradients(mine, ref, "from the weights")


@part(1)
def test_large_common_logits_change_nothing(submission, reference, rng):
    mine, ref, _, _ = build(submission, reference, rng)
    state = {name: tensor.clone() for name, tensor in ref.state_dict().items()}
    state["gate.weight"][:, 0] = 1.0
    mine.load_state_dict(state), ref.load_state_dict(state)
    flat = clear_tokens(rng, ref, 14, 1.0)
    for shift in (120.0, -120.0):
        moved = flat.clone()
        moved[:, 0] += shift
        same_route(mine.route(moved), ref.route(moved), 14, f"logits around {shift:+.0f}")


@part(1)
def test_layer_in_other_dtypes(submission, reference, rng):
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        mine, ref, x, taken = build(submission, reference, rng, dtype=dtype, gap=0.025, shape=(2, 5))
        same_route(mine.route(x.reshape(10, 9)), ref.route(x.reshape(10, 9)), 10, f"{dtype} tokens")
        y, expected = mine(x)[0].reshape(10, 9)[taken], ref(x)[0].reshape(10, 9)[taken]
        # In half precision up to four rounded outputs of about 1 may cancel.
        tol = None if dtype == torch.float64 else 0.06
        close(y, expected, says=f"a {dtype} layer: y", tol=tol)


@part(1)
def test_non_contiguous_tokens(submission, reference, rng):
    mine, ref, x, taken = build(submission, reference, rng)
    stored_otherwise = x.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    y = mine(stored_otherwise)[0].reshape(14, 9)[taken]
    close(y, ref(x)[0].reshape(14, 9)[taken], says="x stored channels first")


@part(1)
def test_nothing_is_kept_from_one_call_to_the_next(submission, reference, rng):
    mine, ref, x, taken = build(submission, reference, rng)
    mine(x), mine(x[:1, :4])
    y = mine(x)[0].reshape(14, 9)[taken]
    close(y, ref(x)[0].reshape(14, 9)[taken], says="the same call after others")


@part(1)
def test_every_call_has_a_capacity_of_its_own(submission, reference, rng):
    mine, ref, short, _ = build(submission, reference, rng, shape=(1, 8))
    long = clear_tokens(rng, ref, 24, 1.0)
    for flat in (short[0], long, short[0]):
        same_route(mine.route(flat), ref.route(flat), flat.shape[0], f"{flat.shape[0]} tokens, after another number")


@part(1)
def test_layer_in_eval_mode(submission, reference, rng):
    mine, ref, x, taken = build(submission, reference, rng)
    mine.eval()
    y = mine(x)[0].reshape(14, 9)[taken]
    close(y, ref(x)[0].reshape(14, 9)[taken], says="in eval mode")


@part(1)
def test_gradients_in_eval_mode(submission, reference, rng):
    mine, ref, x, taken = build(submission, reference, rng)
    mine.eval()
    direction, slopes = rng.normal(14, 9)[taken], []
    for layer in (mine, ref):
        leaf = x.clone().requires_grad_()
        pull((layer(leaf)[0].reshape(14, 9)[taken] * direction).sum(), "y in eval mode")
        slopes.append(leaf.grad)
    check(slopes[0] is not None, "in eval mode y reaches x: eval() is not no_grad()")
    close(slopes[0], slopes[1], says="gradient of x, in eval mode")
    same_gradients(mine, ref, "from y in eval mode")


@part(1)
def test_without_gradients_too(submission, reference, rng):
    mine, ref, x, taken = build(submission, reference, rng)
    with torch.no_grad():
        same_route(mine.route(x.reshape(14, 9)), ref.route(x.reshape(14, 9)), 14, "under no_grad")
        y = mine(x)[0].reshape(14, 9)[taken]
        close(y, ref(x)[0].reshape(14, 9)[taken], says="a call under no_grad")
        y = mine(x.flip(0))[0].flip(0).reshape(14, 9)[taken]
        close(y, ref(x)[0].reshape(14, 9)[taken], says="under no_grad, the sequences in another order")
        weights = {name: t if name.startswith("gate") else 1.5 * t for name, t in ref.state_dict().items()}
        for layer in (mine, ref):
            layer.load_state_dict(weights)
        y = mine(x)[0].reshape(14, 9)[taken]
        close(y, ref(x)[0].reshape(14, 9)[taken], says="under no_grad, experts loaded anew")
        weights["gate.weight"] = weights["gate.weight"].roll(1, 0)  # the same gaps, other experts
        for layer in (mine, ref):
            layer.load_state_dict(weights)
        same_route(mine.route(x.reshape(14, 9)), ref.route(x.reshape(14, 9)), 14, "under no_grad, the gate loaded anew")
        mine, ref, x, taken = build(submission, reference, rng, dtype=torch.bfloat16, gap=0.025, shape=(2, 5))
        same_route(mine.route(x.reshape(10, 9)), ref.route(x.reshape(10, 9)), 10, "bfloat16 tokens under no_grad")
        y, expected = mine(x)[0].reshape(10, 9)[taken], ref(x)[0].reshape(10, 9)[taken]
        close(y, expected, says="a bfloat16 layer under no_grad: y", tol=0.06)


@part(1)
def test_logits_far_apart(submission, reference, rng):
    # Capacity N: whoever is far below is taken as well, with a weight of 0.
    mine, ref = pair(submission.ExpertChoiceMoE, reference.ExpertChoiceMoE, 9, 6, 4, capacity_factor=4.0)
    x, direction, slopes = rng.normal(2, 5, 9) * 120, rng.normal(2, 5, 9), []
    for layer in (mine, ref):
        leaf = x.clone().requires_grad_()
        y, _ = layer(leaf)
        if layer is mine:
            close(y, ref(x)[0], says="logits that lie hundreds apart: y", tol=1e-3)
        pull((y * direction).sum(), "y")
        slopes.append(leaf.grad)
    # Logits of hundreds leave float32 four digits of a log-softmax, and the slope is a difference of probabilities.
    close(slopes[0], slopes[1], says="logits that lie hundreds apart: gradient of x", tol=1e-2)


@part(1)
def test_one_expert_and_more_experts_than_tokens(submission, reference, rng):
    for n_experts, n_tokens, factor in ((1, 6, 1.0), (1, 7, 0.5), (8, 5, 1.0), (8, 3, 0.5)):
        mine, ref, x, taken = build(
            submission, reference, rng, shape=(1, n_tokens), factor=factor, n_experts=n_experts, gap=-1.0
        )
        says = f"{n_tokens} tokens, {n_experts} experts, factor {factor}"
        if n_experts > 1:
            same_route(mine.route(x[0]), ref.route(x[0]), n_tokens, says)
            close(mine(x)[0][:, taken], ref(x)[0][:, taken], says=f"{says}: y of the tokens somebody took")
        else:  # every probability is 1: any tokens will do
            weights, tokens = mine.route(x[0])
            same(tuple(tokens.shape), tuple(ref.route(x[0])[1].shape), says=f"{says}: the shape of the indices")
            close(weights, torch.ones_like(weights), says=f"{says}: the weights", trivial_ok=True)


@part(1)
def test_layer_makes_no_tensor_on_another_device(submission, reference, rng):
    mine = submission.ExpertChoiceMoE(7, 5, 4).to("meta")
    on_meta(lambda: mine.route(torch.empty(6, 7, device="meta")), "route")
    on_meta(lambda: mine(torch.empty(2, 3, 7, device="meta")), "the layer")


# ------------------------------------------------------------------------------------------------------- part 2


@part(2)
def test_tokens_that_nobody_took_get_zero(submission, reference, rng):
    mine, ref, x, taken = build(submission, reference, rng, factor=0.5)
    y = mine(x)[0].reshape(14, 9)
    close(y[~taken], torch.zeros(int((~taken).sum()), 9), says="y of tokens nobody took", trivial_ok=True)
    close(y, ref(x)[0].reshape(14, 9), says="y of all tokens")
    mine.eval()
    close(mine(x)[0], ref(x)[0], says="y of all tokens in eval mode, those that nobody took among them")
    with torch.no_grad():
        close(mine(x)[0], ref(x)[0], says="y of all tokens in eval mode under no_grad")


@part(2)
def test_loss_is_one(submission, reference, rng):
    for factor in (0.5, 1.0, 2.0):
        mine, _, x, _ = build(submission, reference, rng, factor=factor)
        close(mine(x)[1], torch.tensor(1.0), says="aux is 1")


@part(2)
def test_loss_is_one_for_other_sizes_and_modes(submission, reference, rng):
    for n_experts, shape, factor in ((8, (2, 7), 1.0), (4, (1, 1), 1.0), (4, (2, 4), 0.5), (1, (1, 5), 1.0)):
        mine, _ = pair(submission.ExpertChoiceMoE, reference.ExpertChoiceMoE, 9, 6, n_experts, capacity_factor=factor)
        says, x = f"{shape} tokens, {n_experts} experts, factor {factor}: aux", rng.normal(*shape, 9)
        close(mine(x)[1], torch.tensor(1.0), says=says)
        with torch.no_grad():
            close(mine(x)[1], torch.tensor(1.0), says=f"{says} under no_grad")
        mine.eval()
        close(mine(x)[1], torch.tensor(1.0), says=f"{says} in eval mode")


@part(2)
def test_loss_of_many_tokens_in_half_precision(submission, reference, rng):
    for dtype in (torch.bfloat16, torch.float16):
        mine, _ = pair(submission.ExpertChoiceMoE, reference.ExpertChoiceMoE, 9, 6, 4, dtype=dtype)
        aux = mine(rng.normal(2, 600, 9, dtype=dtype))[1]
        close(aux, torch.tensor(1.0, dtype=dtype), says=f"aux of 1200 {dtype} tokens", tol=0.03)


@part(2)
def test_loss_is_one_for_a_skewed_router(submission, reference, rng):
    mine, ref = pair(submission.ExpertChoiceMoE, reference.ExpertChoiceMoE, 9, 6, 4)
    state = {name: tensor.clone() for name, tensor in ref.state_dict().items()}
    state["gate.weight"][1] = 2.0
    mine.load_state_dict(state)
    close(mine(1 + rng.normal(2, 5, 9).abs())[1], torch.tensor(1.0), says="aux when every token prefers one expert")


@part(2)
def test_loss_has_the_dtype_of_the_tokens(submission, reference, rng):
    for dtype in (torch.float64, torch.bfloat16):
        mine, _, x, _ = build(submission, reference, rng, dtype=dtype, gap=0.025, shape=(2, 5))
        close(mine(x)[1], torch.tensor(1.0, dtype=dtype), says=f"aux of a {dtype} layer")


@part(2)
def test_gradient_of_a_token_nobody_took_is_zero(submission, reference, rng):
    mine, _, x, taken = build(submission, reference, rng, factor=0.5)
    leaf = x.clone().requires_grad_()
    direction = rng.normal(*x.shape)
    pull((mine(leaf)[0] * direction).sum(), "a loss on y")
    check(leaf.grad is not None, "a loss on y reaches x")
    left = leaf.grad.reshape(14, 9)[~taken]
    close(left, torch.zeros_like(left), says="gradient of tokens nobody took", trivial_ok=True)


def random_choice(rng, n_experts, capacity, n_tokens):
    return torch.stack([rng.permutation(n_tokens)[:capacity] for _ in range(n_experts)])


@part(2)
def test_experts_per_token_counts(submission, reference, rng):
    for n_experts, capacity, n_tokens in ((4, 3, 11), (7, 5, 9), (5, 6, 6), (3, 1, 8), (2, 3, 5000)):
        tokens = random_choice(rng, n_experts, capacity, n_tokens)
        counts = submission.experts_per_token(token_indices=tokens, n_tokens=n_tokens)
        check(tuple(counts.shape) == (n_tokens,), "one count per token", seen=tuple(counts.shape))
        expected = reference.experts_per_token(tokens, n_tokens)
        says = f"{n_experts} experts that took {capacity} of {n_tokens} tokens"
        close(counts.double(), expected.double(), says=says, trivial_ok=True)
        counts = submission.experts_per_token(tokens.t().contiguous().t(), n_tokens)
        close(counts.double(), expected.double(), says=f"{says}, stored column by column", trivial_ok=True)


@part(2)
def test_experts_that_took_the_same_tokens_all_count(submission, rng):
    for capacity in (3, 1):
        row = rng.permutation(5)[:capacity]
        mine = submission.experts_per_token(torch.stack([row, row, row]), 7)
        expected = torch.zeros_like(rng.permutation(7))
        expected[row] = 3
        check(mine.tolist() == expected.tolist(), f"three experts took the same tokens, {capacity} each", seen=mine)


@part(2)
def test_thousands_of_experts_that_took_the_same_tokens(submission, rng):
    row, n_experts = rng.permutation(5)[:3], 2 * rng.integers(1100, 1150) + 1  # odd: not in 16 bits
    mine = submission.experts_per_token(row.expand(n_experts, 3).contiguous(), 7)
    expected = torch.zeros_like(rng.permutation(7))
    expected[row] = n_experts
    close(mine.double(), expected.double(), says=f"{n_experts} experts took the same tokens", tol=1e-6)


@part(2)
def test_tokens_that_nobody_took_are_counted_as_zero(submission, reference, rng):
    tokens = random_choice(rng, 4, 3, 7) + 1  # nobody takes token 0, nor 8 and 9
    tokens[:2, 0] = 3
    counts = submission.experts_per_token(tokens, 10)
    expected = reference.experts_per_token(tokens, 10)
    check(tuple(counts.shape) == (10,), "one count per token, the last ones too", seen=tuple(counts.shape))
    close(counts.double(), expected.double(), says="tokens 0, 8 and 9 of 10 were taken by nobody", trivial_ok=True)


@part(2)
def test_counts_of_the_layers_own_choice(submission, reference, rng):
    mine, ref, x, _ = build(submission, reference, rng, factor=2.0)
    flat = x.reshape(14, 9)
    counts = submission.experts_per_token(mine.route(flat)[1], 14)
    expected = reference.experts_per_token(ref.route(flat)[1], 14)
    close(counts.double(), expected.double(), says="experts per token under factor 2", trivial_ok=True)
    close(counts.double().sum(), torch.tensor(28.0, dtype=torch.float64), says="E * C places in all")


@part(2)
def test_counts_are_made_on_the_device_of_the_indices(submission, reference, rng):
    taken = torch.empty(3, 4, dtype=torch.int64, device="meta")
    on_meta(lambda: submission.experts_per_token(taken, 7), "experts_per_token")


# ------------------------------------------------------------------------------------------------------- part 3


def examples(submission, rng):
    """(before, after, E, C) for several sizes, drawn ones among them."""
    sizes = [(2, 1), (3, 2), (5, 4), (4, 1), (3, 1), (20, 2), (12, 40), (2, 100)]
    for n_experts, capacity in [*sizes, (rng.integers(2, 8), rng.integers(3, 8))]:
        yield (*submission.leaking_example(n_experts=n_experts, capacity=capacity), n_experts, capacity)


def takers(probs, capacity):
    """The experts that take row 0, as a bool per expert."""
    return (probs.topk(capacity, dim=0).indices == 0).any(dim=0)


@part(3)
def test_example_has_tables_of_the_right_size(submission, reference, rng):
    for before, after, n_experts, capacity in examples(submission, rng):
        check(
            before.dim() == 2 and before.shape == after.shape, "two tables of one shape (N, E)", seen=tuple(after.shape)
        )
        check(before.shape[1] == n_experts, "one column per expert", seen=tuple(before.shape))
        check(before.shape[0] > capacity, "more tokens than the capacity", seen=tuple(before.shape))


@part(3)
def test_example_has_positive_entries(submission, reference, rng):
    for before, after, _, _ in examples(submission, rng):
        smallest = min(float(before.min()), float(after.min()))
        check(smallest > 0, "router probabilities are positive", seen=smallest)


@part(3)
def test_example_differs_in_the_last_row_alone(submission, reference, rng):
    for before, after, _, _ in examples(submission, rng):
        check(before.shape == after.shape, "two tables of one shape", seen=tuple(after.shape))
        changed = (before != after).any(dim=1)
        check(not bool(changed[:-1].any()), "every row but the last is the same", seen=changed)
        check(bool(changed[-1]), "the last row differs", seen=changed)


@part(3)
def test_first_token_gets_other_experts_in_the_example(submission, reference, rng):
    for before, after, n_experts, capacity in examples(submission, rng):
        check(
            before.dim() == 2 and before.shape[0] > capacity, "more tokens than the capacity", seen=tuple(before.shape)
        )
        one, other = takers(before, capacity), takers(after, capacity)
        says = f"E = {n_experts}, capacity {capacity}: row 0 is taken by other experts after the last row changed"
        check(not torch.equal(one, other), says, seen=torch.stack([one, other]))
