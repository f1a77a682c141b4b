"""What is asked of swiglu: values, layouts, dtypes; then bytes, sectors and the compiler."""

PRECISIONS = (torch.float32, torch.float16, torch.bfloat16)


def gated(a, b):
    wide = a.double()
    return (wide / (1 + torch.exp(-wide)) * b.double()).to(a.dtype)


def halves(rng, T, D, dtype=torch.float32):
    packed = rng.normal(T, 2 * D, dtype=dtype)
    return packed[:, :D], packed[:, D:]


def apart(rng, T, D, gap, dtype=torch.float32):
    return rng.normal(T, D + gap, dtype=dtype)[:, :D]


@part(1)
def test_small_sizes_primes_and_powers_of_two(submission, rng):
    for T, D in ((2, 7), (3, 31), (1, 32), (2, 33), (1, 127), (1, 128), (2, 129), (1, 2), (7, 1)):
        a, b = rng.normal(T, D), rng.normal(T, D)
        close(submission.swiglu(a, b), gated(a, b), says=f"{T} rows of {D}")


@part(1)
def test_a_single_number(submission, rng):
    a, b = rng.normal(1, 1) + 2, rng.normal(1, 1) + 3
    close(submission.swiglu(a, b), gated(a, b), says="one row of one number", trivial_ok=True)


@part(1)
def test_rows_longer_than_a_block(submission, rng):
    for T, D in ((1, 1025), (2, 1023), (1, 2503)):
        a, b = rng.normal(T, D), rng.normal(T, D)
        close(submission.swiglu(a, b), gated(a, b), says=f"{T} rows of {D}")


@part(1)
def test_many_rows(submission, rng):
    a, b = rng.normal(291, 5), rng.normal(291, 5)
    close(submission.swiglu(a, b), gated(a, b), says="291 short rows")


@part(1)
def test_multiples_of_64_that_are_no_whole_blocks(submission, rng):
    for T, D in ((3, 192), (2, 1536), (2, 2112), (1, 7168)):
        a, b = rng.normal(T, D), rng.normal(T, D)
        close(submission.swiglu(a, b), gated(a, b), says=f"{T} rows of {D}")


@part(1)
def test_more_numbers_than_one_round_of_programs(submission, rng):
    a, b = rng.normal(35, 6007), rng.normal(35, 6007)
    close(submission.swiglu(a, b), gated(a, b), says="35 rows of 6007")


@part(1)
def test_a_row_of_many_blocks(submission, rng):
    a, b = rng.normal(1, 33001), rng.normal(1, 33001)
    close(submission.swiglu(a, b), gated(a, b), says="one row of 33001")


@part(1)
def test_only_the_first_argument_is_activated(submission, rng):
    a, b = rng.uniform(1, 4, 2, 50), rng.uniform(-4, -1, 2, 50)
    close(submission.swiglu(a, b), gated(a, b), says="positive a, negative b")
    close(submission.swiglu(b, a), gated(b, a), says="negative a, positive b")


@part(1)
def test_any_size_drawn_at_random(submission, rng):
    for _ in range(2):
        T, D = rng.integers(1, 6), rng.integers(2, 700)
        a, b = rng.normal(T, D), rng.normal(T, D)
        close(submission.swiglu(a, b), gated(a, b), says=f"{T} rows of {D}")


@part(2)
def test_the_two_halves_of_one_projection(submission, rng):
    for T, D in ((3, 24), (4, 37), (2, 1500)):
        a, b = halves(rng, T, D)
        close(submission.swiglu(a, b), gated(a, b), says=f"halves of a ({T}, {2 * D}) tensor")


@part(2)
def test_row_strides_of_a_and_b_differ(submission, rng):
    a, b = apart(rng, 6, 43, 3), apart(rng, 6, 43, 10)
    close(submission.swiglu(a, b), gated(a, b), says="rows of a 46 apart, rows of b 53")
    close(submission.swiglu(a.contiguous(), b), gated(a, b), says="a contiguous, rows of b 53 apart")
    a, b = apart(rng, 7, 1, 3), apart(rng, 7, 1, 4)
    close(submission.swiglu(a, b), gated(a, b), says="one column, its numbers 4 and 5 apart")
    a, b = rng.normal(1, 9).expand(4, 9), apart(rng, 4, 9, 2)
    close(submission.swiglu(a, b), gated(a, b), says="one row of a for four of b, rows of a 0 apart")
    for dtype in (torch.float16, torch.bfloat16):  # an even width, but no row of a pair's or a vector's alignment
        a, b = apart(rng, 5, 24, 1, dtype), apart(rng, 5, 24, 3, dtype)
        close(submission.swiglu(a, b.contiguous()), gated(a, b), says=f"rows of a 25 apart, b contiguous, {dtype}")
        close(submission.swiglu(a.contiguous(), b), gated(a, b), says=f"a contiguous, rows of b 27 apart, {dtype}")


@part(2)
def test_half_precision_in_and_out(submission, rng):
    for dtype in PRECISIONS:
        a, b = halves(rng, 2, 150, dtype)
        close(submission.swiglu(a, b), gated(a, b), says=f"{dtype}")


@part(2)
def test_large_and_heavy_tailed_values(submission, rng):
    for dtype in PRECISIONS:
        a = (rng.normal(2, 200) * 40).to(dtype)
        b = (rng.normal(2, 200) ** 3).to(dtype)
        close(submission.swiglu(a, b), gated(a, b), says=f"a up to 150 either way, {dtype}")
    a, b = (rng.normal(2, 200) * 1e6).bfloat16(), (rng.normal(2, 200) * 1e20).bfloat16()
    close(submission.swiglu(a, b), gated(a, b), says="bfloat16 far beyond float16")
    a, b = rng.uniform(-80, -78, 2, 60), rng.uniform(-2, -1, 2, 60) * 1e30
    close(submission.swiglu(a, b), gated(a, b), says="gates around 1e-33 times b around 1e30")
    a, b = rng.normal(2, 77) + 1e4, rng.normal(2, 77)
    close(submission.swiglu(a, b), gated(a, b), says="a around +10000")
    close(submission.swiglu(-a, b) + b, b, says="a around -10000 gives 0, so adding b gives b", trivial_ok=True)


@part(2)
def test_the_arithmetic_is_float32_inside(submission, rng):
    a = rng.uniform(200, 250, 2, 60, dtype=torch.float16)
    b = rng.uniform(0.5, 200, 2, 60, dtype=torch.float16)
    close(submission.swiglu(a, b), gated(a, b), says="products up to 50000 in float16")
    a = rng.uniform(-15, -13, 2, 60, dtype=torch.float16)
    b = rng.uniform(20000, 60000, 2, 60, dtype=torch.float16)
    close(submission.swiglu(a, b), gated(a, b), says="small gates times large b in float16")
    # silu(-17) is -7e-7: a few steps of float16, had it been rounded before the product.
    a = rng.uniform(-18, -16, 2, 60, dtype=torch.float16)
    b = rng.uniform(20000, 60000, 2, 60, dtype=torch.float16)
    close(submission.swiglu(a, b), gated(a, b), says="smaller gates times large b in float16")


@part(2)
def test_offsets_past_two_to_the_31(submission, rng):
    a, b = rng.normal(3, 20, dtype=torch.float16), rng.normal(3, 20, dtype=torch.float16)
    y, _ = submission.metered("swiglu", a, b, far={0: 1 << 30})
    close(y, gated(a, b), says="rows of a 2^30 numbers apart")
    y, _ = submission.metered("swiglu", a, b, far={1: 1 << 30})
    close(y, gated(a, b), says="rows of b 2^30 numbers apart")
    a, b = rng.normal(3, 2503, dtype=torch.float16), rng.normal(3, 2503, dtype=torch.float16)
    y, _ = submission.metered("swiglu", a, b, far={1: 1 << 30})
    close(y, gated(a, b), says="wide rows of b 2^30 numbers apart")


@part(2)
def test_programs_in_another_order(submission, rng):
    a, b = halves(rng, 5, 90)
    y, _ = submission.metered("swiglu", a, b, reverse=True)
    close(y, gated(a, b), says="last program first")


@part(3)
def test_each_number_moves_once(submission, rng):
    for T, D, dtype in ((6, 512, torch.float16), (6, 512, torch.float32), (2, 4096, torch.float16)):
        a, b = rng.normal(T, D, dtype=dtype), rng.normal(T, D, dtype=dtype)
        y, report = submission.metered("swiglu", a, b)
        close(y, gated(a, b), says="the cost shape's values")
        cost(report, 3 * a.numel() * a.element_size(), says=f"swiglu of ({T}, {D}) {dtype}")


@part(3)
def test_packed_halves_are_not_copied(submission, rng):
    a, b = halves(rng, 6, 512, torch.bfloat16)
    y, report = submission.metered("swiglu", a, b)
    close(y, gated(a, b), says="the cost shape's values")
    cost(report, 3 * a.numel() * 2, says="swiglu of packed (6, 1024) halves")


@part(3)
def test_it_compiles_for_real_gpus(submission, rng):
    reports = []
    for T, D, dtype in ((2, 1000, torch.float16), (1, 4096, torch.bfloat16)):
        a, b = halves(rng, T, D, dtype)
        y, report = submission.metered("swiglu", a, b)
        close(y, gated(a, b), says=f"rows of {D}")
        reports.append(report)
    compiles(reports)
