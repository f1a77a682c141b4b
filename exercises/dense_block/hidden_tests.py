"""Hidden tests of `dense_block`."""

import torch


def backward(module, x, w):
    """Output, and the gradient of x, for the loss sum(module(x) * w)."""
    x = plain(x).requires_grad_()
    y = module(x)
    (y * w).sum().backward()
    return y, x.grad


def same_gradients(mine, ref, tol=1e-3):
    got, expected = grads(mine), grads(ref)
    for name, gradient in expected.items():
        check(got.get(name) is not None, f"a gradient reaches {name}")
        close(got[name], gradient, says=f"the gradient of {name}", tol=tol)


# ------------------------------------------------------------------------------------- part 1: RMSNorm


@part(1)
def test_norm_divides_by_the_root_mean_square_of_each_token(submission, reference, rng):
    dim = rng.integers(6, 12)
    mine, ref = pair(submission.RMSNorm, reference.RMSNorm, dim)
    x = rng.normal(2, 5, dim) * rng.uniform(0.3, 3.0, 2, 5, 1) + rng.uniform(0.5, 1.5)
    close(mine(x), ref(x), says="x / sqrt(mean(x^2) + eps) * weight, token by token")


@part(1)
def test_norm_of_any_leading_axes(submission, reference, rng):
    mine, ref = pair(submission.RMSNorm, reference.RMSNorm, dim=7)
    for shape in ((4, 7), (2, 3, 2, 7), (1, 7), (7,)):
        x = rng.normal(*shape) + 0.7
        close(mine(x), ref(x), says=f"x of shape {shape}")


@part(1)
def test_new_norm_has_weights_of_one(submission, rng):
    norm = submission.RMSNorm(6)
    x = rng.normal(3, 6) * 2 + 1
    expected = x / x.pow(2).mean(-1, keepdim=True).add(1e-6).sqrt()
    close(norm(x), expected, says="a newly built RMSNorm scales by 1")


@part(1)
def test_norm_of_small_rows_shows_where_eps_stands(submission, reference, rng):
    mine, ref = pair(submission.RMSNorm, reference.RMSNorm, 9)
    x = rng.normal(4, 9) * 1e-3 + 5e-4
    close(mine(x), ref(x), says="rows of size 1e-3 under the default eps of 1e-6")
    close(mine.eval()(x), ref(x), says="rows of size 1e-3 under the default eps of 1e-6, in evaluation mode")
    with torch.no_grad():
        close(mine.train()(x), ref(x), says="rows of size 1e-3 under the default eps of 1e-6, under no_grad")


@part(1)
def test_norm_uses_the_eps_it_is_given(submission, reference, rng):
    eps = rng.choice((0.25, 0.5, 1.5))
    mine, ref = pair(submission.RMSNorm, reference.RMSNorm, 8, eps=eps)
    x = (rng.normal(3, 8) + 0.4) * torch.tensor([1.0, 1.0, 1e-3])[:, None]
    close(mine(x), ref(x), says=f"eps = {eps}, the last row of size 1e-3")
    close(mine.eval()(x), ref(x), says=f"eps = {eps}, the last row of size 1e-3, in evaluation mode")
    mine, ref = pair(submission.RMSNorm, reference.RMSNorm, 8, 1e-12)
    for scale in (1e-4, 1e8):
        x = scale * (rng.normal(3, 8) + 0.4)
        close(mine(x), ref(x), says=f"eps = 1e-12, rows of size {scale:.0e}")


@part(1)
def test_norm_of_a_row_of_zeros(submission, reference, rng):
    mine, ref = pair(submission.RMSNorm, reference.RMSNorm, 8)
    x = rng.normal(3, 8)
    x[1] = 0.0
    w = rng.normal(3, 8)
    (y, slope), (expected, expected_slope) = backward(mine, x, w), backward(ref, x, w)
    close(y, expected, says="a row of zeros stays a row of zeros")
    check(slope is not None, "a gradient reaches x")
    close(slope[1], expected_slope[1], says="the gradient of a row of zeros is finite")


@part(1)
def test_norm_gradients(submission, reference, rng):
    dim = rng.integers(6, 10)
    for shape in ((2, 4, dim), (2, 3, 2, dim)):
        mine, ref = pair(submission.RMSNorm, reference.RMSNorm, dim)
        x, w = rng.normal(*shape) + 0.5, rng.normal(*shape)
        (y, slope), (expected, expected_slope) = backward(mine, x, w), backward(ref, x, w)
        close(y, expected, says=f"the result for x of shape {shape}")
        check(slope is not None, "a gradient reaches x")
        close(slope, expected_slope, says=f"the gradient of x of shape {shape}, through the root mean square too")
        same_gradients(mine, ref)


@part(1)
def test_norm_of_large_float16_numbers(submission, reference, rng):
    mine, ref = pair(submission.RMSNorm, reference.RMSNorm, 16, dtype=torch.float16)
    x = (rng.normal(3, 16) * 600 + 300).to(torch.float16)
    y = mine(x)
    check(y.dtype == torch.float16, "the result has x's dtype", seen=str(y.dtype))
    close(y, ref(x), says="float16 numbers of several hundred: the squares are taken in float32", tol=1e-2)
    for scale in (8.0, 2e-6):
        x = ((rng.normal(3, 16) * 600 + 300) * scale).to(torch.float16)
        says = f"float16 numbers of size {600 * scale:.0e}: the squares are taken in float32"
        close(mine(x), ref(x), says=says, tol=1e-2)


@part(1)
def test_norm_in_half_precision(submission, reference, rng):
    for dtype in (torch.bfloat16, torch.float16):
        mine, ref = pair(submission.RMSNorm, reference.RMSNorm, 24, dtype=dtype)
        x, w = (rng.normal(3, 24) + 0.5).to(dtype), rng.normal(3, 24).to(dtype)
        (y, slope), (expected, expected_slope) = backward(mine, x, w), backward(ref, x, w)
        check(y.dtype == dtype, "the result has x's dtype", seen=str(y.dtype))
        close(y, expected, says=f"a norm in {dtype}", tol=4e-2)
        check(slope is not None, f"a gradient reaches x in {dtype}")
        close(slope, expected_slope, says=f"the gradient of x in {dtype}", tol=1e-1)
        same_gradients(mine, ref, tol=1e-1)
        state = {"weight": rng.uniform(150.0, 250.0, 24).to(dtype)}
        for norm in (mine, ref):
            norm.load_state_dict(state)
        x = 400 * x
        close(mine(x), ref(x), says=f"a norm in {dtype}, after its weights became large", tol=4e-2)


@part(1)
def test_norm_in_half_precision_uses_its_eps(submission, reference, rng):
    for dtype in (torch.bfloat16, torch.float16):
        mine, ref = pair(submission.RMSNorm, reference.RMSNorm, 8, eps=rng.choice((0.25, 0.5, 1.5)), dtype=dtype)
        x = (rng.normal(4, 8) + 0.4).to(dtype)
        x[1] = 0.0
        x[2] /= 16
        close(mine(x), ref(x), says=f"{dtype} rows under a large eps, one of them zeros, one small", tol=4e-2)


@part(1)
def test_norm_returns_the_dtype_of_x_when_the_weight_has_another(submission, reference, rng):
    mine, ref = pair(submission.RMSNorm, reference.RMSNorm, 10)
    x = (rng.normal(3, 10) + 0.5).to(torch.bfloat16)
    y = mine(x)
    check(y.dtype == torch.bfloat16, "float32 weight, bfloat16 x: the result is bfloat16", seen=str(y.dtype))
    close(y, ref(x), says="float32 weight, bfloat16 x", tol=4e-2)


@part(1)
def test_norm_returns_float32_under_a_half_precision_weight(submission, reference, rng):
    mine, ref = pair(submission.RMSNorm, reference.RMSNorm, 10, dtype=torch.bfloat16)
    x = rng.normal(3, 10) + 0.5
    y = mine(x)
    check(y.dtype == torch.float32, "bfloat16 weight, float32 x: the result is float32", seen=str(y.dtype))
    close(y, ref(x), says="bfloat16 weight, float32 x", tol=4e-2)


@part(1)
def test_norm_in_float64(submission, reference, rng):
    mine, ref = pair(submission.RMSNorm, reference.RMSNorm, 7, dtype=torch.float64)
    x = rng.normal(3, 7, dtype=torch.float64) + 0.5
    y = mine(x)
    check(y.dtype == torch.float64, "the result has x's dtype", seen=str(y.dtype))
    close(y, ref(x), says="a float64 norm", tol=1e-5)


@part(1)
def test_norm_of_a_non_contiguous_tensor(submission, reference, rng):
    mine, ref = pair(submission.RMSNorm, reference.RMSNorm, 6)
    x = (rng.normal(2, 6, 5) + 0.5).transpose(1, 2)
    close(mine(x), ref(x), says="x is a transposed view")


# -------------------------------------------------------------------------------------- part 1: SwiGLU


@part(1)
def test_swiglu_gates_the_up_projection(submission, reference, rng):
    d_model, d_ff = rng.integers(5, 9), rng.integers(10, 16)
    mine, ref = pair(submission.SwiGLU, reference.SwiGLU, d_model, d_ff)
    x = rng.normal(2, 4, d_model) * 2
    close(mine(x), ref(x), says="w_down(silu(w_gate x) * w_up x)")


@part(1)
def test_swiglu_of_any_leading_axes(submission, reference, rng):
    mine, ref = pair(submission.SwiGLU, reference.SwiGLU, d_model=6, d_ff=11)
    for shape in ((5, 6), (2, 2, 3, 6), (1, 1, 6), (6,), (1100, 6)):
        x = rng.normal(*shape) * 2
        close(mine(x), ref(x), says=f"x of shape {shape}")


@part(1)
def test_swiglu_gradients(submission, reference, rng):
    mine, ref = pair(submission.SwiGLU, reference.SwiGLU, 6, 11)
    x, w = rng.normal(2, 4, 6) * 2, rng.normal(2, 4, 6)
    (y, slope), (expected, expected_slope) = backward(mine, x, w), backward(ref, x, w)
    close(y, expected, says="the result")
    check(slope is not None, "a gradient reaches x")
    close(slope, expected_slope, says="the gradient of x", tol=1e-3)
    same_gradients(mine, ref)


@part(1)
def test_swiglu_in_other_dtypes(submission, reference, rng):
    for dtype, tol in ((torch.float64, 1e-5), (torch.bfloat16, 6e-2), (torch.float16, 2e-2)):
        mine, ref = pair(submission.SwiGLU, reference.SwiGLU, 6, 11, dtype=dtype)
        x, w = rng.normal(2, 4, 6, dtype=dtype), rng.normal(2, 4, 6, dtype=dtype)
        (y, slope), (expected, expected_slope) = backward(mine, x, w), backward(ref, x, w)
        close(y, expected, says=f"SwiGLU in {dtype}", tol=tol)
        check(slope is not None, f"a gradient reaches x in {dtype}")
        close(slope, expected_slope, says=f"the gradient of x in {dtype}", tol=2 * tol)
        same_gradients(mine, ref, tol=2 * tol)


@part(1)
def test_swiglu_with_large_numbers(submission, reference, rng):
    mine, ref = pair(submission.SwiGLU, reference.SwiGLU, 6, 11)
    x, w = rng.normal(3, 6) * 300, rng.normal(3, 6)
    (y, slope), (expected, expected_slope) = backward(mine, x, w), backward(ref, x, w)
    close(y, expected, says="a gate far in its tails does not overflow")
    close(slope, expected_slope, says="nor does its gradient", tol=1e-3)
    mine, ref = pair(submission.SwiGLU, reference.SwiGLU, 6, 11, dtype=torch.float16)
    x = 16 * rng.normal(8, 6, dtype=torch.float16)
    close(mine(x), ref(x), says="in float16 a gate of 12 and more does not overflow", tol=2e-2)


# --------------------------------------------------------------------------------------- part 1: width


@part(1)
def test_width_of_known_models(submission):
    known = [submission.swiglu_width(d, multiple_of=256) for d in (4096, 5120, 8192)]
    same(known, [11008, 13824, 22016], says="Llama 2 7B, Llama 2 13B and LLaMA 65B, multiples of 256")


@part(1)
def test_width_rounds_up_the_exact_product(submission, reference, rng):
    sizes = [(rng.integers(20, 4000), rng.choice((8, 16, 32, 64, 128, 256))) for _ in range(12)]
    same(
        [submission.swiglu_width(d, m) for d, m in sizes],
        [reference.swiglu_width(d, m) for d, m in sizes],
        says=f"widths for (d_model, multiple_of) in {sizes}",
    )


@part(1)
def test_width_in_multiples_of_one(submission):
    same(
        [submission.swiglu_width(d, 1) for d in range(1, 14)] + [submission.swiglu_width(d, 5) for d in range(1, 14)],
        [3, 6, 8, 11, 14, 16, 19, 22, 24, 27, 30, 32, 35, 5, 10, 10, 15, 15, 20, 20, 25, 25, 30, 30, 35, 35],
        says="8d/3 rounded up for d = 1 .. 13; then rounded up to multiples of 5",
    )


@part(1)
def test_width_just_above_a_multiple(submission, reference, rng):
    sizes = []
    for _ in range(6):
        multiple = rng.choice((8, 16, 32, 64))
        d = 3 * multiple * rng.integers(1, 30) // 8 + 1
        sizes.append((d, multiple))
    for multiple in (2, 4, 5, 7, 8):
        sizes += [(d, multiple) for d in range(1, 8)]
    sizes += [(rng.integers(60, 3000), 1) for _ in range(8)]
    same(
        [submission.swiglu_width(d, m) for d, m in sizes],
        [reference.swiglu_width(d, m) for d, m in sizes],
        says=f"widths for (d_model, multiple_of) in {sizes}",
    )


@part(1)
def test_width_that_is_a_multiple_already(submission, rng):
    blocks = [rng.integers(1, 40) for _ in range(4)]
    same(
        [submission.swiglu_width(24 * n, 64) for n in blocks],
        [64 * n for n in blocks],
        says="8d/3 is a multiple of 64 already",
    )


@part(1)
def test_width_defaults_to_multiples_of_64(submission, reference, rng):
    sizes = [rng.integers(30, 5000) for _ in range(5)]
    same(
        [submission.swiglu_width(d) for d in sizes],
        [reference.swiglu_width(d) for d in sizes],
        says=f"default widths for d_model in {sizes}",
    )


# ----------------------------------------------------------------------------------------- part 2: block


@part(2)
def test_block_values(submission, reference, rng):
    mine, ref = pair(submission.TransformerBlock, reference.TransformerBlock, 24, 6, 2, 20)
    x = rng.normal(2, 5, 24) * 2 + 0.5
    close(mine(x), ref(x), says="h = x + attn(norm(x)), then h + ffn(norm(h))")


@part(2)
def test_block_gradients(submission, reference, rng):
    mine, ref = pair(submission.TransformerBlock, reference.TransformerBlock, 16, 4, 2, 13)
    x, w = rng.normal(2, 5, 16) + 0.5, rng.normal(2, 5, 16)
    (y, slope), (expected, expected_slope) = backward(mine, x, w), backward(ref, x, w)
    close(y, expected, says="the result")
    check(slope is not None, "a gradient reaches x")
    close(slope, expected_slope, says="the gradient of x", tol=1e-3)
    same_gradients(mine, ref)


@part(2)
def test_block_with_silent_sublayers_is_the_identity(submission, reference, rng):
    mine, ref = pair(submission.TransformerBlock, reference.TransformerBlock, 12, 3, 1, 10)
    x = rng.normal(2, 4, 12) * 3 + 1
    before, expected = mine(x), ref(x)
    silent = {
        name: torch.zeros_like(tensor) if name.endswith(("o_proj.weight", "w_down.weight")) else tensor
        for name, tensor in mine.state_dict().items()
    }
    mine.load_state_dict(silent)
    # Beside it the block as it was: silent sublayers alone cannot tell where a norm was put in vain.
    says = "with o_proj and w_down zero the stream passes through untouched (first half; then the block before that)"
    close(torch.cat([mine(x), before]), torch.cat([x, expected]), says=says, trivial_ok=True)


@part(2)
def test_block_with_one_silent_sublayer(submission, reference, rng):
    mine, ref = pair(submission.TransformerBlock, reference.TransformerBlock, 12, 3, 3, 10)
    x = rng.normal(2, 4, 12) * 2 + 0.5
    found, expected = [], []
    for silenced in ("o_proj.weight", "w_down.weight"):
        state = {
            name: torch.zeros_like(tensor) if name.endswith(silenced) else tensor.detach()
            for name, tensor in ref.state_dict().items()
        }
        mine.load_state_dict(state)
        before = {name: tensor.clone() for name, tensor in ref.state_dict().items()}
        ref.load_state_dict(state)
        found.append(mine(x))
        expected.append(ref(x))
        ref.load_state_dict(before)
    # Both in one comparison: with one sublayer silent it does not show which norm the other one should have had.
    close(torch.cat(found), torch.cat(expected), says="the block with o_proj zero (first half), then with w_down zero")


@part(2)
def test_block_of_small_numbers(submission, reference, rng):
    mine, ref = pair(submission.TransformerBlock, reference.TransformerBlock, 12, 3, 1, 10)
    x = rng.normal(2, 4, 12) * 1e-3
    close(mine(x), ref(x), says="a stream of size 1e-3: both norms have the default eps")
    # What attention adds is of size 1 and hides the eps of the second norm: silence it.
    state = {
        name: torch.zeros_like(tensor) if name.endswith("o_proj.weight") else tensor.detach()
        for name, tensor in ref.state_dict().items()
    }
    mine.load_state_dict(state)
    ref.load_state_dict(state)
    close(mine(x), ref(x), says="a stream of size 1e-3 that reaches ffn_norm as it is: both norms have the default eps")


@part(2)
def test_block_of_large_numbers(submission, reference, rng):
    mine, ref = pair(submission.TransformerBlock, reference.TransformerBlock, 12, 3, 1, 10)
    x = rng.normal(2, 4, 12) * 50
    close(mine(x) - x, ref(x) - x, says="a stream of size 50: what the block adds does not grow with it", tol=1e-3)


@part(2)
def test_block_with_as_many_key_value_heads_as_query_heads(submission, reference, rng):
    for n_heads, n_kv_heads in ((4, 4), (4, 1), (1, 1)):
        mine, ref = pair(submission.TransformerBlock, reference.TransformerBlock, 16, n_heads, n_kv_heads, d_ff=9)
        x = rng.normal(2, 3, 16) + 0.3
        close(mine(x), ref(x), says=f"{n_heads} query heads, {n_kv_heads} key/value heads")


@part(2)
def test_block_of_one_token(submission, reference, rng):
    mine, ref = pair(submission.TransformerBlock, reference.TransformerBlock, 12, 3, 1, 10)
    x = rng.normal(3, 1, 12) + 0.3
    close(mine(x), ref(x), says="T = 1")
    close(mine(x[:1]), ref(x[:1]), says="B = 1 and T = 1")


@part(2)
def test_block_of_as_many_sequences_as_tokens_and_of_long_ones(submission, reference, rng):
    mine, ref = pair(submission.TransformerBlock, reference.TransformerBlock, 12, 3, 1, 10)
    for batch, length in ((4, 4), (41, 2), (1, 600)):
        x = rng.normal(batch, length, 12)
        close(mine(x), ref(x), says=f"B = {batch} and T = {length}")


@part(2)
def test_block_keeps_no_state(submission, reference, rng):
    mine, ref = pair(submission.TransformerBlock, reference.TransformerBlock, 12, 3, 1, 10)
    x, other = rng.normal(2, 4, 12), rng.normal(1, 6, 12)
    for tensor in (x, other, x):
        close(mine(tensor), ref(tensor), says="a call does not depend on earlier ones")


@part(2)
def test_block_in_training_and_in_evaluation(submission, reference, rng):
    mine, ref = pair(submission.TransformerBlock, reference.TransformerBlock, 12, 3, 1, 10)
    x, other, w = rng.normal(3, 2, 4, 12)
    close(mine.train()(x), ref(x), says="in training mode")
    close(mine.eval()(x), ref(x), says="in evaluation mode")
    (y, slope), (expected, expected_slope) = backward(mine, other, w), backward(ref, other, w)
    close(y, expected, says="in evaluation mode, another x of the same shape")
    check(slope is not None, "a gradient reaches x in evaluation mode")
    close(slope, expected_slope, says="the gradient of x in evaluation mode", tol=1e-3)
    with torch.no_grad():
        close(mine(x), ref(x), says="in evaluation mode, under no_grad")
        state = {name: 1.5 * tensor for name, tensor in ref.state_dict().items()}
        for block in (mine, ref):
            block.load_state_dict(state)
        close(mine(x), ref(x), says="in evaluation mode, under no_grad, after the weights changed")
        half, half_ref = pair(
            submission.TransformerBlock, reference.TransformerBlock, 12, 3, 1, 10, dtype=torch.bfloat16
        )
        x = x.to(torch.bfloat16)
        close(half(x), half_ref(x), says="in bfloat16, under no_grad", tol=6e-2)


@part(2)
def test_block_passes_gradients_in_evaluation(submission, reference, rng):
    mine, ref = pair(submission.TransformerBlock, reference.TransformerBlock, 12, 3, 1, 10)
    x, w = rng.normal(2, 5, 12), rng.normal(2, 5, 12)
    for block in (mine.eval(), ref):
        y = block(x)
        check(y.requires_grad, "gradients flow in evaluation mode too: eval() is not no_grad()")
        (w * y).sum().backward()
    found = grads(mine)
    for name, right in grads(ref).items():
        check(found.get(name) is not None, f"the gradient of {name} is missing in evaluation mode")
        close(found[name], right, says=f"gradient of {name} in evaluation mode", tol=1e-3)


@part(2)
def test_block_in_other_dtypes(submission, reference, rng):
    for dtype, tol in ((torch.float64, 1e-5), (torch.bfloat16, 6e-2)):
        mine, ref = pair(submission.TransformerBlock, reference.TransformerBlock, 12, 3, 1, 10, dtype=dtype)
        x, w = rng.normal(2, 4, 12, dtype=dtype), rng.normal(2, 4, 12, dtype=dtype)
        (y, slope), (expected, expected_slope) = backward(mine, x, w), backward(ref, x, w)
        close(y, expected, says=f"the block in {dtype}", tol=tol)
        check(slope is not None, f"a gradient reaches x in {dtype}")
        close(slope, expected_slope, says=f"the gradient of x in {dtype}", tol=3 * tol)


@part(2)
def test_block_of_a_non_contiguous_tensor(submission, reference, rng):
    mine, ref = pair(submission.TransformerBlock, reference.TransformerBlock, 12, 3, 1, 10)
    x = rng.normal(4, 2, 12).transpose(0, 1)
    close(mine(x), ref(x), says="x is a transposed view")


@part(2)
def test_block_follows_the_device_of_its_input(submission):
    block = submission.TransformerBlock(12, 3, 1, 10)
    block.to("meta")
    on_meta(lambda: block(torch.randn(2, 5, 12, device="meta")))
