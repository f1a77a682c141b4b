"""Hidden tests of `selective_scan`: the loop, the module with its step, the chunked scan.

A is negative and delta positive throughout, as in Mamba, so a scan may work in log space.  Whether a 16-bit input is
accumulated in 16 or in 32 bits is left open, so half precision has a wide tolerance.
"""

import pytest
import torch


def inputs(rng, batch, T, d, N, dtype=torch.float32, slow=0.1, fast=1.5):
    """(x, delta, A, B, C, D) of a mild system: a step keeps roughly 0.2 to 0.95 of the state."""
    x = rng.normal(batch, T, d, dtype=dtype)
    delta = rng.uniform(0.4, 1.0, batch, T, d, dtype=dtype)
    A = -rng.uniform(slow, fast, d, N, dtype=dtype)
    B, C = rng.normal(batch, T, N, dtype=dtype), rng.normal(batch, T, N, dtype=dtype)
    return x, delta, A, B, C, rng.uniform(0.5, 1.5, d, dtype=dtype)


def gradients(call, arguments, weight):
    """Gradients of the weighted sum of call(*arguments) with respect to each argument."""
    own = [tensor.detach().clone().requires_grad_() for tensor in arguments]
    (weight * call(*own)).sum().backward()
    return [tensor.grad for tensor in own]


def same_gradients(mine, right, where, tol=None):
    """Compare gradients of x, delta, A, B, C and D one by one."""
    for gradient, expected, name in zip(mine, right, ("x", "delta", "A", "B", "C", "D"), strict=True):
        check(gradient is not None, f"the gradient of {name} is missing: {where}")
        close(gradient, expected, says=f"gradient of {name} {where}", tol=tol)


def rounded_gradients(reference, arguments, weight):
    """The gradients through the scan in float64, rounded to the dtype of the arguments."""
    found = gradients(reference.selective_scan, [tensor.double() for tensor in arguments], weight.double())
    return [gradient.to(tensor.dtype) for gradient, tensor in zip(found, arguments, strict=True)]


def strongly_decaying(rng, T):
    """A system whose decays multiply to 0 within a few steps in some channels, and hardly decay in others."""
    x, delta, _, B, C, D = inputs(rng, 2, T, 4, 3)
    A = -torch.tensor([0.05, 2.0, 60.0, 400.0])[:, None] * rng.uniform(0.8, 1.2, 4, 3)
    return x, delta, A, B, C, D


def with_a_huge_past(rng, T):
    """A system whose first two inputs are 1e18 times the rest, and whose third step forgets them: its decay is 0."""
    x, delta, A, B, C, D = inputs(rng, 2, T, 3, 4, slow=0.5)
    x[:, :2] *= 1e18
    delta[:, 2] = rng.uniform(300.0, 400.0, 2, 3)
    x[:, 2] /= 300.0
    return x, delta, A, B, C, D


# ------------------------------------------------------------------------------------------ part 1


@part(1)
def test_scan_equals_the_reference(submission, reference, rng):
    args = inputs(rng, 2, 11, 3, 5)
    close(submission.selective_scan(*args), reference.selective_scan(*args), says="y over 11 steps")


@part(1)
def test_the_first_output_holds_the_first_input(submission, rng):
    x, delta, A, B, C, D = inputs(rng, 3, 1, 4, 2)
    right = x * (delta * (B * C).sum(-1, keepdim=True) + D)
    close(submission.selective_scan(x, delta, A, B, C, D), right, says="one step: y = (delta <B, C> + D) x")


@part(1)
def test_two_steps_by_hand(submission, rng):
    x, delta, A, B, C, D = inputs(rng, 2, 2, 3, 4)
    first = (delta[:, 0] * x[:, 0])[:, :, None] * B[:, 0, None, :]
    second = torch.exp(delta[:, 1, :, None] * A) * first + (delta[:, 1] * x[:, 1])[:, :, None] * B[:, 1, None, :]
    right = torch.stack([(first * C[:, 0, None]).sum(-1), (second * C[:, 1, None]).sum(-1)], 1) + D * x
    close(submission.selective_scan(x, delta, A, B, C, D), right, says="two steps, worked out by hand")


@part(1)
def test_every_token_has_its_own_step_size(submission, reference, rng):
    x, delta, A, B, C, D = inputs(rng, 2, 9, 3, 4)
    delta = delta * rng.choice([1.0, 1.5])
    delta[:, 4] = 0.0
    delta[:, 6] = rng.uniform(3.0, 5.0, 2, 3)
    right = reference.selective_scan(x, delta, A, B, C, D)
    close(submission.selective_scan(x, delta, A, B, C, D), right, says="one step of size 0 and one large step")
    tiny, D = 1e-6 * delta, torch.zeros_like(D)
    right = reference.selective_scan(x, tiny, A, B, C, D)
    close(submission.selective_scan(x, tiny, A, B, C, D), right, says="steps of about 1e-6, without the skip")


@part(1)
def test_a_step_of_size_zero_is_not_seen_by_later_ones(submission, rng):
    x, delta, A, B, C, D = inputs(rng, 2, 8, 3, 4)
    delta[:, 3] = 0.0
    keep = torch.tensor([0, 1, 2, 4, 5, 6, 7])
    whole = submission.selective_scan(x, delta, A, B, C, D)
    without = submission.selective_scan(x[:, keep], delta[:, keep], A, B[:, keep], C[:, keep], D)
    close(whole[:, keep], without, says="a step of size 0 neither decays nor writes")
    slopes = gradients(submission.selective_scan, (x, delta, A, B, C, D), rng.normal(2, 8, 3))
    check(all(slope is not None for slope in slopes), "each of the six arguments has a gradient")
    check(all(bool(slope.isfinite().all()) for slope in slopes), "gradients stay finite at a step of size 0")


@part(1)
def test_constant_inputs_reduce_to_a_time_invariant_system(submission, rng):
    x, delta, A, B, C, D = inputs(rng, 1, 10, 2, 3, dtype=torch.float64)
    delta, B, C = (tensor[:, :1].expand_as(tensor) for tensor in (delta, B, C))
    decay = torch.exp(delta[0, 0][:, None] * A)  # (d, N)
    write = delta[0, 0][:, None] * B[0, 0]
    taps = torch.stack([(C[0, 0] * decay**lag * write).sum(-1) for lag in range(10)])  # (T, d)
    right = torch.stack([sum(taps[lag] * x[0, t - lag] for lag in range(t + 1)) for t in range(10)])[None] + D * x
    y = submission.selective_scan(x, delta, A, B, C, D)
    close(y, right, says="with delta, B and C constant the scan is a convolution")


@part(1)
def test_without_b_only_the_skip_is_left(submission, rng):
    x, delta, A, B, C, _ = inputs(rng, 2, 5, 3, 4)
    D = rng.uniform(1.5, 2.5, 3)
    close(submission.selective_scan(x, delta, A, torch.zeros_like(B), C, D), D * x, says="with B = 0 the output is D x")


@part(1)
def test_channels_do_not_mix(submission, reference, rng):
    args = inputs(rng, 2, 7, 3, 4)
    changed = args[0].clone()
    changed[..., 1] = rng.normal(2, 7)
    first, second = submission.selective_scan(*args), submission.selective_scan(changed, *args[1:])
    close(second, reference.selective_scan(changed, *args[1:]), says="y after channel 1 of x was changed")
    close(second[..., 0], first[..., 0], says="channel 0 does not depend on channel 1")


@part(1)
def test_sequences_of_a_batch_do_not_mix(submission, reference, rng):
    x, delta, A, B, C, D = inputs(rng, 3, 7, 2, 4)
    alone = submission.selective_scan(x[1:2], delta[1:2], A, B[1:2], C[1:2], D)
    close(alone, reference.selective_scan(x[1:2], delta[1:2], A, B[1:2], C[1:2], D), says="a batch of one")
    whole = submission.selective_scan(x, delta, A, B, C, D)
    close(whole[1:2], alone, says="a sequence gives the same alone and in a batch")


@part(1)
def test_later_tokens_do_not_change_earlier_outputs(submission, reference, rng):
    x, delta, A, B, C, D = inputs(rng, 2, 9, 3, 4)
    start = submission.selective_scan(x[:, :5], delta[:, :5], A, B[:, :5], C[:, :5], D)
    close(
        start,
        reference.selective_scan(x[:, :5], delta[:, :5], A, B[:, :5], C[:, :5], D),
        says="the first 5 steps alone",
    )
    whole = submission.selective_scan(x, delta, A, B, C, D)
    close(whole[:, :5], start, says="the first 5 outputs do not depend on what follows")


@part(1)
def test_each_scan_starts_from_zero(submission, reference, rng):
    first, second = inputs(rng, 2, 6, 3, 4, fast=0.3), inputs(rng, 2, 6, 3, 4, fast=0.3)
    submission.selective_scan(*first)
    close(
        submission.selective_scan(*second),
        reference.selective_scan(*second),
        says="a second sequence, after a first one",
    )
    with torch.no_grad():
        right = reference.selective_scan(*first)
        close(submission.selective_scan(*first), right, says="the first sequence again, under no_grad")


@part(1)
def test_as_many_channels_as_states(submission, reference, rng):
    args = inputs(rng, 2, 7, 4, 4)
    right = reference.selective_scan(*args)
    close(submission.selective_scan(*args), right, says="d = N = 4: B and C are shared by channels, not by states")
    args = inputs(rng, 5, 5, 5, 5)
    close(
        submission.selective_scan(*args), reference.selective_scan(*args), says="batch, time, channels, states: all 5"
    )


@part(1)
def test_one_channel_and_one_state(submission, reference, rng):
    args = inputs(rng, 2, 6, 1, 1)
    close(submission.selective_scan(*args), reference.selective_scan(*args), says="d = 1, N = 1")
    args = inputs(rng, 37, 3, 1, 1)
    close(submission.selective_scan(*args), reference.selective_scan(*args), says="d = 1, N = 1, a batch of 37")


@part(1)
def test_strong_decays_give_no_nan(submission, reference, rng):
    args = strongly_decaying(rng, 30)
    close(submission.selective_scan(*args), reference.selective_scan(*args), says="decays whose product underflows")


@part(1)
def test_a_large_step_forgets_a_huge_past(submission, reference, rng):
    args = with_a_huge_past(rng, 9)
    y, right = submission.selective_scan(*args), reference.selective_scan(*args)
    close(y[:, 3:], right[:, 3:], says="the tokens after a step so large that nothing before it is left")


@part(1)
def test_a_long_slow_system_remembers(submission, reference, rng):
    x, *rest = inputs(rng, 1, 270, 2, 3, dtype=torch.float64, slow=0.001, fast=0.015)
    w, found = rng.normal(1, 2, dtype=torch.float64), []
    for scan in (submission.selective_scan, lambda *args: reference.chunked_selective_scan(*args, 12)):
        own = x.clone().requires_grad_()
        y = scan(own, *rest)
        check(y.requires_grad, "y over 270 steps carries a gradient")
        (w * y[:, -1]).sum().backward()
        found.append((plain(y), own.grad))
    (y, slope), (right, right_slope) = found
    close(y, right, says="y over 270 slowly decaying steps, float64", tol=1e-5)  # the state may be held in float32
    close(slope[:, :-1], right_slope[:, :-1], says="gradient of all earlier tokens from the last of 270", tol=1e-5)


@part(1)
def test_scan_passes_gradients_to_all_six_arguments(submission, reference, rng):
    args, w = inputs(rng, 2, 6, 3, 4, dtype=torch.float64), rng.normal(2, 6, 3, dtype=torch.float64)
    mine, right = (gradients(module.selective_scan, args, w) for module in (submission, reference))
    same_gradients(mine, right, "through the scan")


@part(1)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scan_in_half_precision(submission, reference, rng, dtype):
    args = inputs(rng, 2, 6, 3, 4, dtype=dtype)
    right = reference.selective_scan(*(tensor.double() for tensor in args)).to(dtype)
    close(submission.selective_scan(*args), right, tol=0.15, says="y keeps x's 16-bit dtype")
    w = rng.normal(2, 6, 3, dtype=dtype)
    mine = gradients(submission.selective_scan, args, w)
    same_gradients(mine, rounded_gradients(reference, args, w), f"in {dtype}", tol=0.15)


@part(1)
def test_scan_in_double_precision(submission, reference, rng):
    x, delta, A, B, C, D = inputs(rng, 2, 9, 3, 4, dtype=torch.float64)
    y = submission.selective_scan(x=x, delta=delta, A=A, B=B, C=C, D=D)
    close(y, reference.selective_scan(x, delta, A, B, C, D), says="float64 in, float64 out")


@part(1)
def test_scan_takes_strided_arguments(submission, reference, rng):
    x, delta, A, B, C, D = inputs(rng, 2, 7, 3, 4)
    views = (
        x.transpose(1, 2).contiguous().transpose(1, 2),
        delta.transpose(0, 1).contiguous().transpose(0, 1),
        A.t().contiguous().t(),
        torch.stack([B, C], -1)[..., 0],
        torch.stack([B, C], -1)[..., 1],
        torch.stack([D, D], -1)[:, 0],
    )
    close(submission.selective_scan(*views), reference.selective_scan(*views), says="arguments that are not contiguous")


@part(1)
def test_scan_stays_on_its_device(submission):
    args = [torch.ones(shape, device="meta") for shape in ((2, 5, 3), (2, 5, 3), (3, 4), (2, 5, 4), (2, 5, 4), (3,))]
    on_meta(lambda: submission.selective_scan(*args))


# ------------------------------------------------------------------------------------------ part 2


@part(2)
def test_a_log_starts_at_log_1_to_n_in_every_row(submission, rng):
    d, N = 3, 5
    state = submission.SelectiveSSM(d, N).state_dict()
    check("A_log" in state and "D" in state, "SelectiveSSM has parameters A_log and D")
    right = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]).log().expand(3, 5)
    close(state["A_log"], right, says="A_log of a new module: log(1) to log(N) in every row")


@part(2)
def test_d_starts_at_one(submission, rng):
    state = submission.SelectiveSSM(6, 2).state_dict()
    close(state["D"], torch.ones(6), says="D of a new module", trivial_ok=True)


@part(2)
def test_module_equals_the_reference(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 5, 3)
    x = rng.normal(2, 9, 5)
    close(mine(x), ref(x), says="forward over 9 tokens")


@part(2)
def test_module_with_its_own_decay_rates(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 3, 19, keep=("A_log", "D"))
    state = {name: tensor.detach().clone() for name, tensor in ref.state_dict().items()}
    for shift in (0.0, -3.5):  # small steps: all 19 states last
        for module in (mine, ref):
            module.load_state_dict({**state, "to_delta.bias": state["to_delta.bias"] + shift})
        x = rng.normal(2, 7, 3)
        close(mine(x), ref(x), says="forward with A_log and D as they start")


@part(2)
@pytest.mark.parametrize("T", [1, 2])
def test_module_of_one_or_two_tokens(submission, reference, rng, T):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 5, 3)
    x = rng.normal(3, T, 5)
    close(mine.train()(x), ref(x), says=f"a forward over T = {T}, in training mode")
    close(mine.eval()(x), ref(x), says=f"a forward over T = {T}, in evaluation mode")


@part(2)
def test_module_with_as_many_channels_as_states(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 4, 4)
    x = rng.normal(4, 4, 4)
    close(mine(x), ref(x), says="d = N = B = T = 4")
    h = rng.normal(4, 4, 4)
    close(mine.step(x[:, 1], h), ref.step(x[:, 1], h), says="a step with d = N = B = 4: the output and the next state")


@part(2)
def test_large_inputs_to_delta_stay_finite_in_a_step(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 5, 3)
    x_t, h = 300 * rng.normal(4, 5), rng.normal(4, 5, 3)
    close(mine.step(x_t, h), ref.step(x_t, h), says="inputs of several hundred: the output and the next state")
    w, slopes = rng.normal(4, 5), []
    for module in (mine, ref):
        own = x_t.clone().requires_grad_()
        (w * module.step(own, h)[0]).sum().backward()
        slopes.append(own.grad)
    close(*slopes, says="inputs of several hundred: the gradient of x_t through a step", tol=1e-3)


@part(2)
def test_step_keeps_the_dtype(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 5, 3, dtype=torch.float64)
    x_t, h = rng.normal(2, 5, dtype=torch.float64), rng.normal(2, 5, 3, dtype=torch.float64)
    close(mine.step(x_t, h), ref.step(x_t, h), says="a step in float64: the output and the next state")
    mine.to(torch.bfloat16)
    y_t, _ = mine.step(x_t.to(torch.bfloat16), h.to(torch.bfloat16))
    close(y_t, ref.step(x_t, h)[0].to(torch.bfloat16), tol=0.2, says="the output of a step in bfloat16 is bfloat16")
    w, slopes = rng.normal(2, 5, dtype=torch.float64), []
    for module, dtype in ((mine, torch.bfloat16), (ref, torch.float64)):
        own, state = (tensor.to(dtype).clone().requires_grad_() for tensor in (x_t, h))
        (w.to(dtype) * module.step(own, state)[0]).sum().backward()
        slopes.append((own.grad, state.grad))
    check(all(slope is not None for slope in slopes[0]), "a step in bfloat16 passes gradients to x_t and to h")
    right = tuple(slope.to(torch.bfloat16) for slope in slopes[1])
    close(slopes[0], right, says="the gradients of x_t and h through a step in bfloat16", tol=0.2)


@part(2)
def test_large_inputs_to_delta_stay_finite(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 4, 3)
    x = 200.0 * rng.normal(2, 6, 4)
    close(mine(x), ref(x), says="forward for inputs of size 200: softplus must not overflow")
    w, slopes = rng.normal(2, 6, 4), []
    for module in (mine, ref):
        own = x.clone().requires_grad_()
        (w * module(own)).sum().backward()
        slopes.append(own.grad)
    close(*slopes, says="the gradient of inputs of size 200: softplus must not overflow there either", tol=1e-3)


@part(2)
def test_module_passes_gradients_to_every_parameter(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 4, 3, dtype=torch.float64)
    x, w = rng.normal(2, 5, 4, dtype=torch.float64), rng.normal(2, 5, 4, dtype=torch.float64)
    x_mine, x_ref = x.clone().requires_grad_(), x.clone().requires_grad_()
    (w * mine(x_mine)).sum().backward()
    (w * ref(x_ref)).sum().backward()
    found, right = grads(mine), grads(ref)
    for name in right:
        check(found.get(name) is not None, f"the gradient of {name} is missing")
        close(found[name], right[name], says=f"gradient of {name} through forward")
    check(x_mine.grad is not None, "the gradient of x is missing")
    close(x_mine.grad, x_ref.grad, says="gradient of x through forward")


@part(2)
def test_steps_equal_the_forward(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 5, 3)
    x = rng.normal(2, 7, 5)
    h, full = torch.zeros(2, 5, 3), ref(x)
    for t in range(7):
        y_t, h = mine.step(x[:, t], h)
        close(y_t, full[:, t], says=f"step {t} equals position {t} of the forward")


@part(2)
def test_step_returns_the_next_state(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, d_model=5, d_state=3)
    x_t, h = rng.normal(2, 5), rng.normal(2, 5, 3)
    y_t, state = mine.step(x_t, h=h)
    right_y, right_state = ref.step(x_t, h)
    close(state, right_state, says="the state after one step from a given state")
    close(y_t, right_y, says="the output of one step from a given state")
    x_t, h = rng.normal(5, 2).t(), rng.normal(3, 5, 2).permute(2, 1, 0)
    close(mine.step(x_t, h), ref.step(x_t, h), says="a step whose token and state are not contiguous")


@part(2)
def test_a_state_can_be_continued_twice(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 5, 3)
    prefix, left, right = (rng.normal(2, 5) for _ in range(3))
    _, shared = mine.step(prefix, torch.zeros(2, 5, 3))
    y_left, _ = mine.step(left, shared)
    y_right, _ = mine.step(right, shared)
    for y, last, name in ((y_left, left, "first"), (y_right, right, "second")):
        whole = ref(torch.stack([prefix, last], 1))
        close(y, whole[:, 1], says=f"the {name} continuation of one shared state")


@part(2)
def test_step_leaves_forward_alone(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 4, 3)
    mine.step(rng.normal(2, 4), rng.normal(2, 4, 3))
    x = rng.normal(2, 5, 4)
    close(mine(x), ref(x), says="forward, after a step of another sequence")
    close(mine(x), ref(x), says="forward, a second time")


@part(2)
def test_step_passes_gradients(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 4, 3, dtype=torch.float64)
    x, h = rng.normal(2, 2, 4, dtype=torch.float64), rng.normal(2, 4, 3, dtype=torch.float64)
    w = rng.normal(2, 4, dtype=torch.float64)
    found = []
    for module in (mine, ref):
        x_own, h_own = x.clone().requires_grad_(), h.clone().requires_grad_()
        _, state = module.step(x_own[:, 0], h_own)
        y, _ = module.step(x_own[:, 1], state)
        (w * y).sum().backward()
        found.append((x_own.grad, h_own.grad, grads(module)))
    (x_mine, h_mine, own), (x_ref, h_ref, right) = found
    check(x_mine is not None and h_mine is not None, "the gradients of x_t and h are missing")
    close(h_mine, h_ref, says="gradient of the state through two steps")
    close(x_mine, x_ref, says="gradient of the tokens through two steps")
    for name in right:
        check(own.get(name) is not None, f"the gradient of {name} through step is missing")
        close(own[name], right[name], says=f"gradient of {name} through two steps")


@part(2)
def test_gradients_in_evaluation(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 4, 3)
    mine.eval()
    x, h, w = rng.normal(2, 4), rng.normal(2, 4, 3), rng.normal(2, 4)
    slopes = []
    for module in (mine, ref):
        own, state = x.clone().requires_grad_(), h.clone().requires_grad_()
        y = module.step(own, state)[0] + module(own[:, None])[:, 0]
        check(y.requires_grad, "gradients flow in evaluation mode too: eval() is not no_grad()")
        (w * y).sum().backward()
        slopes.append((own.grad, state.grad))
    check(slopes[0][1] is not None, "the gradient of the state is missing in evaluation mode")
    close(slopes[0], slopes[1], says="the gradients of x and of the state, in evaluation mode", tol=1e-3)


@part(2)
def test_without_gradients_too(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 4, 3)
    x, h = rng.normal(2, 6, 4), rng.normal(2, 4, 3)
    with torch.no_grad():
        close(mine(x), ref(x), says="a forward under no_grad")
        for t in (0, 1):
            close(mine.step(x[:, t], h), ref.step(x[:, t], h), says="a step under no_grad, from one state twice")
        state = {name: 0.6 * tensor for name, tensor in ref.state_dict().items()}
        for module in (mine, ref):
            module.load_state_dict(state)
        close(mine(x), ref(x), says="a forward under no_grad, after the weights changed")
        close(mine.step(x[:, 2], h), ref.step(x[:, 2], h), says="a step under no_grad, after the weights changed")


@part(2)
def test_answers_follow_the_weights_of_now(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 4, 3)
    mine.eval()
    x, h = rng.normal(2, 6, 4), rng.normal(2, 4, 3)
    for says in ("before the weights change", "after the weights changed"):
        close(mine(x), ref(x), says=f"a forward in evaluation mode, {says}")
        close(mine.step(x[:, 0], h), ref.step(x[:, 0], h), says=f"a step in evaluation mode, {says}")
        with torch.no_grad():
            for parameter in ref.parameters():
                parameter.mul_(1.5)
        mine.load_state_dict({name: tensor.detach() for name, tensor in ref.state_dict().items()})


@part(2)
def test_steps_of_other_sizes(submission, reference, rng):
    for batch, d, N in ((1, 4, 3), (3, 1, 4), (2, 3, 1), (1, 1, 1)):
        mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, d, N)
        x_t, h = rng.normal(batch, d), rng.normal(batch, d, N)
        says = f"{batch} sequences, d = {d}, N = {N}"
        close(mine.step(x_t, h), ref.step(x_t, h), says=f"a step of {says}: the output and the next state")
        x = rng.normal(batch, 5, d)
        close(mine(x), ref(x), says=f"a forward over {says}")


@part(2)
def test_step_sizes_of_five_to_eight(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 4, 3)
    state = {name: tensor.detach().clone() for name, tensor in ref.state_dict().items()}
    state["to_delta.weight"] *= 0.3
    state["to_delta.bias"] = rng.uniform(5.2, 7.8, 4)
    mine.load_state_dict(state)
    ref.load_state_dict(state)
    x, h = rng.normal(2, 5, 4), torch.zeros(2, 4, 3)
    says = "where to_delta(x) is 5 to 8, softplus is still 0.0003 to 0.007 above it"
    close(mine(x), ref(x), says=f"forward: {says}", tol=3e-5)
    close(mine.step(x[:, 0], h), ref.step(x[:, 0], h), says=f"a step: {says}", tol=3e-5)


@part(2)
def test_module_in_half_precision(submission, reference, rng):
    mine, ref = pair(submission.SelectiveSSM, reference.SelectiveSSM, 5, 3, dtype=torch.bfloat16)
    x = rng.normal(2, 5, 5, dtype=torch.bfloat16)
    right = ref.double()(x.double()).to(torch.bfloat16)
    close(mine(x), right, tol=0.2, says="a bfloat16 module keeps the dtype")
    w, slopes = rng.normal(2, 5, 5, dtype=torch.bfloat16), []
    for module, dtype in ((mine, torch.bfloat16), (ref, torch.float64)):
        own = x.to(dtype).clone().requires_grad_()
        (w.to(dtype) * module(own)).sum().backward()
        slopes.append(own.grad)
    check(slopes[0] is not None, "a gradient reaches x in a bfloat16 module")
    close(slopes[0], slopes[1].to(torch.bfloat16), says="the gradient of x in a bfloat16 module", tol=0.2)


@part(2)
def test_module_stays_on_its_device(submission):
    module = submission.SelectiveSSM(4, 3).to("meta")
    on_meta(lambda: module(torch.ones(2, 5, 4, device="meta")))


@part(2)
def test_step_stays_on_its_device(submission):
    module = submission.SelectiveSSM(4, 3).to("meta")
    on_meta(lambda: module.step(torch.ones(2, 4, device="meta"), torch.zeros(2, 4, 3, device="meta")))


# ------------------------------------------------------------------------------------------ part 3


@part(3)
@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 6, 12])
def test_chunks_that_divide_and_chunks_that_do_not(submission, reference, rng, chunk):
    args = inputs(rng, 2, 12 if chunk != 5 else 13, 3, 4, slow=0.05, fast=0.6)
    right = reference.selective_scan(*args)
    close(submission.chunked_selective_scan(*args, chunk), right, says=f"{args[0].shape[1]} steps in chunks of {chunk}")


@part(3)
def test_any_chunk_from_one_up_is_accepted(submission, rng):
    args = inputs(rng, 2, 11, 3, 4)
    refused = []
    for chunk in range(1, 14):
        try:
            submission.chunked_selective_scan(*args, chunk)
        except ValueError:
            refused.append(chunk)
    check(not refused, "11 steps can be cut into chunks of any size, dividing or not", seen=tuple(refused))


@part(3)
@pytest.mark.parametrize("chunk", [8, 23])
def test_a_chunk_longer_than_the_sequence(submission, reference, rng, chunk):
    args = inputs(rng, 2, 7, 3, 4)
    close(
        submission.chunked_selective_scan(*args, chunk),
        reference.selective_scan(*args),
        says=f"7 steps, chunk = {chunk}",
    )


@part(3)
def test_other_sizes_in_chunks(submission, reference, rng):
    for batch, d, N in ((1, 3, 4), (2, 1, 3), (2, 3, 1), (1, 1, 1)):
        args = inputs(rng, batch, 7, d, N, slow=0.05, fast=0.6)
        says = f"{batch} sequences of 7, d = {d}, N = {N}, in chunks of 3"
        close(submission.chunked_selective_scan(*args, 3), reference.selective_scan(*args), says=says)


@part(3)
def test_a_sequence_of_one_token_in_chunks(submission, reference, rng):
    args, chunk = inputs(rng, 2, 1, 3, 4), rng.integers(1, 6)
    close(submission.chunked_selective_scan(*args, chunk), reference.selective_scan(*args), says="one token")


@part(3)
@pytest.mark.parametrize("chunk", [2, 5])
def test_equal_sizes_in_chunks(submission, reference, rng, chunk):
    args = inputs(rng, 5, 5, 5, 5)
    close(
        submission.chunked_selective_scan(*args, chunk),
        reference.selective_scan(*args),
        says=f"batch, time, channels, states: all 5, in chunks of {chunk}",
    )


@part(3)
def test_memory_reaches_across_many_chunks(submission, reference, rng):
    """Only the first chunk writes, and hardly anything decays: all later chunks live on what was carried."""
    x, delta, A, B, C, D = inputs(rng, 2, 20, 3, 4, slow=0.01, fast=0.08)
    x[:, 4:] = 0.0
    right = reference.selective_scan(x, delta, A, B, C, D)
    close(
        submission.chunked_selective_scan(x, delta, A, B, C, D, 4), right, says="five chunks, input only in the first"
    )


@part(3)
def test_many_chunks_of_an_odd_number(submission, reference, rng):
    args = inputs(rng, 1, 67, 2, 3, slow=0.02, fast=0.3)
    close(submission.chunked_selective_scan(*args, 3), reference.selective_scan(*args), says="67 steps in chunks of 3")
    with torch.no_grad():
        right = reference.selective_scan(*args)
        close(submission.chunked_selective_scan(*args, 3), right, says="67 steps in chunks of 3, under no_grad")


@part(3)
def test_more_than_a_hundred_chunks_of_one_step(submission, reference, rng):
    args = inputs(rng, 1, 131, 1, 2, slow=0.005, fast=0.05)
    right = reference.selective_scan(*args)
    close(submission.chunked_selective_scan(*args, 1), right, says="131 steps in chunks of 1")


@part(3)
def test_a_second_chunked_scan_knows_nothing_of_the_first(submission, reference, rng):
    with torch.no_grad():
        for which in ("first", "second", "third"):
            args = inputs(rng, 2, 9, 3, 4, slow=0.05, fast=0.6)
            y = submission.chunked_selective_scan(*args, chunk=4)
            says = f"the {which} of three scans of one shape and other numbers, under no_grad"
            close(y, reference.selective_scan(*args), says=says)


@part(3)
def test_a_long_slow_system_remembers_in_chunks(submission, reference, rng):
    x, *rest = inputs(rng, 1, 530, 2, 3, slow=0.001, fast=0.008)
    w, found = rng.normal(1, 2), []
    for module in (submission, reference):
        own = x.clone().requires_grad_()
        y = module.chunked_selective_scan(own, *rest, 23)
        check(y.requires_grad, "y over 530 steps carries a gradient")
        (w * y[:, -1]).sum().backward()
        found.append((plain(y), own.grad))
    (y, slope), (right, right_slope) = found
    close(y, right, says="530 slowly decaying steps in chunks of 23", tol=1e-3)
    close(slope[:, :-1], right_slope[:, :-1], says="gradient of all earlier tokens from the last of 530", tol=1e-3)


@part(3)
def test_long_chunks(submission, reference, rng):
    args = inputs(rng, 1, 83, 2, 3, slow=0.02, fast=0.3)
    close(
        submission.chunked_selective_scan(*args, 37), reference.selective_scan(*args), says="83 steps in chunks of 37"
    )


@part(3)
@pytest.mark.parametrize("chunk", [4, 64])
def test_strong_decays_give_no_nan_in_chunks(submission, reference, rng, chunk):
    args = strongly_decaying(rng, 30)
    right = reference.selective_scan(*args)
    close(submission.chunked_selective_scan(*args, chunk), right, says="decays whose product underflows inside a chunk")


@part(3)
@pytest.mark.parametrize("chunk", [2, 6])
def test_a_large_step_forgets_a_huge_past_in_chunks(submission, reference, rng, chunk):
    args = with_a_huge_past(rng, 11)
    y, right = submission.chunked_selective_scan(*args, chunk), reference.selective_scan(*args)
    close(y[:, 3:], right[:, 3:], says="the tokens after a step so large that nothing before it is left")


@part(3)
@pytest.mark.parametrize("chunk", [3, 4])
def test_steps_of_size_zero_in_chunks(submission, reference, rng, chunk):
    x, delta, A, B, C, D = inputs(rng, 2, 12, 3, 4, slow=0.05, fast=0.6)
    delta[:, 3:6] = 0.0
    right = reference.selective_scan(x, delta, A, B, C, D)
    close(submission.chunked_selective_scan(x, delta, A, B, C, D, chunk), right, says="a chunk without any decay")
    w = rng.normal(2, 12, 3)
    mine = gradients(lambda *own: submission.chunked_selective_scan(*own, chunk), (x, delta, A, B, C, D), w)
    same_gradients(mine, gradients(reference.selective_scan, (x, delta, A, B, C, D), w), "with a chunk without decay")
    tiny, D = 1e-6 * (delta + 0.1), torch.zeros_like(D)
    right = reference.selective_scan(x, tiny, A, B, C, D)
    close(submission.chunked_selective_scan(x, tiny, A, B, C, D, chunk), right, says="steps of about 1e-6, no skip")


@part(3)
@pytest.mark.parametrize("chunk", [3, 16])
def test_chunked_scan_passes_gradients(submission, reference, rng, chunk):
    args, w = inputs(rng, 2, 10, 3, 4, dtype=torch.float64), rng.normal(2, 10, 3, dtype=torch.float64)
    mine = gradients(lambda *own: submission.chunked_selective_scan(*own, chunk), args, w)
    right = gradients(reference.selective_scan, args, w)
    same_gradients(mine, right, "through the chunked scan")


@part(3)
def test_strong_decays_give_finite_gradients(submission, reference, rng):
    args = strongly_decaying(rng, 14)
    w = rng.normal(2, 14, 4)
    mine = gradients(lambda *own: submission.chunked_selective_scan(*own, 5), args, w)
    right = gradients(reference.selective_scan, args, w)
    for gradient, expected, name in zip(mine[:1] + mine[3:], right[:1] + right[3:], ("x", "B", "C", "D"), strict=True):
        check(gradient is not None, f"the gradient of {name} is missing")
        close(gradient, expected, says=f"gradient of {name} where decays underflow", tol=1e-3)
    for gradient, name in zip(mine[1:3], ("delta", "A"), strict=True):
        check(gradient is not None, f"the gradient of {name} is missing")
        check(
            bool(torch.isfinite(gradient).all()), f"the gradient of {name} is finite where decays underflow", gradient
        )


@part(3)
def test_a_chunk_below_one_is_an_error(submission, rng):
    args = inputs(rng, 2, 7, 3, 4)
    for chunk in (0, -1, -rng.integers(2, 9)):
        with raises(ValueError, says=f"chunk = {chunk}"):
            submission.chunked_selective_scan(*args, chunk)


@part(3)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_chunked_scan_in_half_precision(submission, reference, rng, dtype):
    args = inputs(rng, 2, 7, 3, 4, dtype=dtype)
    right = reference.selective_scan(*(tensor.double() for tensor in args)).to(dtype)
    close(submission.chunked_selective_scan(*args, 3), right, tol=0.15, says="y keeps x's 16-bit dtype")
    w = rng.normal(2, 7, 3, dtype=dtype)
    mine = gradients(lambda *own: submission.chunked_selective_scan(*own, 3), args, w)
    same_gradients(mine, rounded_gradients(reference, args, w), f"in {dtype}, in chunks of 3", tol=0.15)


@part(3)
def test_chunked_scan_in_double_precision(submission, reference, rng):
    args = inputs(rng, 2, 29, 3, 4, dtype=torch.float64, slow=0.02, fast=0.4)
    close(submission.chunked_selective_scan(*args, 6), reference.selective_scan(*args), says="float64 in, float64 out")


@part(3)
def test_chunked_scan_takes_strided_arguments(submission, reference, rng):
    x, delta, A, B, C, D = inputs(rng, 2, 8, 3, 4)
    args = (x.transpose(0, 1).contiguous().transpose(0, 1), delta, A.t().contiguous().t(), B[:, :, :], C, D)
    args = (*args[:3], torch.stack([B, C], -1)[..., 0], C.transpose(0, 1).contiguous().transpose(0, 1), D)
    close(
        submission.chunked_selective_scan(*args, 3),
        reference.selective_scan(*args),
        says="arguments that are not contiguous",
    )


@part(3)
def test_chunked_scan_stays_on_its_device(submission):
    args = [torch.ones(shape, device="meta") for shape in ((2, 7, 3), (2, 7, 3), (3, 4), (2, 7, 4), (2, 7, 4), (3,))]
    on_meta(lambda: submission.chunked_selective_scan(*args, 3))
