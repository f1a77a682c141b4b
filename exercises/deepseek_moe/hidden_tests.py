"""Hidden tests of `deepseek_moe`.

Tokens are built from wanted logits, and scores are redrawn, so that every choice has a margin that float noise cannot
cross. The experts of a token may come in any order: routing is compared as a dense (N, E) table of weights.
"""


def draw_choices(rng, n_tokens, n_experts, k):
    return torch.stack([rng.permutation(n_experts)[:k] for _ in range(n_tokens)])


def crowded(rng, n_tokens, n_experts, k):
    """(N, k) distinct experts per token, with one expert in nearly every row."""
    popular = rng.integers(0, n_experts)
    choices = draw_choices(rng, n_tokens, n_experts, k)
    for n in range(n_tokens - 2):
        if popular not in choices[n]:
            choices[n, rng.integers(0, k)] = popular
    return choices


def logits_for(rng, choices, n_experts):
    """(N, E) logits under which each token prefers its choices, with a gap of at least 0.5 to the others."""
    n_tokens, k = choices.shape
    logits = rng.uniform(-0.5, 0.5, n_tokens, n_experts, dtype=torch.float64) - 1.5
    return logits.scatter(1, choices, rng.uniform(-0.5, 1.0, n_tokens, k, dtype=torch.float64))


def tokens_for(rng, gate, logits, dtype=torch.float32):
    """(N, d) random tokens whose logits under the gate's weights are these (d > E)."""
    weight = plain(gate.weight).double()
    back = torch.linalg.pinv(weight)
    noise = rng.normal(logits.shape[0], weight.shape[1], dtype=torch.float64)
    return (noise - noise @ weight.T @ back.T + logits @ back.T).to(dtype)


def build(
    submission, reference, rng, shape=(2, 7), d_ff=6, n_experts=4, k=2, split=2, choices=None, dtype=None, **options
):
    """(mine, ref, x): the same weights, and an x (B, T, 13) that is routed without close calls."""
    args = (13, d_ff, n_experts, k)
    if split != 1:
        options["split"] = split
    mine, ref = pair(submission.DeepSeekMoE, reference.DeepSeekMoE, *args, dtype=dtype, **options)
    n_tokens = shape[0] * shape[1]
    if choices is None:
        choices = crowded(rng, n_tokens, split * n_experts, split * k)
    x = tokens_for(rng, ref.gate, logits_for(rng, choices, split * n_experts), dtype or torch.float32)
    return mine, ref, x.view(*shape, 13)


def same_result(got, expected, says):
    close(got[0], expected[0], says=f"{says}: y")
    close(got[1], expected[1], says=f"{says}: aux")


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
def test_split_experts_and_one_shared(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    same_result(mine(x), ref(x), "4 of 8 experts of width 3, one shared")


@part(1)
def test_defaults_are_no_split_and_one_shared(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, n_experts=5, split=1)
    same_result(mine(x), ref(x), "split and n_shared left out")


@part(1)
def test_split_into_three(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, d_ff=9, n_experts=4, k=1, split=3)
    same_result(mine(x), ref(x), "3 of 12 experts of width 3")


@part(1)
def test_sizes_in_the_order_of_the_signature(submission, reference, rng):
    mine, ref = pair(submission.DeepSeekMoE, reference.DeepSeekMoE, 13, 9, 4, 1, 3, 2)
    x = tokens_for(rng, ref.gate, logits_for(rng, crowded(rng, 10, 12, 3), 12)).view(2, 5, 13)
    same_result(mine(x), ref(x), "split = 3 and n_shared = 2, not by name")


@part(1)
def test_many_small_experts(submission, reference, rng):
    options = {"d_model": 37, "d_ff": 6, "n_experts": 11, "k": 4, "split": 3}
    mine, ref = pair(submission.DeepSeekMoE, reference.DeepSeekMoE, **options)
    choices = draw_choices(rng, 10, 33, 12)
    for n in range(3):  # the last one too
        if 32 not in choices[n]:
            choices[n, rng.integers(0, 12)] = 32
    x = tokens_for(rng, ref.gate, logits_for(rng, choices, 33)).view(2, 5, 37)
    same_result(mine(x), ref(x), "12 of 33 experts of width 2")


@part(1)
def test_a_batch_of_thousands_of_tokens(submission, reference, rng):
    # k = E: no choice that noise could flip
    mine, ref = pair(submission.DeepSeekMoE, reference.DeepSeekMoE, 5, 3, 2, 2)
    x = rng.normal(3, 700, 5)
    close(mine(x)[0], ref(x)[0], says="2100 tokens, each at both experts: y")


@part(1)
def test_several_shared_experts_are_added(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, n_shared=3)
    same_result(mine(x), ref(x), "three shared experts")
    same_result(mine(x[1:, 2:3]), ref(x[1:, 2:3]), "three shared experts, one token")
    direction = rng.normal(*x.shape)
    for layer in (mine, ref):
        pull((layer(x)[0] * direction).sum(), "y with three shared experts")
    same_gradients(mine, ref, "from y with three shared experts")


@part(1)
def test_no_shared_expert(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, n_shared=0)
    same_result(mine(x), ref(x), "no shared expert")


@part(1)
def test_sizes_after_the_split(submission, reference, rng):
    mine = submission.DeepSeekMoE(10, 12, 3, 2, split=4, n_shared=2)
    shapes = {name: tuple(tensor.shape) for name, tensor in mine.state_dict().items()}
    check(
        shapes.get("gate.weight") == (12, 10),
        "the gate scores split * n_experts experts",
        seen=str(shapes.get("gate.weight")),
    )
    check(len(mine.experts) == 12, "split * n_experts routed experts", seen=len(mine.experts))
    check(len(mine.shared) == 2, "n_shared shared experts", seen=len(mine.shared))
    for name in ("experts.11.w_gate.weight", "shared.1.w_up.weight"):
        check(shapes.get(name) == (3, 10), f"{name} has width d_ff // split", seen=str(shapes.get(name)))


@part(1)
def test_the_gate_has_no_bias(submission, reference, rng):
    names = [name for name in submission.DeepSeekMoE(7, 4, 3, 2).parameter_names()[0] if name.startswith("gate")]
    same(names, ["gate.weight"], says="the gate's parameters by name")


@part(1)
def test_all_experts_chosen_is_the_dense_weighted_sum(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, n_experts=3, k=3)
    flat, direction = x.reshape(14, 13), rng.normal(*x.shape)
    probs = torch.softmax(ref.gate(flat), dim=-1)
    outputs = torch.stack([expert(flat) for expert in ref.experts], dim=1)
    dense = (probs[..., None] * outputs).sum(dim=1) + ref.shared[0](flat)
    y, aux = mine(x)
    close(y, dense.view_as(x), says="k = E: the probability-weighted sum of experts plus the shared one")
    close(aux, torch.tensor(1.0), says="k = E: every expert is used alike")
    for layer in (mine, ref):
        pull((layer(x)[0] * direction).sum(), "k = E: y")
    same_gradients(mine, ref, "k = E: from y")


@part(1)
def test_one_expert_per_token_has_weight_one(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, n_experts=6, k=1, split=1)
    same_result(mine(x), ref(x), "k = 1")


@part(1)
def test_a_single_token(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, shape=(1, 1), choices=draw_choices(rng, 1, 8, 4))
    same_result(mine(x), ref(x), "one token")
    mine.eval()
    same_result(mine(x), ref(x), "one token in eval mode")
    direction = rng.normal(1, 1, 13)
    for layer in (mine, ref):
        y, aux = layer(x)
        pull((y * direction).sum() + 3 * aux, "y and aux of one token")
    same_gradients(mine, ref, "from y and aux of one token")


@part(1)
def test_sequences_of_one_token(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng, shape=(9, 1))
    for says in ("nine sequences of one token", "nine sequences of one token, in eval mode"):
        same_result(mine(x), ref(x), says)
        mine.eval()


@part(1)
def test_an_expert_with_little_weight_is_run_as_well(submission, reference, rng):
    mine, ref = pair(submission.DeepSeekMoE, reference.DeepSeekMoE, 13, 6, 7, 3)
    choices = draw_choices(rng, 10, 7, 3)
    ranks = torch.tensor([2.0, -0.5, -3.0], dtype=torch.float64)  # the others lie at -4.5 and below
    logits = (rng.uniform(-2.0, 0.0, 10, 7, dtype=torch.float64) - 4.5).scatter(1, choices, ranks.expand(10, 3))
    x = tokens_for(rng, ref.gate, logits).view(2, 5, 13)
    for says in ("third choices that weigh less than a hundredth", "third choices of little weight, in eval mode"):
        same_result(mine(x), ref(x), says)
        mine.eval()


@part(1)
def test_experts_that_nobody_chose(submission, reference, rng):
    for unused in ((0,), (7,), (3, 4)):
        used = torch.tensor([e for e in range(8) if e not in unused])
        choices = used[draw_choices(rng, 8, len(used), 4)]
        mine, ref, x = build(submission, reference, rng, shape=(2, 4), choices=choices)
        same_result(mine(x), ref(x), f"nobody chose {' and '.join(map(str, unused))} of 8 experts")


@part(1)
def test_nothing_is_dropped(submission, reference, rng):
    choices = rng.permutation(8)[:4].expand(14, 4).contiguous()
    mine, ref, x = build(submission, reference, rng, choices=choices)
    same_result(mine(x), ref(x), "all tokens choose the same experts")


@part(1)
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


@part(1)
def test_gradients_of_the_loss(submission, reference, rng):
    for says, options in (("", {}), (", no shared expert", {"n_shared": 0}), (", no split", {"split": 1})):
        mine, ref, x = build(submission, reference, rng, **options)
        both = []
        for layer in (mine, ref):
            leaf = x.clone().requires_grad_()
            pull(layer(leaf)[1], f"aux{says}")
            check(leaf.grad is not None, f"aux reaches x{says}")
            both.append(leaf.grad)
        close(both[0], both[1], says=f"gradient of x from aux{says}")
        same_gradients(mine, ref, f"from aux{says}")


@part(1)
def test_large_common_logits_change_nothing(submission, reference, rng):
    for shift in (120.0, -120.0):
        mine, ref = pair(submission.DeepSeekMoE, reference.DeepSeekMoE, 13, 6, 4, 2)
        flat = tokens_for(rng, ref.gate, logits_for(rng, crowded(rng, 10, 4, 2), 4) + shift)
        x = flat.view(2, 5, 13)
        close(mine(x)[0], ref(x)[0], says=f"logits around {shift:+.0f}: y", tol=1e-3)
        close(mine(x)[1], ref(x)[1], says=f"logits around {shift:+.0f}: aux", tol=1e-3)


@part(1)
def test_layer_in_other_dtypes(submission, reference, rng):
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        mine, ref, x = build(submission, reference, rng, dtype=dtype)
        same_result(mine(x), ref(x), f"a {dtype} layer")


@part(1)
def test_layer_in_eval_mode(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    mine.eval()
    same_result(mine(x), ref(x), "in eval mode")


@part(1)
def test_gradients_in_eval_mode(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    mine.eval()
    w, slopes = rng.normal(*x.shape), []
    for layer in (mine, ref):
        leaf = x.clone().requires_grad_()
        pull((layer(leaf)[0] * w).sum(), "y in eval mode")
        slopes.append(leaf.grad)
    check(slopes[0] is not None, "in eval mode y reaches x: eval() is not no_grad()")
    close(slopes[0], slopes[1], says="gradient of x from y, in eval mode")
    close(grads(mine)["gate.weight"], grads(ref)["gate.weight"], says="gradient of the gate from y, in eval mode")
    for layer in (mine, ref):
        pull(layer(x)[1], "aux in eval mode")
    same_gradients(mine, ref, "from y and aux, in eval mode")


@part(1)
def test_one_expert_far_above_the_others(submission, reference, rng):
    mine, ref = pair(submission.DeepSeekMoE, reference.DeepSeekMoE, 13, 6, 4, 2)
    choices = draw_choices(rng, 10, 4, 2)
    logits = logits_for(rng, choices, 4).scatter_add(1, choices[:, :1], torch.full((10, 1), 130.0, dtype=torch.float64))
    x = tokens_for(rng, ref.gate, logits).view(2, 5, 13)
    w, slopes = rng.normal(2, 5, 13), []
    for layer in (mine, ref):
        leaf = x.clone().requires_grad_()
        y, _ = layer(leaf)
        if layer is mine:
            close(y, ref(x)[0], says="one logit 130 above the others: y", tol=1e-3)
        pull((y * w).sum(), "y")
        slopes.append(leaf.grad)
    close(slopes[0], slopes[1], says="one logit 130 above the others: gradient of x from y", tol=1e-3)


@part(1)
def test_loss_of_many_tokens_in_half_precision(submission, reference, rng):
    choices = crowded(rng, 900, 4, 2)
    mine, ref, x = build(
        submission, reference, rng, (2, 450), split=1, choices=choices, dtype=torch.bfloat16, n_shared=1
    )
    close(mine(x)[1], ref.double()(x.double())[1].bfloat16(), says="900 tokens, nearly all at one expert, in bfloat16")


@part(1)
def test_without_gradients_too(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    mine.eval()
    with torch.no_grad():
        for says in ("a call under no_grad", "the same call again"):
            same_result(mine(x), ref(x), says)
        weights = {name: t if name.startswith("gate") else 1.5 * t for name, t in ref.state_dict().items()}
        for layer in (mine, ref):
            layer.load_state_dict(weights)
        same_result(mine(x), ref(x), "under no_grad, experts loaded anew")
        weights["gate.weight"] = weights["gate.weight"].roll(1, 0)  # the same gaps, other experts
        for layer in (mine, ref):
            layer.load_state_dict(weights)
        same_result(mine(x), ref(x), "under no_grad, the gate loaded anew")
        mine, ref, x = build(submission, reference, rng, n_experts=6, k=1, split=1, dtype=torch.bfloat16)
        same_result(mine(x), ref(x), "under no_grad, nearly all tokens at one of 6 experts, in bfloat16")


@part(1)
def test_non_contiguous_tokens(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    same_result(mine(x.permute(2, 1, 0).contiguous().permute(2, 1, 0)), ref(x), "x stored channels first")


@part(1)
def test_nothing_is_kept_from_one_call_to_the_next(submission, reference, rng):
    mine, ref, x = build(submission, reference, rng)
    for says, tokens in (("first call", x), ("a shorter call", x[:1, :3].clone()), ("the first call again", x)):
        same_result(mine(tokens), ref(tokens), says)


@part(1)
def test_sizes_that_do_not_fit_are_refused(submission, reference, rng):
    with raises(ValueError, says="d_ff = 10 and split = 4"):
        submission.DeepSeekMoE(8, 10, 3, 2, split=4)
    with raises(ValueError, says="d_ff = 8 and split = 3"):
        submission.DeepSeekMoE(8, 8, 4, 2, split=3)
    with raises(ValueError, says="d_ff = 2 and split = 4"):
        submission.DeepSeekMoE(8, 2, 3, 2, split=4)
    with raises(ValueError, says="k > n_experts"):
        submission.DeepSeekMoE(8, 8, 3, 4, split=2)(rng.normal(1, 3, 8))


@part(1)
def test_layer_makes_no_tensor_on_another_device(submission, reference, rng):
    layer = submission.DeepSeekMoE(7, 4, 3, 2, split=2).to("meta")
    on_meta(lambda: layer(torch.empty(2, 3, 7, device="meta")), "the layer")


# ------------------------------------------------------------------------------------------------------- part 2


@part(2)
def test_counts_of_drawn_sizes(submission, reference, rng):
    for _ in range(4):
        d_model, d_ff, n_experts = rng.integers(5, 50), rng.integers(5, 90), rng.integers(4, 20)
        k, n_shared = rng.integers(1, n_experts), rng.integers(1, 4)
        counts = submission.moe_parameter_counts(d_model, d_ff, n_experts, k, n_shared)
        expected = reference.moe_parameter_counts(d_model, d_ff, n_experts, k, n_shared)
        same(counts, expected, says=f"{n_experts} experts of {d_model} x {d_ff}, k = {k}, {n_shared} shared")


@part(2)
def test_counts_of_large_sizes(submission, reference, rng):
    d_model, d_ff, n_experts = 2 * rng.integers(3000, 4500) + 1, 2 * rng.integers(5000, 9000) + 1, 2**27 + 1
    counts = submission.moe_parameter_counts(d_model, d_ff, n_experts, 7, 1)
    expected = reference.moe_parameter_counts(d_model, d_ff, n_experts, 7, 1)
    same(counts, expected, says=f"{n_experts} experts of {d_model} x {d_ff}: whole numbers have no rounding")


@part(2)
def test_all_experts_and_the_shared_ones_may_be_active(submission, rng):
    for n_experts in (1, rng.integers(2, 9)):
        d_model, d_ff, n_shared = rng.integers(10, 90), rng.integers(10, 90), rng.integers(2, 5)
        counts = submission.moe_parameter_counts(d_model, d_ff, n_experts, n_experts, n_shared)
        everything = 3 * d_model * d_ff * (n_experts + n_shared)
        same(counts, (everything, everything), says="k = n_experts: (total, active) with shared experts")


@part(2)
def test_no_shared_expert_is_the_default(submission, reference, rng):
    sizes = (rng.integers(5, 50), rng.integers(5, 50), 7, 3)
    expected = reference.moe_parameter_counts(*sizes)
    same(submission.moe_parameter_counts(*sizes), expected, says="n_shared left out")


@part(2)
def test_counts_are_those_of_the_layer(submission, reference, rng):
    layer = reference.DeepSeekMoE(10, 12, 5, 2, n_shared=2)
    held = sum(p.numel() for name, p in layer.named_parameters() if not name.startswith("gate"))
    total, active = submission.moe_parameter_counts(10, 12, 5, 2, 2)
    same((total, active), (held, held * 4 // 7), says="parameters of a layer of 5 + 2 experts")


@part(2)
def test_mixtral_has_46_7_billion_of_which_12_9_are_active(submission, reference, rng):
    total, active = submission.moe_parameter_counts(4096, 14336, 8, 2)
    per_layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 8 * 4096 + 2 * 4096  # attention, router, two norms
    rest = 32 * per_layer + 2 * 32000 * 4096 + 4096  # embedding, head, last norm
    same(
        (32 * total + rest, 32 * active + rest), (46_702_792_704, 12_879_925_248), says="Mixtral 8x7B: total and active"
    )


@part(2)
def test_deepseek_v3_experts(submission, reference, rng):
    counts = submission.moe_parameter_counts(7168, 2048, 256, 8, 1)
    same(counts, (257 * 44_040_192, 9 * 44_040_192), says="one layer of DeepSeek-V3: 256 experts, 8 active, 1 shared")


# ------------------------------------------------------------------------------------------------------- part 3


def clear_scores(rng, n_tokens, n_experts, k, n_groups, top_groups, gap=0.02, contested=True):
    """(N, E) scores with a gap at the group cut and at the expert cut.

    With `contested`, in every row the group limit changes the experts chosen, and ranking groups by their best expert,
    by their whole sum or by the product of their two best would choose other groups in some rows.
    """
    size = n_experts // n_groups
    rows = []
    kinds, rounds = [0, 0, 0, 0], 0  # some kinds cannot occur: in groups of two, the sum is the sum of the two best
    while len(rows) < n_tokens:
        rounds += 1
        scores = rng.uniform(0.02, 1.0, 600, n_experts, dtype=torch.float64)
        grouped = scores.view(600, n_groups, size)
        two = grouped.topk(min(2, size), dim=-1).values
        value = two.sum(dim=-1)
        ranked = value.sort(dim=-1, descending=True).values
        good = torch.ones(600, dtype=torch.bool)
        if top_groups < n_groups:
            good &= ranked[:, top_groups - 1] - ranked[:, top_groups] > gap
        chosen_groups = torch.zeros_like(value).scatter(1, value.topk(top_groups).indices, 1.0)
        limited = scores * chosen_groups.repeat_interleave(size, dim=1)
        inside = limited.sort(dim=-1, descending=True).values
        if k < n_experts:
            good &= inside[:, k - 1] - inside[:, k] > gap
        best, whole = grouped.max(dim=-1).values, grouped.sum(dim=-1)
        by_best = torch.zeros_like(value).scatter(1, best.topk(top_groups).indices, 1.0)
        by_whole = torch.zeros_like(value).scatter(1, whole.topk(top_groups).indices, 1.0)
        by_product = torch.zeros_like(value).scatter(1, two.prod(dim=-1).topk(top_groups).indices, 1.0)
        free = torch.zeros_like(scores).scatter(1, scores.topk(k).indices, 1.0)
        bound = torch.zeros_like(scores).scatter(1, limited.topk(k).indices, 1.0)
        for row in good.nonzero().flatten().tolist():
            marks = (
                not torch.equal(free[row], bound[row]),
                not torch.equal(by_best[row], chosen_groups[row]),
                not torch.equal(by_whole[row], chosen_groups[row]),
                not torch.equal(by_product[row], chosen_groups[row]),
            )
            lacking = [i for i in range(4) if kinds[i] < n_tokens // 4]
            if not contested or not lacking or rounds > 3 or any(marks[i] for i in lacking):
                rows.append(scores[row])
                kinds = [count + mark for count, mark in zip(kinds, marks, strict=True)]
            if len(rows) == n_tokens:
                break
    return torch.stack(rows)


def table(weights, indices, n_experts):
    empty = torch.zeros(weights.shape[0], n_experts, dtype=weights.dtype, device=weights.device)
    return empty.scatter_add(1, indices.long(), weights)


def same_choice(got, expected, n_experts, says):
    (weights, indices), (ref_weights, ref_indices) = got, expected
    check(not indices.is_floating_point(), f"{says}: indices are integers", seen=str(indices.dtype))
    check(indices.shape == ref_indices.shape, f"{says}: indices are (N, k)", seen=tuple(indices.shape))
    check(weights.shape == ref_weights.shape, f"{says}: weights are (N, k)", seen=tuple(weights.shape))
    check(weights.dtype == ref_weights.dtype, f"{says}: weights have the scores' dtype", seen=str(weights.dtype))
    in_range = bool(((indices >= 0) & (indices < n_experts)).all())
    check(in_range, f"{says}: indices are expert numbers from 0 to {n_experts - 1}", seen=in_range)
    same(indices.long().sort(dim=1).values, ref_indices.sort(dim=1).values, says=f"{says}: the chosen experts")
    mine, ref = table(weights, indices, n_experts), table(ref_weights, ref_indices, n_experts)
    close(mine, ref, says=f"{says}: weights", trivial_ok=True)


SIZES = ((20, 3, 4, 2), (16, 4, 4, 2), (15, 4, 3, 2), (24, 5, 4, 3))  # E, k, n_groups, top_groups


@part(3)
def test_choice_within_the_best_groups(submission, reference, rng):
    for n_experts, k, n_groups, top_groups in SIZES:
        scores = clear_scores(rng, 12, n_experts, k, n_groups, top_groups).float()
        args = (k, n_groups, top_groups)
        says = f"{k} of {n_experts} experts from {top_groups} of {n_groups} groups"
        same_choice(
            submission.group_limited_topk(scores, *args), reference.group_limited_topk(scores, *args), n_experts, says
        )


@part(3)
def test_experts_lie_in_at_most_top_groups_groups(submission, reference, rng):
    scores = clear_scores(rng, 16, 16, 4, 8, 3, gap=0.01).float()
    _, indices = submission.group_limited_topk(scores, 4, 8, 3)
    groups = [len(set((row // 2).tolist())) for row in indices.long()]
    check(max(groups) <= 3, "no token uses more than three groups", seen=tuple(groups))


@part(3)
def test_choice_among_hundreds_of_experts(submission, reference, rng):
    ranks = rng.uniform(0.0, 1.0, 400, 256).argsort(dim=1).argsort(dim=1)  # whole numbers: no noise
    best = ranks.view(400, 8, 32).topk(2, dim=-1).values.sum(dim=-1).sort(dim=1, descending=True).values
    scores = (ranks[best[:, 3] > best[:, 4] + 1][:70] + 1) / 256
    got, expected = submission.group_limited_topk(scores, 8, 8, 4), reference.group_limited_topk(scores, 8, 8, 4)
    same_choice(got, expected, 256, f"{len(scores)} tokens, 8 of 256 experts from 4 of 8 groups")


@part(3)
def test_worked_example(submission, reference, rng):
    swap = rng.permutation(3)
    # Among other tokens: one row alone may be told in the same way by quite another ranking.
    drawn = clear_scores(rng, 7, 6, 2, 3, 1).float()
    scores = torch.cat([drawn, torch.tensor([[0.9, 0.1], [0.6, 0.6], [0.3, 0.2]])[swap].view(1, 6)])
    weights, indices = submission.group_limited_topk(scores, 2, 3, 1)
    example = torch.tensor([[0.0, 0.0], [0.5, 0.5], [0.0, 0.0]])[swap].view(1, 6)
    expected = torch.cat([table(*reference.group_limited_topk(drawn, 2, 3, 1), 6), example])
    close(table(weights, indices, 6), expected, says="the worked example, last of eight tokens")


@part(3)
def test_a_single_group_may_be_used(submission, reference, rng):
    scores = clear_scores(rng, 12, 15, 2, 3, 1).float()
    got, expected = submission.group_limited_topk(scores, 2, 3, 1), reference.group_limited_topk(scores, 2, 3, 1)
    same_choice(got, expected, 15, "top_groups = 1")


@part(3)
def test_all_groups_may_be_used(submission, reference, rng):
    scores = clear_scores(rng, 10, 20, 3, 4, 4, contested=False).float()
    got, expected = submission.group_limited_topk(scores, 3, 4, 4), reference.group_limited_topk(scores, 3, 4, 4)
    same_choice(got, expected, 20, "top_groups = n_groups is a plain top-k")


@part(3)
def test_one_group_of_all_experts(submission, reference, rng):
    scores = clear_scores(rng, 10, 7, 3, 1, 1, contested=False).float()
    got, expected = submission.group_limited_topk(scores, 3, 1, 1), reference.group_limited_topk(scores, 3, 1, 1)
    same_choice(got, expected, 7, "n_groups = 1 is a plain top-k")


@part(3)
def test_every_expert_of_the_best_groups_is_chosen(submission, reference, rng):
    scores = clear_scores(rng, 10, 20, 10, 4, 2, gap=0.01).float()
    got, expected = submission.group_limited_topk(scores, 10, 4, 2), reference.group_limited_topk(scores, 10, 4, 2)
    same_choice(got, expected, 20, "k = all experts of the two best groups")


@part(3)
def test_one_expert_per_token_in_groups(submission, reference, rng):
    scores = clear_scores(rng, 12, 20, 1, 4, 1).float()
    got, expected = submission.group_limited_topk(scores, 1, 4, 1), reference.group_limited_topk(scores, 1, 4, 1)
    same_choice(got, expected, 20, "k = 1")


@part(3)
def test_one_token_in_groups(submission, reference, rng):
    scores = clear_scores(rng, 4, 20, 3, 4, 2).float()[:1]
    got, expected = submission.group_limited_topk(scores, 3, 4, 2), reference.group_limited_topk(scores, 3, 4, 2)
    same_choice(got, expected, 20, "one token")


@part(3)
def test_all_experts_may_be_asked_for(submission, reference, rng):
    scores = clear_scores(rng, 10, 12, 3, 4, 4, contested=False).float()
    scores[:, rng.integers(0, 12)] = 0.0
    direction, slopes = rng.normal(10, 12), []
    for choose in (submission.group_limited_topk, reference.group_limited_topk):
        leaf = scores.clone().requires_grad_()
        got = choose(leaf, 12, 4, 4)
        expected = reference.group_limited_topk(scores, 12, 4, 4)
        same_choice((plain(got[0]), got[1]), expected, 12, "k = E, all groups, one score 0")
        pull((table(*got, 12) * direction).sum(), "a loss on the weights")
        slopes.append(leaf.grad)
    check(slopes[0] is not None, "a loss on the weights reaches the scores")
    check(bool(slopes[0].isfinite().all()), "k = E, one score 0: the gradient is finite")
    there = scores > 0  # at 0 the slope of a norm is a matter of taste
    close(slopes[0] * there, slopes[1] * there, says="k = E, one score 0: gradient of the other scores")


@part(3)
def test_choice_without_gradients(submission, reference, rng):
    scores = clear_scores(rng, 10, 20, 3, 4, 2).float()
    with torch.no_grad():
        got, expected = submission.group_limited_topk(scores, 3, 4, 2), reference.group_limited_topk(scores, 3, 4, 2)
    same_choice(got, expected, 20, "under no_grad")


@part(3)
def test_small_and_large_scores_are_renormalised(submission, reference, rng):
    for scale in (1e-5, 1e5):
        scores = scale * clear_scores(rng, 10, 20, 3, 4, 2).float()
        got, expected = submission.group_limited_topk(scores, 3, 4, 2), reference.group_limited_topk(scores, 3, 4, 2)
        same_choice(got, expected, 20, f"scores of {scale:.0e}")


@part(3)
def test_close_scores_are_told_apart(submission, reference, rng):
    scores = (0.5 + 0.01 * clear_scores(rng, 12, 20, 3, 4, 2)).float()
    got, expected = submission.group_limited_topk(scores, 3, 4, 2), reference.group_limited_topk(scores, 3, 4, 2)
    same_choice(got, expected, 20, "scores between 0.5 and 0.51")


@part(3)
def test_gradient_of_the_weights(submission, reference, rng):
    scores, direction = clear_scores(rng, 10, 20, 3, 4, 2).float(), rng.normal(10, 20)
    both = []
    for choose in (submission.group_limited_topk, reference.group_limited_topk):
        leaf = scores.clone().requires_grad_()
        weights, indices = choose(leaf, 3, 4, 2)
        pull((table(weights, indices, 20) * direction).sum(), "a loss on the weights")
        check(leaf.grad is not None, "a loss on the weights reaches the scores")
        both.append(leaf.grad)
    close(both[0], both[1], says="gradient of the scores")


@part(3)
def test_choice_in_other_dtypes(submission, reference, rng):
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        scores = clear_scores(rng, 8, 20, 3, 4, 2, gap=0.04).to(dtype)
        got, expected = submission.group_limited_topk(scores, 3, 4, 2), reference.group_limited_topk(scores, 3, 4, 2)
        same_choice(got, expected, 20, f"{dtype} scores")


@part(3)
def test_non_contiguous_scores(submission, reference, rng):
    scores = clear_scores(rng, 10, 20, 3, 4, 2).float()
    got = submission.group_limited_topk(scores.T.contiguous().T, 3, 4, 2)
    same_choice(got, reference.group_limited_topk(scores, 3, 4, 2), 20, "scores stored column by column")


@part(3)
def test_bad_sizes_are_refused(submission, reference, rng):
    with raises(ValueError, says="10 experts in 4 groups"):
        submission.group_limited_topk(rng.uniform(0.1, 1.0, 3, 10), 2, 4, 2)
    with raises(ValueError, says="k = 13 of 12 experts"):
        submission.group_limited_topk(rng.uniform(0.1, 1.0, 3, 12), 13, 4, 4)


@part(3)
def test_choice_makes_no_tensor_on_another_device(submission, reference, rng):
    scores = torch.empty(5, 12, device="meta")
    on_meta(lambda: submission.group_limited_topk(scores, 3, 4, 2), "the choice")
