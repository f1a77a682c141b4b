"""Hidden tests of `moe`.

Routers are steered, not seeded: tokens are built so that their logits have wide gaps, and float noise cannot flip a
choice. The experts of a token may come in any order, so routing is compared as a dense (N, E) table of weights.
"""

import math

# ------------------------------------------------------------------------------------------------------- helpers


def dense_weights(weights, indices, n_experts):
    """Weights as an (N, E) table, 0 where an expert was not chosen."""
    empty = torch.zeros(weights.shape[0], n_experts, dtype=weights.dtype, device=weights.device)
    return empty.scatter_add(1, indices.long(), weights)


def draw_choices(rng, n_tokens, n_experts, k):
    """(N, k) distinct experts per token, best first."""
    return torch.stack([rng.permutation(n_experts)[:k] for _ in range(n_tokens)])


def crowd(rng, choices, popular, n_popular):
    """The same choices with one expert put into a random slot of n_popular of the tokens that lack it."""
    choices = choices.clone()
    missing = [n for n in range(choices.shape[0]) if popular not in choices[n]]
    order = rng.permutation(len(missing)).tolist() if missing else []
    wanted = n_popular - (choices.shape[0] - len(missing))
    for place in order[: max(0, wanted)]:
        choices[missing[place], rng.integers(0, choices.shape[1])] = popular
    return choices


def logits_for(rng, choices, n_experts, step=0.7):
    """(N, E) logits under which each token prefers its choices in this order, by gaps of at least 0.3."""
    n_tokens, k = choices.shape
    logits = rng.uniform(-0.35, 0.35, n_tokens, n_experts, dtype=torch.float64) - 1.0 - step * k
    ranked = -step * torch.arange(k, dtype=torch.float64).expand(n_tokens, k)
    jitter = rng.uniform(-0.2, 0.2, n_tokens, k, dtype=torch.float64)
    return logits.scatter(1, choices, ranked + jitter)


def tokens_for(rng, gate, logits, dtype=torch.float32):
    """(N, d) random tokens whose logits under the gate's weights are these."""
    weight = plain(gate.weight).double()  # (E, d), d > E
    back = torch.linalg.pinv(weight)  # (d, E)
    noise = rng.normal(logits.shape[0], weight.shape[1], dtype=torch.float64)
    return (noise - noise @ weight.T @ back.T + logits @ back.T).to(dtype)


def kept_slots(choices, capacity, order=None):
    """(N, k) bool: which slots survive when tokens claim places in this order of flat slots."""
    n_tokens, k = choices.shape
    kept, taken = torch.zeros_like(choices, dtype=torch.bool), {}
    for flat in range(n_tokens * k) if order is None else order:
        expert = int(choices[flat // k, flat % k])
        taken[expert] = taken.get(expert, 0) + 1
        kept[flat // k, flat % k] = taken[expert] <= capacity
    return kept


def contested(rng, B, T, n_experts, k, capacity, n_popular):
    """Choices (N, k) and logits under which every other order of dropping keeps other slots than token order does."""
    n_tokens = B * T
    while True:
        popular = rng.integers(0, n_experts)
        choices = crowd(rng, draw_choices(rng, n_tokens, n_experts, k), popular, n_popular)
        logits = logits_for(rng, choices, n_experts)
        counts = torch.bincount(choices.flatten(), minlength=n_experts)
        if int(counts.max()) < capacity + 3:
            continue
        kept = kept_slots(choices, capacity)
        weights = torch.softmax(logits.gather(1, choices), dim=-1).flatten()
        flat = torch.arange(n_tokens * k).view(n_tokens, k)
        time_first = flat.view(B, T, k).transpose(0, 1).flatten()
        orders = [flat.flip(0).flatten(), flat.T.flatten(), weights.argsort(descending=True), time_first]
        others = [kept_slots(choices, capacity, order.tolist()) for order in orders]
        per_slot = torch.stack([kept_slots(choices[:, j : j + 1], capacity)[:, 0] for j in range(k)], dim=1)
        share = math.ceil(capacity / B)
        per_sequence = torch.cat([kept_slots(part, share) for part in choices.view(B, T, k)])
        none_left = ~kept.any(dim=1)
        some_left = kept.any(dim=1) & ~kept.all(dim=1)
        all_differ = not any(torch.equal(kept, other) for other in [*others, per_slot, per_sequence])
        if all_differ and bool(none_left.any()) and bool(some_left.any()):
            return choices, logits


def build(
    submission, reference, rng, shape=(2, 7), sizes=(11, 6), n_experts=5, k=2, choices=None, dtype=None, **options
):
    """(mine, ref, x) of a layer: the same weights, and an x (B, T, d) that is routed without close calls."""
    mine, ref = pair(submission.MoELayer, reference.MoELayer, *sizes, n_experts, k=k, dtype=dtype, **options)
    B, T = shape
    if choices is None:
        choices = draw_choices(rng, B * T, n_experts, k)
    logits = logits_for(rng, choices, n_experts)
    x = tokens_for(rng, ref.router.gate, logits, dtype or torch.float32).view(B, T, -1)
    return mine, ref, x


def usage_of(layer):
    """last_usage as float64, whatever its dtype."""
    usage = layer.last_usage
    check(isinstance(usage, torch.Tensor), "last_usage is a tensor", seen=type(usage).__name__)
    return plain(usage).to(torch.float64).cpu()


def same_usage(mine, ref, says):
    close(usage_of(mine), usage_of(ref), says=says, trivial_ok=True)


def same_gradients(mine, ref, says):
    """Parameter gradients agree; None counts as zeros."""
    got = grads(mine)
    for name, parameter in ref.named_parameters():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        actual = torch.zeros_like(parameter) if got.get(name) is None else got[name]
        close(actual, expected, says=f"{says}: gradient of {name}", trivial_ok=True)


def pull(loss, says):
    """Backward, after a check that there is a graph at all."""
    check(loss.requires_grad, f"{says}: the result carries a gradient")
    loss.backward()


# ------------------------------------------------------------------------------------------------ part 1: router


def routed(submission, reference, rng, n_tokens, d, n_experts, k, dtype=None):
    mine, ref = pair(submission.TopKRouter, reference.TopKRouter, d, n_experts, k, dtype=dtype)
    logits = logits_for(rng, draw_choices(rng, n_tokens, n_experts, k), n_experts)
    return mine, ref, tokens_for(rng, ref.gate, logits, dtype or torch.float32)


def same_routing(got, expected, n_experts, says):
    (weights, indices, probs), (ref_weights, ref_indices, ref_probs) = got, expected
    check(not indices.is_floating_point(), f"{says}: indices are integers", seen=str(indices.dtype))
    check(tuple(indices.shape) == tuple(ref_indices.shape), f"{says}: indices are (N, k)", seen=tuple(indices.shape))
    check(tuple(weights.shape) == tuple(ref_weights.shape), f"{says}: weights are (N, k)", seen=tuple(weights.shape))
    check(weights.dtype == ref_weights.dtype, f"{says}: weights have x's dtype", seen=str(weights.dtype))
    in_range = bool(((indices >= 0) & (indices < n_experts)).all())
    check(in_range, f"{says}: indices are expert numbers from 0 to {n_experts - 1}", seen=in_range)
    same(indices.long().sort(dim=1).values, ref_indices.sort(dim=1).values, says=f"{says}: the chosen experts")
    table, ref_table = (dense_weights(w, i, n_experts) for w, i in ((weights, indices), (ref_weights, ref_indices)))
    close(table, ref_table, says=f"{says}: each chosen expert's weight", trivial_ok=True)
    close(probs, ref_probs, says=f"{says}: probabilities over all experts")


@part(1)
def test_router_weights_indices_and_probabilities(submission, reference, rng):
    mine, ref, x = routed(submission, reference, rng, 13, 11, 5, 2)
    same_routing(mine(x), ref(x), 5, "two of five experts")


@part(1)
def test_router_with_three_of_seven_experts(submission, reference, rng):
    mine, ref, x = routed(submission, reference, rng, 17, 19, 7, 3)
    same_routing(mine(x), ref(x), 7, "three of seven experts")
    named = submission.TopKRouter(d_model=19, n_experts=7, k=3)
    named.load_state_dict(ref.state_dict())
    same_routing(named(x), ref(x), 7, "sizes given by name")


@part(1)
def test_weights_of_a_token_sum_to_one(submission, reference, rng):
    mine, _, x = routed(submission, reference, rng, 9, 11, 6, rng.choice([2, 3, 4]))
    weights, _, probs = mine(x)
    close(weights.sum(dim=-1), torch.ones(9), says="the k weights of a token sum to 1", trivial_ok=True)
    close(probs.sum(dim=-1), torch.ones(9), says="the probabilities over all experts sum to 1", trivial_ok=True)


@part(1)
def test_one_expert_per_token_has_weight_one(submission, reference, rng):
    mine, ref, x = routed(submission, reference, rng, 12, 9, 5, 1)
    weights, indices, probs = mine(x)
    close(weights, torch.ones(12, 1), says="with k = 1 the weight is 1", trivial_ok=True)
    same(indices.long(), ref(x)[1], says="with k = 1 the most probable expert is chosen")
    close(probs, ref(x)[2], says="with k = 1 the probabilities are still over all experts")


@part(1)
def test_all_experts_chosen_gives_the_probabilities_themselves(submission, reference, rng):
    mine, ref, x = routed(submission, reference, rng, 8, 9, 4, 4)
    weights, indices, probs = mine(x)
    same(indices.long().sort(dim=1).values, torch.arange(4).expand(8, 4), says="with k = E every expert is chosen once")
    close(dense_weights(weights, indices, 4), ref(x)[2], says="with k = E the weights are the probabilities")
    close(probs, ref(x)[2], says="with k = E the probabilities")


@part(1)
def test_router_on_a_single_token(submission, reference, rng):
    mine, ref, x = routed(submission, reference, rng, 1, 9, 5, 2)
    same_routing(mine(x), ref(x), 5, "one token")


@part(1)
def test_router_in_eval_mode(submission, reference, rng):
    mine, ref, x = routed(submission, reference, rng, 10, 11, 6, 2)
    mine.eval()
    same_routing(mine(x), ref(x), 6, "in eval mode")
    with torch.no_grad():
        same_routing(mine(x), ref(x), 6, "in eval mode under no_grad")
        rolled = {name: tensor.roll(1, 0) for name, tensor in ref.state_dict().items()}  # the same gaps, other experts
        mine.load_state_dict(rolled), ref.load_state_dict(rolled)
        same_routing(mine(x), ref(x), 6, "in eval mode, the gate loaded anew")


@part(1)
def test_gradients_of_the_weights_reach_gate_and_tokens(submission, reference, rng):
    for k in (2, 5):
        mine, ref, x = routed(submission, reference, rng, 10, 11, 5, k)
        pull_on = rng.normal(10, 5)
        both = []
        for router in (mine, ref):
            leaf = x.clone().requires_grad_()
            weights, indices, _ = router(leaf)
            pull((dense_weights(weights, indices, 5) * pull_on).sum(), f"k = {k} of 5: a loss on the weights")
            check(leaf.grad is not None, f"k = {k} of 5: a loss on the weights reaches the tokens")
            both.append(leaf.grad)
        close(both[0], both[1], says=f"k = {k} of 5: gradient of the tokens from the weights")
        same_gradients(mine, ref, f"k = {k} of 5: from the weights")


@part(1)
def test_gradients_of_the_probabilities_reach_every_expert(submission, reference, rng):
    mine, ref, x = routed(submission, reference, rng, 10, 11, 5, 2)
    pull_on = rng.normal(10, 5)
    both = []
    for router in (mine, ref):
        leaf = x.clone().requires_grad_()
        pull((router(leaf)[2] * pull_on).sum(), "a loss on the probabilities")
        check(leaf.grad is not None, "a loss on the probabilities reaches the tokens")
        both.append(leaf.grad)
    close(both[0], both[1], says="gradient of the tokens from the probabilities")
    same_gradients(mine, ref, "from the probabilities")


@part(1)
def test_large_common_logits_change_nothing(submission, reference, rng):
    for shift in (150.0, -150.0):
        mine, ref = pair(submission.TopKRouter, reference.TopKRouter, 13, 5, 2)
        logits = logits_for(rng, draw_choices(rng, 9, 5, 2), 5)
        x = tokens_for(rng, ref.gate, logits + shift)
        same_routing(mine(x), ref(x), 5, f"logits around {shift:+.0f}")


@part(1)
def test_saturated_logits_stay_finite(submission, reference, rng):
    mine, ref, x = routed(submission, reference, rng, 9, 11, 5, 2)
    x = x * 1e4  # every probability but the largest underflows: only the weights, not the second choice, are certain
    weights, indices, probs = mine(x)
    ref_weights, ref_indices, ref_probs = ref(x)
    expected = dense_weights(ref_weights, ref_indices, 5)
    close(dense_weights(weights, indices, 5), expected, says="the winner takes weight 1, and nothing is NaN")
    close(probs, ref_probs, says="saturated probabilities")


@part(1)
def test_logits_that_are_close_are_told_apart(submission, reference, rng):
    mine, ref = pair(submission.TopKRouter, reference.TopKRouter, 37, 37, 2)
    table = {name: torch.eye(37, dtype=tensor.dtype) for name, tensor in ref.state_dict().items()}
    mine.load_state_dict(table), ref.load_state_dict(table)
    x = 1.0 + 3e-4 * torch.stack([rng.permutation(37) for _ in range(7)])  # x is the logits
    same_routing(mine(x), ref(x), 37, "logits 0.0003 apart")


@part(1)
def test_router_in_half_precision(submission, reference, rng):
    for dtype in (torch.bfloat16, torch.float16):
        mine, ref, x = routed(submission, reference, rng, 9, 11, 5, 2, dtype=dtype)
        same_routing(mine(x), ref(x), 5, f"{dtype} tokens")


@part(1)
def test_router_in_double_precision(submission, reference, rng):
    for d, n_experts, k in ((11, 5, 2), (71, 70, 3)):
        mine, ref, x = routed(submission, reference, rng, 9, d, n_experts, k, dtype=torch.float64)
        same_routing(mine(x), ref(x), n_experts, f"float64 tokens, {n_experts} experts")


@part(1)
def test_router_on_non_contiguous_tokens(submission, reference, rng):
    mine, ref, x = routed(submission, reference, rng, 10, 11, 5, 2)
    same_routing(mine(x.T.contiguous().T), ref(x), 5, "tokens stored column by column")


@part(1)
def test_router_has_one_matrix_and_no_bias(submission, reference, rng):
    names = submission.TopKRouter(7, 4, 2).parameter_names()[0]
    same(sorted(names), ["gate.weight"], says="the router's parameters by name")


@part(1)
def test_more_experts_per_token_than_experts_is_refused(submission, reference, rng):
    n_experts = rng.integers(2, 6)
    with raises(ValueError, says="k > n_experts"):
        submission.TopKRouter(8, n_experts, n_experts + 1)(rng.normal(4, 8))
    with raises(ValueError, says="two of one expert"):
        submission.TopKRouter(8, 1, 2)(rng.normal(4, 8))


@part(1)
def test_router_makes_no_tensor_on_another_device(submission, reference, rng):
    mine = submission.TopKRouter(11, 5, 2).to("meta")
    on_meta(lambda: mine(torch.empty(7, 11, device="meta")), "the router")


# -------------------------------------------------------------------------------------------------- part 2: loss


def random_probs(rng, n_tokens, n_experts, dtype=torch.float32):
    return torch.softmax(1.5 * rng.normal(n_tokens, n_experts, dtype=torch.float64), dim=-1).to(dtype)


@part(2)
def test_loss_of_arbitrary_routing(submission, reference, rng):
    for n_tokens, n_experts, k in ((13, 5, 2), (11, 7, 3), (6, 6, 2)):
        probs = random_probs(rng, n_tokens, n_experts)
        indices = crowd(rng, draw_choices(rng, n_tokens, n_experts, k), rng.integers(0, n_experts), n_tokens - 2)
        says = f"{n_tokens} tokens, {k} of {n_experts} experts"
        close(submission.load_balancing_loss(probs, indices), reference.load_balancing_loss(probs, indices), says=says)


@part(2)
def test_loss_of_the_worked_example(submission, reference, rng):
    probs = torch.tensor([[0.6, 0.3, 0.1], [0.5, 0.1, 0.4], [0.2, 0.5, 0.3], [0.7, 0.2, 0.1]])
    indices = torch.tensor([[0, 1], [0, 2], [1, 2], [0, 1]])
    order, names = rng.permutation(4), rng.permutation(3)
    probs, indices = probs[order][:, names.argsort()], names[indices[order]]
    close(submission.load_balancing_loss(probs, indices), torch.tensor(1.040625), says="the worked example")


@part(2)
def test_balanced_slots_give_one_however_many_experts_per_token(submission, reference, rng):
    n_experts = 5
    for k in (1, 2, 3):
        rounds = torch.stack([(rng.permutation(n_experts)[0] + torch.arange(n_experts)) % n_experts for _ in range(3)])
        indices = torch.stack([(rounds.flatten() + j) % n_experts for j in range(k)], dim=1)  # each expert 3k times
        probs = random_probs(rng, 15, n_experts)
        close(submission.load_balancing_loss(probs, indices), torch.tensor(1.0), says=f"balanced slots, k = {k}")


@part(2)
def test_collapse_onto_one_expert_gives_the_number_of_experts(submission, reference, rng):
    n_experts, n_tokens = rng.choice([4, 6, 7]), 9
    winner = rng.integers(0, n_experts)
    probs = torch.zeros(n_tokens, n_experts)
    probs[:, winner] = 1.0
    indices = torch.full((n_tokens, 1), winner)
    says = "all tokens certain of one expert"
    close(submission.load_balancing_loss(probs, indices), torch.tensor(float(n_experts)), says=says)


@part(2)
def test_loss_when_some_experts_were_never_chosen(submission, reference, rng):
    for unused in (0, 5, 2):
        used = torch.tensor([e for e in range(6) if e != unused])
        indices = used[crowd(rng, draw_choices(rng, 11, 5, 2), 1, 9)]
        probs = random_probs(rng, 11, 6)
        says = f"nobody chose expert {unused} of 6"
        close(submission.load_balancing_loss(probs, indices), reference.load_balancing_loss(probs, indices), says=says)


@part(2)
def test_loss_ignores_the_order_of_a_tokens_experts(submission, reference, rng):
    probs = random_probs(rng, 12, 5)
    indices = crowd(rng, draw_choices(rng, 12, 5, 3), rng.integers(0, 5), 10)
    expected = reference.load_balancing_loss(probs, indices)
    shuffled = torch.stack([row[rng.permutation(3)] for row in indices])
    close(submission.load_balancing_loss(probs, shuffled), expected, says="slots of a token in another order")


@part(2)
def test_loss_of_a_single_token(submission, reference, rng):
    for n_experts in (6, 70):
        probs, indices = random_probs(rng, 1, n_experts), draw_choices(rng, 1, n_experts, 2)
        mine = submission.load_balancing_loss(probs=probs, indices=indices)
        close(mine, reference.load_balancing_loss(probs, indices), says=f"N = 1, {n_experts} experts")


@part(2)
def test_gradient_goes_through_the_mean_probability(submission, reference, rng):
    for n_tokens, k, dtype in ((12, 2, torch.float32), (11, 1, torch.bfloat16), (9, 3, torch.float64), (1, 5, None)):
        probs = random_probs(rng, n_tokens, 5, dtype or torch.float32)
        indices = crowd(rng, draw_choices(rng, n_tokens, 5, k), rng.integers(0, 5), n_tokens - 2)
        both, says = [], f"{n_tokens} tokens, k = {k} of 5"
        for loss in (submission.load_balancing_loss, reference.load_balancing_loss):
            leaf = probs.clone().requires_grad_()
            pull(loss(leaf, indices), f"{says}: the balance loss")
            check(leaf.grad is not None, f"{says}: the balance loss reaches the probabilities")
            both.append(leaf.grad)
        close(both[0], both[1], says=f"{says}: gradient of the probabilities, E f_i / N", trivial_ok=k == 5)


@part(2)
def test_gradient_of_an_expert_that_is_never_probable(submission, reference, rng):
    probs = random_probs(rng, 12, 5)
    probs[:, rng.integers(0, 5)] = 0
    probs = probs / probs.sum(1, keepdim=True)
    indices = draw_choices(rng, 12, 5, 2)
    both = []
    for loss in (submission.load_balancing_loss, reference.load_balancing_loss):
        leaf = probs.clone().requires_grad_()
        pull(loss(leaf, indices), "the balance loss")
        both.append(leaf.grad)
    close(both[0], both[1], says="gradient where the mean probability of an expert is 0")


@part(2)
def test_loss_trains_the_gate(submission, reference, rng):
    mine, ref, x = routed(submission, reference, rng, 13, 11, 5, 2)
    pull(submission.load_balancing_loss(*mine(x)[:0:-1]), "the loss of the router's own choice")
    reference.load_balancing_loss(*ref(x)[:0:-1]).backward()
    same_gradients(mine, ref, "from the balance loss")


@part(2)
def test_loss_keeps_the_dtype_of_the_probabilities(submission, reference, rng):
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        probs = random_probs(rng, 14, 5, dtype)
        indices = crowd(rng, draw_choices(rng, 14, 5, 2), rng.integers(0, 5), 12)
        expected = reference.load_balancing_loss(probs.double(), indices).to(dtype)
        close(submission.load_balancing_loss(probs, indices), expected, says=f"{dtype} probabilities")


@part(2)
def test_loss_counts_beyond_256_in_half_precision(submission, reference, rng):
    n_tokens = 1200 + rng.integers(0, 50)
    probs = rng.uniform(0.5, 1.0, n_tokens, 3)
    probs[:, 0] += 1.0
    probs = (probs / probs.sum(-1, keepdim=True)).to(torch.bfloat16)
    indices = torch.where(rng.uniform(0.0, 1.0, n_tokens, 1) < 0.8, 0, 1 + rng.integers(0, 2, n_tokens, 1))
    close(
        submission.load_balancing_loss(probs, indices),
        reference.load_balancing_loss(probs, indices),
        says=f"{n_tokens} tokens in bfloat16, most of them on one expert: counts are exact",
    )


@part(2)
def test_loss_of_non_contiguous_arguments(submission, reference, rng):
    probs = random_probs(rng, 12, 5)
    indices = crowd(rng, draw_choices(rng, 12, 5, 3), rng.integers(0, 5), 10)
    expected = reference.load_balancing_loss(probs, indices)
    columns = (probs.T.contiguous().T, indices.T.contiguous().T)
    close(submission.load_balancing_loss(*columns), expected, says="arguments stored column by column")


@part(2)
def test_loss_makes_no_tensor_on_another_device(submission, reference, rng):
    probs, indices = torch.empty(7, 5, device="meta"), torch.empty(7, 2, dtype=torch.long, device="meta")
    on_meta(lambda: submission.load_balancing_loss(probs, indices), "the balance loss")


# ------------------------------------------------------------------------------------------------- part 3: layer


def same_result(got, expected, says):
    close(got[0], expected[0], says=f"{says}: y")
    close(got[1], expected[1], says=f"{says}: aux")


@part(3)
def test_expert_is_a_silu_mlp(submission, reference, rng):
    mine, ref = pair(submission.Expert, reference.Expert, 7, 10)
    for x in (rng.normal(5, 7), rng.normal(2, 3, 7), rng.normal(7), 30 * rng.normal(4, 7), 3000 * rng.normal(4, 7)):
        close(mine(x), ref(x), says="w2(silu(w1(x)))")


@part(3)
def test_expert_gradients(submission, reference, rng):
    mine, ref = pair(submission.Expert, reference.Expert, d_model=7, d_ff=10)
    x, direction = rng.normal(6, 7), rng.normal(6, 7)
    both = []
    for expert in (mine, ref):
        leaf = x.clone().requires_grad_()
        pull((expert(leaf) * direction).sum(), "an expert's output")
        check(leaf.grad is not None, "an expert's output reaches its input")
        both.append(leaf.grad)
    close(both[0], both[1], says="gradient of the expert's input")
    same_gradients(mine, ref, "an expert")


@part(3)
def test_layer_output_and_loss(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    same_result(mine(x), ref(x), "two of five experts")


@part(3)
def test_layer_output_with_three_of_seven_experts(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, shape=(3, 4), sizes=(13, 5), n_experts=7, k=3)
    same_result(mine(x), ref(x), "three of seven experts")


@part(3)
def test_a_layer_of_one_expert(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, n_experts=1, k=1)
    y, aux = mine(x)
    close(y, ref(x)[0], says="one expert sees every token, with weight 1")
    close(aux, torch.tensor(1.0), says="one expert: the balance loss is 1", trivial_ok=True)
    same_usage(mine, ref, "one expert: usage")


@part(3)
def test_a_layer_of_many_experts(submission, reference, rng):
    mine, ref = pair(submission.MoELayer, reference.MoELayer, d_model=41, d_ff=3, n_experts=37, k=2)
    choices = draw_choices(rng, 30, 37, 2)
    choices[:6, 0] = 36  # the last one too
    choices[:6, 1] %= 36
    x = tokens_for(rng, ref.router.gate, logits_for(rng, choices, 37)).view(2, 15, 41)
    same_result(mine(x), ref(x), "37 experts")
    same_usage(mine, ref, "37 experts: usage")


@part(3)
def test_two_experts_per_token_is_the_default(submission, reference, rng):
    mine, ref = pair(submission.MoELayer, reference.MoELayer, 9, 5, 4)
    x = tokens_for(rng, ref.router.gate, logits_for(rng, draw_choices(rng, 10, 4, 2), 4)).view(2, 5, 9)
    same_result(mine(x), ref(x), "k left out")


@part(3)
def test_one_expert_per_token_is_not_scaled(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, k=1)
    same_result(mine(x), ref(x), "k = 1")


@part(3)
def test_an_expert_with_little_weight_is_run_as_well(submission, reference, rng):
    mine, ref = pair(submission.MoELayer, reference.MoELayer, 11, 6, 5, k=3)
    choices = draw_choices(rng, 14, 5, 3)
    x = tokens_for(rng, ref.router.gate, logits_for(rng, choices, 5, step=2.5)).view(2, 7, 11)
    for says in ("third choices that weigh less than a hundredth", "third choices of little weight, in eval mode"):
        same_result(mine(x), ref(x), says)
        same_usage(mine, ref, says)
        mine.eval()


@part(3)
def test_all_experts_chosen_is_the_dense_weighted_sum(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, n_experts=4, k=4)
    flat, direction = x.reshape(-1, 11), rng.normal(*x.shape)
    y, aux = mine(x)
    probs = torch.softmax(ref.router.gate(flat), dim=-1)
    outputs = torch.stack([expert(flat) for expert in ref.experts], dim=1)  # (N, E, d)
    close(y, (probs[..., None] * outputs).sum(dim=1).view_as(x), says="k = E: the probability-weighted sum of experts")
    close(aux, torch.tensor(1.0), says="k = E: every expert is used alike")
    for layer in (mine, ref):
        pull((layer(x)[0] * direction).sum(), "k = E: y")
    same_gradients(mine, ref, "k = E: from y")
    same_usage(mine, ref, "k = E: usage")


@part(3)
def test_layer_on_a_single_token(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, shape=(1, 1))
    same_result(mine(x), ref(x), "one token")
    same_usage(mine, ref, "one token uses k experts once")
    direction = rng.normal(1, 1, 11)
    for layer in (mine, ref):
        y, aux = layer(x)
        pull((y * direction).sum() + 3 * aux, "y and aux of one token")
    same_gradients(mine, ref, "from y and aux of one token")


@part(3)
def test_a_batch_of_thousands_of_tokens(submission, reference, rng):
    mine, ref = pair(submission.MoELayer, reference.MoELayer, 5, 3, 2)  # k = E: no choice that noise could flip
    x = rng.normal(3, 700, 5)
    close(mine(x)[0], ref(x)[0], says="2100 tokens: y")
    same_usage(mine, ref, "2100 tokens: usage")


@part(3)
def test_one_sequence_and_many_sequences_of_one_token(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, shape=(1, 9))
    same_result(mine(x), ref(x), "one sequence")
    column = x.transpose(0, 1)  # (9, 1, d)
    same_result(mine(column), ref(column), "nine sequences of one token")


@part(3)
def test_experts_that_nobody_chose(submission, reference, rng):
    for unused in ((0,), (2,), (4,), (0, 1), (1, 2)):
        used = torch.tensor([e for e in range(5) if e not in unused])
        choices = used[draw_choices(rng, 8, len(used), 2)]
        mine, ref, x = build(submission, reference, rng, shape=(2, 4), choices=choices)
        says = f"nobody chose {' and '.join(map(str, unused))} of 5 experts"
        same_result(mine(x), ref(x), says)
        same_usage(mine, ref, says)


@part(3)
def test_every_token_on_the_same_experts(submission, reference, rng):
    choices = rng.permutation(5)[:2].expand(14, 2).contiguous()
    mine, ref, x = build(submission, reference, rng, choices=choices)
    same_result(mine(x), ref(x), "all tokens choose the same two experts, and none is dropped")
    same_usage(mine, ref, "all tokens choose the same two experts")


@part(3)
def test_usage_counts_tokens_per_expert(submission, reference, rng):
    choices = crowd(rng, draw_choices(rng, 14, 5, 2), rng.integers(0, 5), 11)
    mine, ref, x = build(submission, reference, rng, choices=choices)
    mine(x), ref(x)
    counts = torch.bincount(choices.flatten(), minlength=5).double()
    close(usage_of(mine), counts, says="tokens each expert processed", trivial_ok=True)


@part(3)
def test_nothing_is_kept_from_one_call_to_the_next(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    short = x[:1, :3].clone()
    for says, tokens in (("first call", x), ("a shorter call", short), ("the first call again", x)):
        same_result(mine(tokens), ref(tokens), says)
        same_usage(mine, ref, f"usage of {says}, and of no other")


@part(3)
def test_parameters_stay_as_they_were(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    mine(x)
    after = mine.state_dict()
    for name, parameter in ref.named_parameters():
        close(after[name], parameter, says=f"{name} after a forward", trivial_ok=True)


@part(3)
def test_gradients_of_the_output(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    direction = rng.normal(*x.shape)
    both = []
    for layer in (mine, ref):
        leaf = x.clone().requires_grad_()
        pull((layer(leaf)[0] * direction).sum(), "a loss on y")
        check(leaf.grad is not None, "a loss on y reaches x")
        both.append(leaf.grad)
    close(both[0], both[1], says="gradient of x from y")
    same_gradients(mine, ref, "from y")


@part(3)
def test_gradients_of_the_loss(submission, reference, rng):
    choices = crowd(rng, draw_choices(rng, 14, 5, 2), rng.integers(0, 5), 11)
    mine, ref, x = build(submission, reference, rng, choices=choices)
    both = []
    for layer in (mine, ref):
        leaf = x.clone().requires_grad_()
        pull(layer(leaf)[1], "aux")
        check(leaf.grad is not None, "aux reaches x")
        both.append(leaf.grad)
    close(both[0], both[1], says="gradient of x from aux")
    same_gradients(mine, ref, "from aux")


@part(3)
def test_gradients_of_output_and_loss_together(submission, reference, rng):
    choices = crowd(rng, draw_choices(rng, 10, 4, 1), rng.integers(0, 4), 7)
    mine, ref, x = build(submission, reference, rng, shape=(2, 5), n_experts=4, k=1, choices=choices)
    direction = rng.normal(*x.shape)
    for layer in (mine, ref):
        y, aux = layer(x)
        pull((y * direction).sum() + 3 * aux, "y and aux together, k = 1")
    same_gradients(mine, ref, "from y and aux, k = 1")


@part(3)
def test_layer_in_eval_mode(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    mine.eval()
    same_result(mine(x), ref(x), "in eval mode")
    same_usage(mine, ref, "usage in eval mode")
    direction = rng.normal(*x.shape)
    leaves = []
    for layer in (mine, ref):
        leaves.append(x.clone().requires_grad_())
        pull((layer(leaves[-1])[0] * direction).sum(), "y in eval mode")
    check(leaves[0].grad is not None, "y reaches x in eval mode")
    close(leaves[0].grad, leaves[1].grad, says="gradient of x from y in eval mode")
    same_gradients(mine, ref, "from y in eval mode")
    for layer in (mine, ref):
        pull(layer(x)[1], "aux in eval mode")
    same_gradients(mine, ref, "from y and aux in eval mode")


@part(3)
def test_gradients_of_two_calls_together(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    directions = rng.normal(2, *x.shape)
    for layer in (mine, ref):
        results = [layer(x)[0], layer(x.flip(0))[0]]  # both before any backward, as in a siamese loss
        pull(sum((y * w).sum() for y, w in zip(results, directions, strict=True)), "y of two calls together")
    same_gradients(mine, ref, "from y of two calls together")


@part(3)
def test_layer_without_gradients(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    with torch.no_grad():
        same_result(mine(x), ref(x), "under no_grad")
        same_usage(mine, ref, "usage under no_grad")
        other = x.flip(1)
        same_result(mine(other), ref(other), "under no_grad, after other tokens")
        mine.eval()
        same_result(mine(x), ref(x), "in eval mode under no_grad")
        rolled = {name: tensor.roll(1, 0) for name, tensor in ref.state_dict().items()}  # the same gaps, other experts
        mine.load_state_dict(rolled), ref.load_state_dict(rolled)
        same_result(mine(x), ref(x), "under no_grad, all weights loaded anew")


@part(3)
def test_layer_in_other_dtypes(submission, reference, rng):
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        mine, ref, x = build(submission, reference, rng, dtype=dtype)
        same_result(mine(x), ref(x), f"a {dtype} layer")


@part(3)
def test_layer_on_non_contiguous_tokens(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    stored_otherwise = x.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    same_result(mine(stored_otherwise), ref(x), "x stored channels first")


@part(3)
def test_layer_refuses_a_batch_without_tokens(submission, reference, rng):
    for shape in ((2, 0, 7), (0, 3, 7)):
        layer = submission.MoELayer(7, 5, 4)
        with raises(ValueError, says=f"a forward without tokens, x {shape}"):
            layer(torch.zeros(shape))


@part(3)
def test_layer_refuses_more_experts_per_token_than_experts(submission, reference, rng):
    with raises(ValueError, says="k > n_experts"):
        submission.MoELayer(7, 5, 3, k=4)(rng.normal(1, 3, 7))


@part(3)
def test_layer_makes_no_tensor_on_another_device(submission, reference, rng):
    layer = submission.MoELayer(7, 5, 4).to("meta")
    on_meta(lambda: layer(torch.empty(2, 3, 7, device="meta")), "the layer")


# ---------------------------------------------------------------------------------- part 4: capacity and shared


def contested_layer(submission, reference, rng, B, T, factor, n_popular, dtype=None, **options):
    """A layer of four experts, k = 2, whose capacity binds, and tokens for which the order of dropping matters.

    Four experts and dyadic factors make factor * N * k / E exact in any order of evaluation.
    """
    capacity = math.ceil(factor * B * T * 2 / 4)
    choices, logits = contested(rng, B, T, 4, 2, capacity, n_popular)
    mine, ref = pair(
        submission.MoELayer, reference.MoELayer, 9, 6, 4, k=2, capacity_factor=factor, dtype=dtype, **options
    )
    x = tokens_for(rng, ref.router.gate, logits, dtype or torch.float32).view(B, T, 9)
    return mine, ref, x, choices, capacity


@part(4)
def test_first_tokens_in_order_are_kept(submission, reference, rng):
    mine, ref, x, _, _ = contested_layer(submission, reference, rng, 3, 5, 0.5, 11)
    close(mine(x)[0], ref(x)[0], says="capacity 4 for 15 tokens: y")


@part(4)
def test_capacity_that_is_not_a_whole_number_is_rounded_up(submission, reference, rng):
    mine, ref, x, _, _ = contested_layer(submission, reference, rng, 3, 7, 0.75, 16)  # 7.875
    close(mine(x)[0], ref(x)[0], says="ceil(0.75 * 21 * 2 / 4) tokens: y")
    same_usage(mine, ref, "ceil(0.75 * 21 * 2 / 4) tokens: usage")


@part(4)
def test_a_small_fraction_of_a_token_is_rounded_up_too(submission, reference, rng):
    mine, ref, x, _, _ = contested_layer(submission, reference, rng, 3, 7, 0.5, 15)  # 5.25
    close(mine(x)[0], ref(x)[0], says="ceil(0.5 * 21 * 2 / 4) tokens: y")
    same_usage(mine, ref, "ceil(0.5 * 21 * 2 / 4) tokens: usage")


@part(4)
def test_capacity_that_is_a_whole_number_stays_as_it_is(submission, reference, rng):
    mine, ref, x, _, _ = contested_layer(submission, reference, rng, 3, 4, 0.5, 9)  # 3 exactly
    close(mine(x)[0], ref(x)[0], says="0.5 * 12 * 2 / 4 = 3 tokens: y")
    same_usage(mine, ref, "0.5 * 12 * 2 / 4 = 3 tokens: usage")


@part(4)
def test_an_even_whole_number_stays_as_it_is(submission, reference, rng):
    mine, ref, x, _, _ = contested_layer(submission, reference, rng, 4, 4, 0.5, 11)  # 4 exactly
    close(mine(x)[0], ref(x)[0], says="0.5 * 16 * 2 / 4 = 4 tokens: y")
    same_usage(mine, ref, "0.5 * 16 * 2 / 4 = 4 tokens: usage")


@part(4)
def test_capacity_below_one_token_is_one_token(submission, reference, rng):
    choices = crowd(rng, draw_choices(rng, 6, 4, 2), rng.integers(0, 4), 4)
    mine, ref, x = build(submission, reference, rng, shape=(2, 3), n_experts=4, choices=choices, capacity_factor=0.125)
    close(mine(x)[0], ref(x)[0], says="ceil(0.125 * 6 * 2 / 4) = 1 token per expert: y")
    same_usage(mine, ref, "ceil(0.125 * 6 * 2 / 4) = 1 token per expert: usage")


@part(4)
def test_a_quarter_of_a_token_is_rounded_up_too(submission, reference, rng):
    mine, ref, x, _, _ = contested_layer(submission, reference, rng, 3, 4, 0.375, 9)  # 2.25
    close(mine(x)[0], ref(x)[0], says="ceil(0.375 * 12 * 2 / 4) tokens: y")
    same_usage(mine, ref, "ceil(0.375 * 12 * 2 / 4) tokens: usage")


@part(4)
def test_capacity_under_a_factor_above_one(submission, reference, rng):
    choices = rng.permutation(4)[:2].expand(5, 2).contiguous()
    mine, ref, x = build(submission, reference, rng, shape=(1, 5), n_experts=4, choices=choices, capacity_factor=1.5)
    close(mine(x)[0], ref(x)[0], says="ceil(1.5 * 5 * 2 / 4) = 4 tokens: y")
    same_usage(mine, ref, "ceil(1.5 * 5 * 2 / 4) = 4 tokens: usage")
    choices = rng.permutation(8)[:2].expand(12, 2).contiguous()
    mine, ref, x = build(submission, reference, rng, shape=(2, 6), n_experts=8, choices=choices, capacity_factor=2)
    close(mine(x)[0], ref(x)[0], says="2 * 12 * 2 / 8 = 6 tokens: y")
    same_usage(mine, ref, "2 * 12 * 2 / 8 = 6 tokens: usage")


@part(4)
def test_capacity_of_several_hundred_tokens_in_half_precision(submission, reference, rng):
    choices = crowd(rng, draw_choices(rng, 646, 4, 2), rng.integers(0, 4), 600)
    mine, ref = pair(submission.MoELayer, reference.MoELayer, 9, 5, 4, 2, 0, 1.0, dtype=torch.bfloat16)
    x = tokens_for(rng, ref.router.gate, logits_for(rng, choices, 4), torch.bfloat16).view(2, 323, 9)
    (y, aux), (expected, ref_aux) = mine(x), ref(x)
    close(y, expected, says="capacity 323 for 646 tokens in bfloat16: places are counted exactly", tol=0.15)
    close(aux, ref_aux, says="aux of 646 tokens in bfloat16")
    same_usage(mine, ref, "capacity 323 for 646 tokens in bfloat16: usage")


@part(4)
def test_usage_counts_what_was_processed(submission, reference, rng):
    mine, _, x, choices, capacity = contested_layer(submission, reference, rng, 3, 5, 0.75, 12)
    mine(x)
    processed = torch.bincount(choices.flatten(), minlength=4).clamp(max=capacity).double()
    close(usage_of(mine), processed, says="tokens processed after dropping", trivial_ok=True)


@part(4)
def test_loss_does_not_see_the_dropping(submission, reference, rng):
    mine, ref, x, _, _ = contested_layer(submission, reference, rng, 3, 5, 0.5, 12)
    close(mine(x)[1], ref(x)[1], says="aux of the router's choice before dropping")


@part(4)
def test_a_token_dropped_everywhere_gets_zero(submission, reference, rng):
    mine, _, x, choices, capacity = contested_layer(submission, reference, rng, 3, 5, 0.5, 11)
    lost = ~kept_slots(choices, capacity).any(dim=1)
    y = mine(x)[0].reshape(15, 9)
    close(y[lost], torch.zeros(int(lost.sum()), 9), says="tokens that lost all their slots", trivial_ok=True)


@part(4)
def test_a_token_that_lost_one_slot_keeps_the_other_as_it_was(submission, reference, rng):
    mine, ref, x, choices, capacity = contested_layer(submission, reference, rng, 3, 5, 0.5, 11)
    kept = kept_slots(choices, capacity)
    half = kept.any(dim=1) & ~kept.all(dim=1)
    says = "tokens that lost one of two slots"
    close(mine(x)[0].reshape(15, 9)[half], ref(x)[0].reshape(15, 9)[half], says=says)


@part(4)
def test_capacity_with_one_expert_per_token(submission, reference, rng):
    for n_experts in (4, 1):
        choices = torch.full((12, 1), rng.integers(0, n_experts))
        options = {"n_experts": n_experts, "k": 1, "choices": choices, "capacity_factor": 0.3125 * n_experts}
        mine, ref, x = build(submission, reference, rng, shape=(3, 4), **options)
        y, expected = mine(x)[0].reshape(12, 11), ref(x)[0]
        says = f"all on one of {n_experts}, capacity 4"
        same_usage(mine, ref, f"{says}: usage")
        close(y[:4], expected.reshape(12, 11)[:4], says=f"{says}: the first four tokens")
        close(y[4:], torch.zeros(8, 11), says=f"{says}: the rest is dropped", trivial_ok=True)


@part(4)
def test_capacity_larger_than_the_batch_drops_nothing(submission, reference, rng):
    choices = rng.permutation(4)[:2].expand(10, 2).contiguous()
    mine, ref, x = build(submission, reference, rng, shape=(2, 5), n_experts=4, choices=choices, capacity_factor=4.0)
    same_result(mine(x), ref(x), "capacity 20 for 10 tokens")
    same_usage(mine, ref, "capacity 20 for 10 tokens")


@part(4)
def test_capacity_follows_the_number_of_tokens_of_each_call(submission, reference, rng):
    mine, ref, x, _, _ = contested_layer(submission, reference, rng, 3, 5, 0.5, 12)
    for says, tokens in (("15 tokens", x), ("5 tokens", x[:1]), ("6 tokens", x[:, :2]), ("15 tokens again", x)):
        same_result(mine(tokens), ref(tokens), says)
        same_usage(mine, ref, f"usage of {says}")


@part(4)
def test_capacity_holds_in_eval_mode(submission, reference, rng):
    mine, ref, x, _, _ = contested_layer(submission, reference, rng, 3, 5, 0.5, 11)
    mine.eval()
    same_result(mine(x), ref(x), "in eval mode")


@part(4)
def test_capacity_of_single_tokens_and_without_gradients(submission, reference, rng):
    mine, ref, x, _, _ = contested_layer(submission, reference, rng, 3, 5, 0.5, 12, n_shared=3)
    column = x.reshape(15, 1, 9)
    same_result(mine(column), ref(column), "15 sequences of one token")
    same_usage(mine, ref, "15 sequences of one token: usage")
    mine.eval()
    with torch.no_grad():
        same_result(mine(x), ref(x), "three shared experts and a capacity, in eval mode under no_grad")
        same_usage(mine, ref, "in eval mode under no_grad: usage")


@part(4)
def test_gradients_with_dropped_slots(submission, reference, rng):
    mine, ref, x, _, _ = contested_layer(submission, reference, rng, 3, 5, 0.5, 11, n_shared=1)
    direction = rng.normal(*x.shape)
    both = []
    for layer in (mine, ref):
        leaf = x.clone().requires_grad_()
        y, aux = layer(leaf)
        pull((y * direction).sum() + 2 * aux, "y and aux with dropped slots")
        both.append(leaf.grad)
    check(both[0] is not None, "a loss reaches x")
    close(both[0], both[1], says="gradient of x with dropped slots")
    same_gradients(mine, ref, "with dropped slots")


@part(4)
def test_one_shared_expert(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, n_shared=1)
    same_result(mine(x), ref(x), "one shared expert")
    same_usage(mine, ref, "shared experts are not counted")
    for says in ("one shared expert, one token", "one shared expert, one token in eval mode"):
        same_result(mine(x[1:, 2:3]), ref(x[1:, 2:3]), says)
        mine.eval()


@part(4)
def test_several_shared_experts_are_added(submission, reference, rng):
    mine, ref = pair(submission.MoELayer, reference.MoELayer, 11, 6, 5, 3, 4)
    x = tokens_for(rng, ref.router.gate, logits_for(rng, draw_choices(rng, 14, 5, 3), 5)).view(2, 7, 11)
    same_result(mine(x), ref(x), "four shared experts")


@part(4)
def test_shared_experts_see_dropped_tokens_too(submission, reference, rng):
    mine, ref, x, _, _ = contested_layer(submission, reference, rng, 3, 5, 0.5, 12, n_shared=3)  # not k
    same_result(mine(x), ref(x), "three shared experts and a capacity")


@part(4)
def test_gradients_of_shared_experts(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, n_shared=3)
    direction = rng.normal(*x.shape)
    for says in ("with shared experts", "with shared experts, and once more in eval mode"):
        both = []
        for layer in (mine, ref):
            leaf = x.clone().requires_grad_()
            pull((layer(leaf)[0] * direction).sum(), f"y {says}")
            both.append(leaf.grad)
        check(both[0] is not None, f"y {says} reaches x")
        close(both[0], both[1], says=f"gradient of x {says}")
        same_gradients(mine, ref, says)
        mine.eval()


@part(4)
def test_capacity_and_shared_experts_in_other_dtypes(submission, reference, rng):
    for dtype, n_shared in ((torch.float64, 4), (torch.bfloat16, 1)):
        mine, ref, x, _, _ = contested_layer(submission, reference, rng, 3, 5, 0.5, 12, dtype=dtype, n_shared=n_shared)
        same_result(mine(x), ref(x), f"a {dtype} layer")
        same_usage(mine, ref, f"usage of a {dtype} layer")
