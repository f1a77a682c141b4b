"""What is asked of add_rmsnorm: values, layouts, dtypes; then bytes, sectors and the compiler."""

PRECISIONS = (torch.float32, torch.float16, torch.bfloat16)


def normed(x, residual, weight, eps=1e-6):
    h = x.double() + residual.double()
    y = weight.double() * h / torch.sqrt(h.pow(2).mean(dim=-1, keepdim=True) + eps)
    return y.to(x.dtype), h.to(x.dtype)


def inputs(rng, T, D, dtype=torch.float32, scale=1.0):
    weight = (rng.normal(D) + 1).to(dtype)
    return (rng.normal(T, D) * scale).to(dtype), (rng.normal(T, D) * scale).to(dtype), weight


def apart(rng, T, D, gap, dtype=torch.float32):
    return rng.normal(T, D + gap, dtype=dtype)[:, :D]


@part(1)
def test_small_widths_primes_and_powers_of_two(submission, rng):
    for T, D in ((2, 2), (2, 31), (1, 32), (2, 33), (2, 127), (1, 129), (2, 5)):
        x, residual, weight = inputs(rng, T, D)
        close(submission.add_rmsnorm(x, residual, weight), normed(x, residual, weight), says=f"{T} rows of {D}")


@part(1)
def test_a_single_number(submission, rng):
    x, residual, weight = inputs(rng, 1, 1)
    close(
        submission.add_rmsnorm(x, residual, weight + 3), normed(x, residual, weight + 3), says="D = 1", trivial_ok=True
    )


@part(1)
def test_wide_rows(submission, rng):
    for T, D in ((1, 1000), (1, 1023), (2, 1025), (1, 5003), (1, 8193), (1, 16384)):
        x, residual, weight = inputs(rng, T, D)
        close(submission.add_rmsnorm(x, residual, weight), normed(x, residual, weight), says=f"{T} rows of {D}")


@part(1)
def test_many_rows(submission, rng):
    x, residual, weight = inputs(rng, 291, 6)
    close(submission.add_rmsnorm(x, residual, weight), normed(x, residual, weight), says="291 rows of 6")


@part(1)
def test_the_sum_comes_back_unnormalised(submission, rng):
    x, residual, weight = inputs(rng, 2, 45)
    _, h = submission.add_rmsnorm(x, residual, weight)
    close(h, x + residual, says="the second result is x + residual")


@part(1)
def test_the_mean_is_not_subtracted(submission, rng):
    x, residual, weight = inputs(rng, 2, 45)
    close(
        submission.add_rmsnorm(x + 3, residual, weight), normed(x + 3, residual, weight), says="rows with a mean of 3"
    )


@part(2)
def test_eps_is_added_to_the_mean_square(submission, rng):
    x, residual, weight = inputs(rng, 3, 40)
    for scale in (2e-5, 1e-3):
        tiny, small = x * scale, residual * scale
        close(submission.add_rmsnorm(tiny, small, weight), normed(tiny, small, weight), says=f"values near {scale}")


@part(2)
def test_eps_is_the_callers(submission, rng):
    x, residual, weight = inputs(rng, 3, 40)
    for eps in (4.0, 0.5):
        got = submission.add_rmsnorm(x, residual, weight, eps)
        close(got, normed(x, residual, weight, eps), says=f"eps = {eps}")
    x, residual = x * 1e-4, residual * 1e-4
    got = submission.add_rmsnorm(x, residual, weight, 0.0)
    close(got, normed(x, residual, weight, 0.0), says="eps = 0, values near 1e-4")


@part(2)
def test_products_with_the_weight_beyond_float16(submission, rng):
    x, residual, _ = inputs(rng, 2, 40, torch.float16, 200.0)
    weight = 300 + rng.normal(40)
    got = submission.add_rmsnorm(x, residual, weight)
    close(got, normed(x, residual, weight), says="a float32 weight around 300 and values of some hundreds")


@part(2)
def test_eps_is_not_rounded_to_half_precision(submission, rng):
    # The steps of float16 are 6e-8 there: 1.03e-6 is 1.01e-6 or 1.07e-6, and 2e-8 is 0.
    for eps, scale in ((1.03e-6, 1e-5), (2e-8, 1e-4)):
        x, residual, weight = inputs(rng, 2, 40, torch.float16, scale)
        got = submission.add_rmsnorm(x, residual, weight, eps)
        close(got, normed(x, residual, weight, eps), says=f"float16 near sqrt(eps), eps = {eps}")


@part(2)
def test_a_row_of_zeros_gives_zeros(submission, rng):
    x, residual, weight = inputs(rng, 3, 40)
    x[1], residual[1] = 0, 0
    close(submission.add_rmsnorm(x, residual, weight), normed(x, residual, weight), says="the middle row is zero")


@part(2)
def test_row_strides_of_x_and_residual_differ(submission, rng):
    x, residual, weight = apart(rng, 3, 43, 3), apart(rng, 3, 43, 10), rng.normal(43)
    close(submission.add_rmsnorm(x, residual, weight), normed(x, residual, weight), says="rows 46 and 53 apart")
    close(
        submission.add_rmsnorm(x.contiguous(), residual, weight),
        normed(x, residual, weight),
        says="x contiguous, rows of residual 53 apart",
    )
    residual = rng.normal(1, 43).expand(3, 43)
    close(submission.add_rmsnorm(x, residual, weight), normed(x, residual, weight), says="one residual for three rows")
    # An even width, but no row of a pair's alignment.
    x, residual, weight = apart(rng, 3, 44, 1, torch.bfloat16), apart(rng, 3, 44, 3, torch.bfloat16), rng.normal(44)
    close(submission.add_rmsnorm(x, residual, weight), normed(x, residual, weight), says="rows of 44, 45 and 47 apart")


@part(2)
def test_wide_rows_any_distance_apart(submission, rng):
    for D in (3001, 9001):
        x, residual, weight = apart(rng, 3, D, 3), apart(rng, 3, D, 10), rng.normal(D)
        got = submission.add_rmsnorm(x, residual, weight)
        close(got, normed(x, residual, weight), says=f"rows of {D}, {D + 3} and {D + 10} apart")


@part(2)
def test_half_precision_in_and_out(submission, rng):
    for dtype in PRECISIONS:
        x, residual, weight = inputs(rng, 2, 150, dtype)
        close(submission.add_rmsnorm(x, residual, weight), normed(x, residual, weight), says=f"{dtype}")
        close(
            submission.add_rmsnorm(x, residual, weight.float()),
            normed(x, residual, weight.float()),
            says=f"{dtype} with a float32 weight",
        )


@part(2)
def test_squares_that_overflow_half_precision(submission, rng):
    x, residual, weight = inputs(rng, 2, 70, torch.float16, scale=400)
    close(submission.add_rmsnorm(x, residual, weight), normed(x, residual, weight), says="values near 400 in float16")


@part(2)
def test_large_offsets_and_heavy_tails(submission, rng):
    for dtype in (torch.float32, torch.bfloat16):
        x, residual, weight = inputs(rng, 2, 70, dtype)
        x = (x.float() + 1e4).to(dtype)
        close(submission.add_rmsnorm(x, residual, weight), normed(x, residual, weight), says=f"+10000, {dtype}")
        x = (rng.normal(2, 70) ** 5).to(dtype)
        close(submission.add_rmsnorm(x, residual, weight), normed(x, residual, weight), says=f"heavy tails, {dtype}")


@part(2)
def test_a_long_half_precision_row_is_summed_in_float32(submission, rng):
    x, residual = (
        rng.uniform(0.5, 1.5, 1, 4096, dtype=torch.float16),
        rng.uniform(0.5, 1.5, 1, 4096, dtype=torch.float16),
    )
    weight = rng.normal(4096, dtype=torch.float16)
    close(submission.add_rmsnorm(x, residual, weight), normed(x, residual, weight), says="4096 numbers near 2, float16")


@part(2)
def test_offsets_past_two_to_the_31(submission, rng):
    x, residual, weight = inputs(rng, 3, 20, torch.float16)
    for place, name in enumerate(("x", "residual")):
        got, _ = submission.metered("add_rmsnorm", x, residual, weight, far={place: 1 << 30})
        close(got, normed(x, residual, weight), says=f"rows of {name} 2^30 numbers apart")


@part(2)
def test_wide_rows_past_two_to_the_31(submission, rng):
    for D in (3001, 9001):
        x, residual, weight = inputs(rng, 3, D, torch.float16)
        got, _ = submission.metered("add_rmsnorm", x, residual, weight, far={0: 1 << 30, 1: 1 << 30})
        close(got, normed(x, residual, weight), says=f"rows of {D}, 2^30 numbers apart")


@part(2)
def test_programs_in_another_order(submission, rng):
    x, residual, weight = inputs(rng, 5, 45)
    got, _ = submission.metered("add_rmsnorm", x, residual, weight, reverse=True)
    close(got, normed(x, residual, weight), says="last program first")


@part(3)
def test_each_number_moves_once(submission, rng):
    for T, D, dtype in ((6, 1024, torch.float16), (6, 1024, torch.float32), (2, 12288, torch.bfloat16)):
        x, residual, weight = inputs(rng, T, D, dtype)
        got, report = submission.metered("add_rmsnorm", x, residual, weight)
        close(got, normed(x, residual, weight), says="the cost shape's values")
        ideal = (4 * x.numel() + weight.numel()) * x.element_size()
        cost(report, ideal, says=f"add_rmsnorm of ({T}, {D}) {dtype}", rereads=["weight"])


@part(3)
def test_strided_rows_are_not_copied(submission, rng):
    for T, D in ((6, 1024), (2, 9216)):
        x, residual = apart(rng, T, D, 64, torch.bfloat16), apart(rng, T, D, 32, torch.bfloat16)
        weight = rng.normal(D, dtype=torch.bfloat16)
        got, report = submission.metered("add_rmsnorm", x, residual, weight)
        close(got, normed(x, residual, weight), says="the cost shape's values")
        ideal = (4 * x.numel() + D) * 2
        cost(report, ideal, says=f"add_rmsnorm of rows {D + 64} and {D + 32} apart", rereads=["weight"])


@part(3)
def test_it_compiles_for_real_gpus(submission, rng):
    reports = []
    for T, D, dtype in ((2, 1000, torch.float16), (1, 8192, torch.bfloat16)):
        x, residual, weight = inputs(rng, T, D, dtype)
        got, report = submission.metered("add_rmsnorm", x, residual, weight)
        close(got, normed(x, residual, weight), says=f"rows of {D}")
        reports.append(report)
    compiles(reports)
