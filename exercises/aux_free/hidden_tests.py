"""Hidden tests of `aux_free`.

Tokens are built from wanted scores, with gaps in score + bias that float noise cannot cross. The experts of a token may
come in any order: routing is compared as a dense (N, E) table of weights.
"""


def dense_weights(weights, indices, n_experts):
    empty = torch.zeros(weights.shape[0], n_experts, dtype=weights.dtype, device=weights.device)
    return empty.scatter_add(1, indices.long(), weights)


def draw_choices(rng, n_tokens, n_experts, k):
    return torch.stack([rng.permutation(n_experts)[:k] for _ in range(n_tokens)])


def tokens_for(rng, gate, logits, dtype=torch.float32):
    """(N, d) random tokens whose logits under the gate's weights are these (d > E)."""
    weight = plain(gate.weight).double()
    back = torch.linalg.pinv(weight)
    noise = rng.normal(logits.shape[0], weight.shape[1], dtype=torch.float64)
    return (noise - noise @ weight.T @ back.T + logits @ back.T).to(dtype)


def biased_scores(rng, n_tokens, n_experts, k, gap, strength=0.25):
    """(scores, bias): (N, E) and (E,), with a gap between the k-th and the next of score + bias in every row, while the
    bias changes the choice of most tokens."""
    while True:
        bias = strength * rng.uniform(-1.0, 1.0, n_experts, dtype=torch.float64)
        scores = rng.uniform(0.1, 0.9, 400, n_experts, dtype=torch.float64)
        ranked = (scores + bias).sort(dim=-1, descending=True).values
        clear = ranked[:, k - 1] - ranked[:, k] > gap if k < n_experts else torch.ones(400, dtype=torch.bool)
        with_bias = (scores + bias).topk(k).indices.sort().values
        moved = (with_bias != scores.topk(k).indices.sort().values).any(dim=-1)
        if k == n_experts:
            return scores[:n_tokens], bias
        half = n_tokens // 2
        if int((clear & moved).sum()) >= half and int((clear & ~moved).sum()) >= n_tokens - half:
            picked = torch.cat([scores[clear & moved][:half], scores[clear & ~moved][: n_tokens - half]])
            return picked[rng.permutation(n_tokens)], bias


def build(submission, reference, rng, n_tokens=12, d=11, n_experts=5, k=2, dtype=None, gap=0.03, strength=0.25):
    """(mine, ref, x): the same weights and the same bias, which changes half the choices."""
    args = (d, n_experts, k)
    mine, ref = pair(submission.BiasBalancedRouter, reference.BiasBalancedRouter, *args, dtype=dtype)
    scores, bias = biased_scores(rng, n_tokens, n_experts, k, gap, strength)
    set_bias(mine, ref, bias.to(dtype or torch.float32))
    return mine, ref, tokens_for(rng, ref.gate, torch.logit(scores), dtype or torch.float32)


def set_bias(mine, ref, bias):
    state = {name: tensor.clone() for name, tensor in ref.state_dict().items()}
    state["bias"] = bias.to(state["bias"].dtype)
    ref.load_state_dict(state)
    mine.load_state_dict(state)


def bias_of(router):
    bias = router.bias
    check(isinstance(bias, torch.Tensor), "bias is a tensor", seen=type(bias).__name__)
    return plain(bias)


def same_routing(got, expected, n_experts, says):
    (weights, indices, scores), (ref_weights, ref_indices, ref_scores) = got, expected
    check(not indices.is_floating_point(), f"{says}: indices are integers", seen=str(indices.dtype))
    check(indices.shape == ref_indices.shape, f"{says}: indices are (N, k)", seen=tuple(indices.shape))
    check(weights.shape == ref_weights.shape, f"{says}: weights are (N, k)", seen=tuple(weights.shape))
    check(weights.dtype == ref_weights.dtype, f"{says}: weights have x's dtype", seen=str(weights.dtype))
    in_range = bool(((indices >= 0) & (indices < n_experts)).all())
    check(in_range, f"{says}: indices are expert numbers from 0 to {n_experts - 1}", seen=in_range)
    same(indices.long().sort(dim=1).values, ref_indices.sort(dim=1).values, says=f"{says}: the chosen experts")
    mine, ref = dense_weights(weights, indices, n_experts), dense_weights(ref_weights, ref_indices, n_experts)
    close(mine, ref, says=f"{says}: each chosen expert's weight", trivial_ok=True)
    close(scores, ref_scores, says=f"{says}: scores")


def pull(loss, says):
    check(loss.requires_grad, f"{says}: the result carries a gradient")
    loss.backward()


def same_gradients(mine, ref, says):
    got = grads(mine)
    for name, parameter in ref.named_parameters():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        actual = torch.zeros_like(parameter) if got.get(name) is None else got[name]
        close(actual, expected, says=f"{says}: gradient of {name}", trivial_ok=True)


# ------------------------------------------------------------------------------------------------------- part 1


@part(1)
def test_routing_with_a_bias(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    same_routing(mine(x), ref(x), 5, "two of five experts under a bias")


@part(1)
def test_routing_of_three_of_seven_experts(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, n_tokens=15, d=19, n_experts=7, k=3, gap=0.02)
    same_routing(mine(x), ref(x), 7, "three of seven experts under a bias")


@part(1)
def test_routing_without_a_bias(submission, reference, rng):
    mine, ref = pair(submission.BiasBalancedRouter, reference.BiasBalancedRouter, 11, 5, 2)
    scores, _ = biased_scores(rng, 12, 5, 2, 0.03)
    order = scores.sort(dim=-1, descending=True).values
    scores = scores[order[:, 1] - order[:, 2] > 0.01]
    x = tokens_for(rng, ref.gate, torch.logit(scores))
    same_routing(mine(x), ref(x), 5, "a fresh router, whose bias is zero")


@part(1)
def test_bias_starts_at_zero(submission, reference, rng):
    n_experts = rng.integers(3, 8)
    bias = bias_of(submission.BiasBalancedRouter(6, n_experts, 2))
    close(
        bias.double(), torch.zeros(n_experts, dtype=torch.float64), says="the bias of a fresh router", trivial_ok=True
    )


@part(1)
def test_worked_example(submission, reference, rng):
    mine, ref = pair(submission.BiasBalancedRouter, reference.BiasBalancedRouter, 7, 3, 2)
    names = rng.permutation(3)
    scores, bias = torch.tensor([[0.6, 0.5, 0.4]]).double()[:, names], torch.tensor([0.0, 0.0, 0.3])[names]
    set_bias(mine, ref, bias)
    # Among other tokens: one alone may be routed in the same way by quite another rule.
    drawn = rng.uniform(0.1, 0.9, 200, 3, dtype=torch.float64)
    ranked = (drawn + bias).sort(dim=-1, descending=True).values
    drawn = drawn[ranked[:, 1] - ranked[:, 2] > 0.03][:11]
    x = tokens_for(rng, ref.gate, torch.logit(torch.cat([drawn, scores])))
    weights, indices, _ = mine(x)
    others = dense_weights(*ref(x)[:2], 3)[:-1]
    expected = torch.cat([others, torch.tensor([[0.6, 0.0, 0.4]])[:, names]])
    says = "twelve tokens, the last with scores 0.6, 0.5, 0.4, and a bias of 0.3 on the last expert"
    close(dense_weights(weights, indices, 3), expected, says=says)


@part(1)
def test_routing_when_every_bias_is_far_from_zero(submission, reference, rng):
    for shift in (-5.0, 5.0):
        mine, ref, x = build(submission, reference, rng)
        set_bias(mine, ref, ref.bias + shift)
        same_routing(mine(x), ref(x), 5, f"every bias around {shift:+.0f}")


@part(1)
def test_weights_of_a_token_sum_to_one(submission, reference, rng):
    mine, _, x = build(submission, reference, rng)
    close(mine(x)[0].sum(dim=-1), torch.ones(12), says="the weights of a token sum to 1", trivial_ok=True)


@part(1)
def test_one_expert_per_token(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, k=1)
    weights, indices, scores = mine(x)
    close(weights, torch.ones(12, 1), says="with k = 1 the weight is 1", trivial_ok=True)
    same(indices.long(), ref(x)[1], says="with k = 1 the expert with the largest score + bias")
    close(scores, ref(x)[2], says="with k = 1: scores")
    mine, ref, x = build(submission, reference, rng, k=1, dtype=torch.bfloat16, gap=0.06, strength=0.35)
    close(mine(x)[0], torch.ones(12, 1, dtype=torch.bfloat16), says="with k = 1, in bfloat16", trivial_ok=True)


@part(1)
def test_all_experts_chosen(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, n_experts=4, k=4)
    same_routing(mine(x), ref(x), 4, "k = E")
    with torch.no_grad():
        same_routing(mine(x), ref(x), 4, "k = E, without gradients")


@part(1)
def test_one_token(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    for n in range(3):
        same_routing(mine(x[n : n + 1]), ref(x[n : n + 1]), 5, "one token")
    many = x.repeat(60, 1)
    same_routing(mine(many), ref(many), 5, "720 tokens")


@part(1)
def test_small_scores_survive_a_large_bias(submission, reference, rng):
    mine, ref = pair(submission.BiasBalancedRouter, reference.BiasBalancedRouter, 13, 5, 2)
    favoured = rng.permutation(5)[:2]
    bias = rng.uniform(-0.6, 0.6, 5)
    bias[favoured] = torch.tensor([12.0, 11.0])
    set_bias(mine, ref, bias)
    logits = rng.uniform(-1.0, 1.0, 9, 5, dtype=torch.float64)
    for low, says in ((-17.0, "scores of 1e-7 under a bias of 12"), (-33.0, "scores of 1e-14 under a bias of 12")):
        logits[:, favoured] = rng.uniform(low, low + 2.0, 9, 2, dtype=torch.float64)
        x = tokens_for(rng, ref.gate, logits)
        same_routing(mine(x), ref(x), 5, says)


@part(1)
def test_biases_of_one_step_decide_between_equal_scores(submission, reference, rng):
    mine, ref = pair(submission.BiasBalancedRouter, reference.BiasBalancedRouter, 11, 7, 3)
    x = torch.zeros_like(rng.normal(2, 11))  # every score is 0.5
    for step in (1e-3, 1e-3, 1e-3, 1e-4, 1e-4, 1e-4):
        set_bias(mine, ref, rng.choice([0.4, -0.6]) + step * rng.permutation(7).double())
        chosen, expected = mine(x)[1].long().sort(dim=1).values, ref(x)[1].sort(dim=1).values
        same(chosen, expected, says=f"equal scores, and biases that differ by a step of {step:g}: the chosen experts")


@part(1)
def test_large_logits_stay_finite(submission, reference, rng):
    mine, ref = pair(submission.BiasBalancedRouter, reference.BiasBalancedRouter, 11, 5, 2)
    order = rng.permutation(5)
    bias = torch.empty(5).index_copy(0, order, 1.5 * torch.arange(5).flip(0).float())
    set_bias(mine, ref, bias)  # steps of 1.5: the bias alone decides, and the first two of `order` are chosen
    logits = rng.uniform(2.0, 4.0, 9, 5, dtype=torch.float64)
    logits[::2, order[2:]] *= -1
    logits[1::2, order[3]] *= -1
    x = tokens_for(rng, ref.gate, logits) * 100
    same_routing(mine(x), ref(x), 5, "logits of some hundreds")


@part(1)
def test_routing_in_eval_mode(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    mine.eval()
    same_routing(mine(x), ref(x), 5, "in eval mode the bias is used as well")


@part(1)
def test_routing_without_gradients_follows_the_weights(submission, reference, rng):
    with torch.no_grad():
        mine = submission.BiasBalancedRouter(11, 5, 2)
        for turn in ("first", "second", "first of eval mode", "second of eval mode"):
            mine.train("eval" not in turn)
            _, ref, x = build(submission, reference, rng)
            mine.load_state_dict({name: tensor.clone() for name, tensor in ref.state_dict().items()})
            same_routing(mine(x), ref(x), 5, f"without gradients, {turn} weights and bias")
            same_routing(mine(x), ref(x), 5, f"without gradients, {turn} weights and bias, called again")
        close(bias_of(mine), ref.bias, says="the bias after forwards without gradients")
        mine, ref, x = build(submission, reference, rng, dtype=torch.bfloat16, gap=0.06, strength=0.35)
        same_routing(mine(x), ref(x), 5, "without gradients, in bfloat16")


@part(1)
def test_forward_leaves_the_bias_alone(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    mine(x), mine(x)
    close(bias_of(mine), ref.bias, says="the bias after two forwards")
    same_routing(mine(x), ref(x), 5, "the third forward")
    mine(x.repeat(50, 1)), mine.eval()(x)
    close(bias_of(mine), ref.bias, says="the bias after forwards of 600 tokens and in eval mode")


@part(1)
def test_gradients_of_the_weights(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    direction = rng.normal(12, 5)
    both = []
    for router in (mine, ref):
        leaf = x.clone().requires_grad_()
        weights, indices, _ = router(leaf)
        pull((dense_weights(weights, indices, 5) * direction).sum(), "a loss on the weights")
        check(leaf.grad is not None, "a loss on the weights reaches the tokens")
        both.append(leaf.grad)
    close(both[0], both[1], says="gradient of the tokens from the weights")
    same_gradients(mine, ref, "from the weights")


@part(1)
def test_gradients_in_eval_mode(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    direction = rng.normal(12, 5)
    both = []
    for router in (mine.eval(), ref):
        leaf = x.clone().requires_grad_()
        weights, indices, scores = router(leaf)
        pull((dense_weights(weights, indices, 5) * direction).sum() + (scores * direction).sum(), "in eval mode")
        both.append(leaf.grad)
    close(both[0], both[1], says="in eval mode: gradient of the tokens")
    same_gradients(mine, ref, "in eval mode")


@part(1)
def test_gradients_of_the_scores(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    direction = rng.normal(12, 5)
    both = []
    for router in (mine, ref):
        leaf = x.clone().requires_grad_()
        pull((router(leaf)[2] * direction).sum(), "a loss on the scores")
        check(leaf.grad is not None, "a loss on the scores reaches the tokens")
        both.append(leaf.grad)
    close(both[0], both[1], says="gradient of the tokens from the scores")
    same_gradients(mine, ref, "from the scores")


@part(1)
def test_gradients_of_other_sizes_and_dtypes(submission, reference, rng):
    narrow = (torch.bfloat16, torch.float16)
    cases = [(12, 4, 4, torch.float32), (12, 5, 1, torch.float32), (1, 5, 3, torch.float64)]
    for n_tokens, n_experts, k, dtype in cases + [(12, 5, 2, dtype) for dtype in narrow]:
        gap, strength = (0.06, 0.35) if dtype in narrow else (0.03, 0.25)
        sizes = dict(n_tokens=n_tokens, n_experts=n_experts, k=k, dtype=dtype, gap=gap, strength=strength)
        mine, ref, x = build(submission, reference, rng, **sizes)
        along, across = rng.normal(n_tokens, n_experts, dtype=dtype), rng.normal(n_tokens, n_experts, dtype=dtype)
        says, both = f"{n_tokens} tokens, {k} of {n_experts} experts, {dtype}", []
        for router in (mine, ref):
            leaf = x.clone().requires_grad_()
            weights, indices, scores = router(leaf)
            pull((dense_weights(weights, indices, n_experts) * along).sum() + (scores * across).sum(), says)
            check(leaf.grad is not None, f"{says}: a gradient reaches the tokens")
            both.append(leaf.grad)
        close(both[0], both[1], says=f"{says}: gradient of the tokens", tol=0.1 if dtype in narrow else 1e-4)


@part(1)
def test_bias_is_a_buffer_and_the_gate_has_none(submission, reference, rng):
    mine = submission.BiasBalancedRouter(7, 4, 2)
    parameters, buffers = mine.parameter_names()
    same(sorted(parameters), ["gate.weight"], says="the parameters: the gate's matrix, and no bias")
    check("bias" in buffers, "`bias` is a buffer", seen=str(sorted(buffers)))
    check("bias" in mine.state_dict(), "`bias` is saved with the state dict", seen=str(sorted(mine.state_dict())))


@part(1)
def test_bias_moves_with_the_module(submission, reference, rng):
    mine = submission.BiasBalancedRouter(7, 4, 2).to(torch.float64)
    check(mine.bias.dtype == torch.float64, "`.to(float64)` reaches the bias", seen=str(mine.bias.dtype))


@part(1)
def test_routing_in_other_dtypes(submission, reference, rng):
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        mine, ref, x = build(submission, reference, rng, dtype=dtype, gap=0.06, strength=0.35)
        same_routing(mine(x), ref(x), 5, f"a {dtype} router")


@part(1)
def test_non_contiguous_tokens(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    same_routing(mine(x.T.contiguous().T), ref(x), 5, "tokens stored column by column")


@part(1)
def test_more_experts_per_token_than_experts_is_refused(submission, reference, rng):
    n_experts = rng.integers(2, 6)
    with raises(ValueError, says="k > n_experts"):
        submission.BiasBalancedRouter(8, n_experts, n_experts + 1)(rng.normal(4, 8))


@part(1)
def test_router_makes_no_tensor_on_another_device(submission, reference, rng):
    mine = submission.BiasBalancedRouter(7, 5, 2).to("meta")
    on_meta(lambda: mine(torch.empty(6, 7, device="meta")), "the router")


# ------------------------------------------------------------------------------------------------------- part 2


def updated(submission, reference, rng, indices, n_experts, k, step=None, dtype=None, calls=1):
    """(mine, ref) biases after update_bias, from the same random bias."""
    options = {} if step is None else {"bias_step": step}
    args = (9, n_experts, k)
    mine, ref = pair(submission.BiasBalancedRouter, reference.BiasBalancedRouter, *args, dtype=dtype, **options)
    set_bias(mine, ref, 0.01 * rng.normal(n_experts))
    for _ in range(calls):
        mine.update_bias(indices), ref.update_bias(indices)
    return bias_of(mine), plain(ref.bias)


def loads_of(rng, loads, k):
    """Indices (N, k), N * k = sum of loads, under which expert i is given loads[i] slots, in random order."""
    slots = torch.tensor([expert for expert, load in enumerate(loads) for _ in range(load)])
    return slots[rng.permutation(len(slots))].view(-1, k)


@part(2)
def test_busy_falls_idle_rises(submission, reference, rng):
    for step in (0.000025, 0.05, 0.3):
        indices = loads_of(rng, [9, 1, 6, 2, 2], 2)  # mean 4
        mine, ref = updated(submission, reference, rng, indices, 5, 2, step)
        close(mine, ref, says=f"loads 9, 1, 6, 2, 2 of mean 4, step {step}")
        stored = indices.t().contiguous().t()
        mine, ref = updated(submission, reference, rng, stored, 5, 2, step)
        close(mine, ref, says=f"indices stored column by column, step {step}")
    mine, ref = updated(submission, reference, rng, indices, 5, 2, 0.0)
    close(mine, ref, says="a step of 0")


@part(2)
def test_load_equal_to_the_mean_stays(submission, reference, rng):
    indices = loads_of(rng, [5, 3, 7, 5, 5], 5)  # mean 5
    mine, ref = updated(submission, reference, rng, indices, 5, 5, 0.2)
    close(mine, ref, says="loads 5, 3, 7, 5, 5 of mean 5: three experts stay")


@part(2)
def test_balance_changes_nothing(submission, reference, rng):
    mine, ref = updated(submission, reference, rng, loads_of(rng, [2, 6, 4, 3, 5], 2), 5, 2, 0.2)
    close(mine, ref, says="loads 2, 6, 4, 3, 5 of mean 4")
    mine, ref = updated(submission, reference, rng, loads_of(rng, [4, 4, 4, 4, 4], 2), 5, 2, 0.2)
    close(mine, ref, says="equal loads")
    for n_experts, load in ((1, 3), (41, 1), (47, 3), (49, 1), (55, 7)):  # n * (1 / n) is not 1 in float32
        mine, ref = updated(submission, reference, rng, loads_of(rng, [load] * n_experts, 1), n_experts, 1, 0.2)
        close(mine, ref, says=f"{n_experts} experts of load {load}")


@part(2)
def test_mean_that_is_not_a_whole_number(submission, reference, rng):
    indices = loads_of(rng, [4, 4, 5, 4, 5, 4, 2], 2)  # mean 4
    mine, ref = updated(submission, reference, rng, indices, 7, 2, 0.2)
    close(mine, ref, says="loads 4, 4, 5, 4, 5, 4, 2 of mean 4")
    indices = loads_of(rng, [4, 4, 5, 4, 5, 4, 4], 3)  # mean 30 / 7 = 4.29
    mine, ref = updated(submission, reference, rng, indices, 7, 3, 0.2)
    close(mine, ref, says="loads 4, 4, 5, 4, 5, 4, 4 of mean 4.29")


@part(2)
def test_loads_just_below_the_mean_rise(submission, reference, rng):
    indices = loads_of(rng, [3, 5, 2, 3, 5], 2)  # mean 3.6
    mine, ref = updated(submission, reference, rng, indices, 5, 2, 0.2)
    close(mine, ref, says="loads 3, 5, 2, 3, 5 of mean 3.6")


@part(2)
def test_large_loads_are_counted_exactly(submission, reference, rng):
    loads = torch.tensor([2601, 2599, 2600, 2603, 2597])[rng.permutation(5)].tolist()
    for dtype in (torch.float32, torch.bfloat16):
        mine, ref = updated(submission, reference, rng, loads_of(rng, loads, 1), 5, 1, 0.25, dtype=dtype)
        close(mine, ref, says=f"loads {', '.join(map(str, loads))} of mean 2600, {dtype} bias")
    busy = torch.full((40000, 1), rng.integers(0, 5))
    mine, ref = updated(submission, reference, rng, torch.cat([busy, loads_of(rng, [9, 1, 6, 2, 2], 1)]), 5, 1, 0.25)
    close(mine, ref, says="one expert with 40,000 slots")
    loads = torch.tensor([520, 250, 302, 0, 178])[rng.permutation(5)].tolist()
    mine, ref = updated(submission, reference, rng, loads_of(rng, loads, 2), 5, 2, 0.2)
    close(mine, ref, says=f"loads {', '.join(map(str, loads))} of mean 250")


@part(2)
def test_routers_have_a_bias_each(submission, reference, rng):
    one, other = submission.BiasBalancedRouter(9, 4, 2), submission.BiasBalancedRouter(9, 4, 2)
    one.update_bias(loads_of(rng, [7, 1, 8, 4], 2))
    close(bias_of(other), torch.zeros(4), says="the bias of a router while another is updated", trivial_ok=True)


@part(2)
def test_experts_without_a_slot_rise(submission, reference, rng):
    for unused in ((0,), (5,), (4, 5)):
        loads = [0 if expert in unused else rng.integers(1, 9) for expert in range(6)]
        loads[2] += sum(loads) % 2
        mine, ref = updated(submission, reference, rng, loads_of(rng, loads, 2), 6, 2, 0.2)
        close(mine, ref, says=f"nobody chose {' and '.join(map(str, unused))} of 6 experts")


@part(2)
def test_default_step_is_a_thousandth(submission, reference, rng):
    mine = submission.BiasBalancedRouter(9, 4, 2)
    for _ in range(5):
        mine.update_bias(loads_of(rng, [7, 1, 8, 4], 2))  # mean 5
    expected = torch.tensor([-0.005, 0.005, -0.005, 0.005])
    close(bias_of(mine), expected, says="five updates with the default step", dtype=False)


@part(2)
def test_updates_add_up(submission, reference, rng):
    mine, ref = pair(submission.BiasBalancedRouter, reference.BiasBalancedRouter, 9, 5, 2, bias_step=0.05)
    for n in range(12):
        indices = loads_of(rng, [int(load) for load in (rng.permutation(5) * 2)], 2)
        mine.update_bias(indices=indices), ref.update_bias(indices)
        close(bias_of(mine), ref.bias, says=f"bias after {n + 1} updates", trivial_ok=True)
    set_bias(mine, ref, rng.choice([-15.0, 15.0]) + rng.normal(5))
    mine.update_bias(indices), ref.update_bias(indices)
    close(bias_of(mine), ref.bias, says="update of a bias that has come far")


@part(2)
def test_updated_bias_is_used(submission, reference, rng):
    mine, ref = pair(submission.BiasBalancedRouter, reference.BiasBalancedRouter, 9, 4, 2, bias_step=0.5)
    scores = 0.5 + rng.uniform(-0.1, 0.1, 8, 4, dtype=torch.float64)
    x = tokens_for(rng, ref.gate, torch.logit(scores))
    order = rng.permutation(4)
    indices = loads_of(rng, [int(load) for load in torch.tensor([9, 7, 1, 1])[order]], 2)  # mean 4.5
    mine.update_bias(indices), ref.update_bias(indices)
    same_routing(mine(x), ref(x), 4, "routing after an update with a step of 0.5")
    back = loads_of(rng, [int(load) for load in torch.tensor([1, 1, 7, 9])[order]], 2)
    same_routing(mine.eval()(x), ref(x), 4, "the same in eval mode")
    for _ in range(2):
        mine.update_bias(back), ref.update_bias(back)
    same_routing(mine(x), ref(x), 4, "in eval mode, after the loads were turned round for two updates")


@part(2)
def test_single_slot_experts(submission, reference, rng):
    for n_experts in (5, 2):
        indices = torch.tensor([[rng.integers(0, n_experts)]])
        mine, ref = updated(submission, reference, rng, indices, n_experts, 1, 0.2)
        close(mine, ref, says=f"one token, 1 of {n_experts} experts: it falls, and the rest rise")


@part(2)
def test_update_after_a_graph_was_built(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    direction = rng.normal(12, 5)
    for router in (mine, ref):
        weights, indices, scores = router(x.clone().requires_grad_())
        router.update_bias(indices)
        pull((dense_weights(weights, indices, 5) * direction).sum() + scores.sum(), "backward after the update")
    close(bias_of(mine), ref.bias, says="bias after forward, update and backward")
    same_gradients(mine, ref, "with an update between forward and backward")


@part(2)
def test_update_balances_the_router(submission, reference, rng):
    mine, ref = pair(submission.BiasBalancedRouter, reference.BiasBalancedRouter, 9, 4, 1, bias_step=0.02)
    scores = torch.tensor([0.7, 0.6, 0.4, 0.3], dtype=torch.float64)[rng.permutation(4)]
    x = tokens_for(rng, ref.gate, torch.logit(scores + rng.uniform(-0.05, 0.05, 40, 4, dtype=torch.float64)))
    for _ in range(30):
        mine.update_bias(mine(x)[1])
    loads = torch.bincount(mine(x)[1].long().flatten(), minlength=4)
    check(int(loads.max()) <= 26, "30 updates spread 40 tokens over the experts", seen=loads.sort().values)


@part(2)
def test_update_in_other_dtypes(submission, reference, rng):
    for dtype in (torch.float64, torch.bfloat16):
        mine, ref = updated(submission, reference, rng, loads_of(rng, [9, 1, 6, 2, 2], 2), 5, 2, 0.25, dtype=dtype)
        close(mine, ref, says=f"update of a {dtype} bias")


@part(2)
def test_update_in_eval_mode_and_without_grad(submission, reference, rng):
    mine, ref = pair(submission.BiasBalancedRouter, reference.BiasBalancedRouter, 9, 5, 2, bias_step=0.1)
    set_bias(mine, ref, 0.01 * rng.normal(5))
    indices = loads_of(rng, [9, 1, 6, 2, 2], 2)
    with torch.no_grad():
        mine.update_bias(indices), ref.update_bias(indices)
    close(bias_of(mine), ref.bias, says="update under no_grad")


@part(2)
def test_update_makes_no_tensor_on_another_device(submission, reference, rng):
    mine = submission.BiasBalancedRouter(7, 5, 2).to("meta")
    on_meta(lambda: mine.update_bias(torch.empty(6, 2, dtype=torch.long, device="meta")), "update_bias")
