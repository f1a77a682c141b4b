"""What is asked of softmax: values, long rows, layouts, dtypes; then bytes, sectors and the compiler."""

PRECISIONS = (torch.float32, torch.float16, torch.bfloat16)
LONGEST_ONE_PASS = 32768


def normalised(x):
    return torch.softmax(x.double(), dim=-1).to(x.dtype)


def apart(rng, M, N, gap, dtype=torch.float32):
    return rng.normal(M, N + gap, dtype=dtype)[:, :N]


@part(1)
def test_small_sizes_primes_and_powers_of_two(submission, rng):
    for M, N in ((3, 2), (2, 7), (2, 31), (1, 32), (2, 33), (1, 127), (2, 129)):
        x = rng.normal(M, N) * 2
        close(submission.softmax(x), normalised(x), says=f"{M} rows of {N}")


@part(1)
def test_a_single_number(submission, rng):
    x = rng.normal(3, 1)
    close(submission.softmax(x), normalised(x), says="rows of one number give 1", trivial_ok=True)


@part(1)
def test_wider_rows(submission, rng):
    for M, N in ((2, 1000), (1, 1023), (2, 1025), (1, 5003)):
        x = rng.normal(M, N) * 3
        close(submission.softmax(x), normalised(x), says=f"{M} rows of {N}")


@part(1)
def test_many_rows(submission, rng):
    x = rng.normal(291, 5) * 2
    close(submission.softmax(x), normalised(x), says="291 rows of 5")


@part(1)
def test_rows_that_are_all_negative(submission, rng):
    x = rng.uniform(-9, -4, 3, 21)
    close(submission.softmax(x), normalised(x), says="every entry far below 0")


@part(1)
def test_large_values_do_not_overflow(submission, rng):
    x = rng.normal(2, 50) * 100
    close(submission.softmax(x), normalised(x), says="entries up to 300")
    x = rng.normal(2, 50) + 1e4
    # One step of float32 at 10000 is 0.001: who scales by log2(e) or subtracts a log-sum-exp rounds there.
    close(submission.softmax(x), normalised(x), says="entries around +10000", tol=5e-3)
    x = rng.normal(2, 50) - 6e4
    close(submission.softmax(x), normalised(x), says="entries around -60000", tol=2e-2)
    x = rng.normal(1, 5003) + torch.linspace(0, 200, 5003)
    close(submission.softmax(x), normalised(x), says="a row of 5003 that rises by 200")


@part(1)
def test_equal_entries_have_equal_shares(submission, rng):
    x = rng.integers(-1, 2, 3, 37).float()
    close(submission.softmax(x), normalised(x), says="rows of -1, 0 and 1: the maximum stands there many times")


@part(1)
def test_half_precision_in_and_out(submission, rng):
    for dtype in PRECISIONS:
        x = (rng.normal(2, 150) * 2).to(dtype)
        close(submission.softmax(x), normalised(x), says=f"{dtype}")


@part(2)
def test_rows_longer_than_fit_on_chip(submission, rng):
    for N in (LONGEST_ONE_PASS + 1, 50021, 200003):
        x = rng.normal(1, N) * 2
        close(submission.softmax(x), normalised(x), says=f"a row of {N}")


@part(2)
def test_the_maximum_of_a_long_row_may_come_late_or_early(submission, rng):
    N = 40009
    x = torch.stack([rng.normal(N), rng.normal(N)])
    x[0] += torch.linspace(0, 200, N)
    x[1] -= torch.linspace(0, 200, N)
    close(submission.softmax(x), normalised(x), says="a row that rises by 200, and one that falls by 200")


@part(2)
def test_entries_of_minus_infinity(submission, rng):
    x = rng.normal(4, 45)
    x[0, ::2], x[1, :44], x[2, 20:] = float("-inf"), float("-inf"), float("-inf")
    y = submission.softmax(x)
    close(y, normalised(x), says="some entries are -inf, in one row all but one")
    check(bool((y[x == float("-inf")] == 0).all()), "an entry of -inf has probability 0, not a small one")


@part(2)
def test_whole_blocks_of_minus_infinity(submission, rng):
    x = rng.normal(2, 40009)
    x[0, :33000], x[1, 900:39000] = float("-inf"), float("-inf")
    close(submission.softmax(x), normalised(x), says="a long row that begins, or goes on, with -inf")
    x[0] -= 6e4
    close(
        submission.softmax(x[:1]), normalised(x[:1]), says="a long row that begins with -inf and goes on around -60000"
    )


@part(2)
def test_a_long_row_that_is_all_far_above_zero(submission, rng):
    x = rng.normal(1, 33013) + 1e4
    close(submission.softmax(x), normalised(x), says="a long row around +10000", tol=5e-3)


@part(2)
def test_a_long_row_that_is_all_far_below_zero(submission, rng):
    x = rng.normal(1, 40009) - 6e4
    close(submission.softmax(x), normalised(x), says="a long row around -60000", tol=2e-2)


@part(2)
def test_row_strides_are_free(submission, rng):
    for gap in (3, 10):
        x = apart(rng, 3, 43, gap)
        close(submission.softmax(x), normalised(x), says=f"rows {43 + gap} apart")
    x = apart(rng, 3, 44, 1, torch.bfloat16)  # an even width, but no row of a pair's alignment
    close(submission.softmax(x), normalised(x), says="rows of 44, 45 apart, bfloat16")
    x = apart(rng, 2, 5003, 9)
    close(submission.softmax(x), normalised(x), says="rows of 5003, 5012 apart")
    x = rng.normal(1, 45).expand(3, 45)
    close(submission.softmax(x), normalised(x), says="one row three times, rows 0 apart")
    x = rng.normal(4, 50)
    x[1] += 1e4
    close(submission.softmax(x), normalised(x), says="one row of four around +10000", tol=5e-3)
    x = apart(rng, 2, 33001, 7)
    close(submission.softmax(x), normalised(x), says="long rows 33008 apart")


@part(2)
def test_heavy_tails(submission, rng):
    for dtype in (torch.float32, torch.bfloat16):
        x = (rng.normal(3, 70) ** 5).to(dtype)
        close(submission.softmax(x), normalised(x), says=f"heavy tails, {dtype}")


@part(2)
def test_the_sum_is_float32_inside(submission, rng):
    x = rng.uniform(-1, 1, 1, 8192).half()
    close(submission.softmax(x), normalised(x), says="8192 entries of one size in float16")
    x = rng.uniform(-1, 1, 1, 40009).bfloat16()
    close(submission.softmax(x), normalised(x), says="40009 entries of one size in bfloat16")
    x = rng.uniform(-0.01, 0.01, 1, 70001).half()
    close(submission.softmax(x), normalised(x), says="70001 entries of one size in float16, whose sum is past 65504")


@part(2)
def test_the_difference_from_the_maximum_is_float32(submission, rng):
    # 8 + a step lies between two bfloat16 numbers: who rounds the difference there misses every probability by 3%.
    x = torch.full((2, 16001), -8.0) + rng.choice([-0.0625, -0.125])
    x[:, rng.integers(0, 16001)] = 0.03125
    x = x.bfloat16()
    close(submission.softmax(x), normalised(x), says="one entry 8 and a bit above the others, bfloat16", tol=1e-2)


@part(2)
def test_offsets_past_two_to_the_31(submission, rng):
    for N in (20, 5003):
        x = rng.normal(3, N, dtype=torch.float16)
        y, _ = submission.metered("softmax", x, far={0: 1 << 30})
        close(y, normalised(x), says=f"rows of {N}, 2^30 numbers apart")


@part(2)
def test_long_rows_past_two_to_the_31(submission, rng):
    x = rng.normal(3, 33001, dtype=torch.float16)
    y, _ = submission.metered("softmax", x, far={0: 1 << 30})
    close(y, normalised(x), says="long rows 2^30 numbers apart")


@part(2)
def test_programs_in_another_order(submission, rng):
    x = rng.normal(5, 90)
    y, _ = submission.metered("softmax", x, reverse=True)
    close(y, normalised(x), says="last program first")
    x = rng.normal(2, 33001)
    y, _ = submission.metered("softmax", x, reverse=True)
    close(y, normalised(x), says="last program first, long rows")


@part(3)
def test_a_row_that_fits_is_read_once(submission, rng):
    for M, N, dtype in (
        (8, 1024, torch.float16),
        (6, 1536, torch.float32),
        (2, 6000, torch.bfloat16),
        (1, LONGEST_ONE_PASS, torch.float16),
        (1, 24576, torch.float32),
    ):
        x = rng.normal(M, N, dtype=dtype)
        y, report = submission.metered("softmax", x)
        close(y, normalised(x), says="the cost shape's values")
        cost(report, 2 * x.numel() * x.element_size(), says=f"softmax of ({M}, {N}) {dtype}")


@part(3)
def test_a_longer_row_is_read_at_most_twice(submission, rng):
    x = rng.normal(1, 131072, dtype=torch.float16)
    y, report = submission.metered("softmax", x)
    close(y, normalised(x), says="the cost shape's values")
    cost(report, 2 * x.numel() * 2, says="softmax of (1, 131072) float16", limit=1.6)


@part(3)
def test_strided_rows_are_not_copied(submission, rng):
    x = apart(rng, 6, 1024, 64, torch.bfloat16)
    y, report = submission.metered("softmax", x)
    close(y, normalised(x), says="the cost shape's values")
    cost(report, 2 * x.numel() * 2, says="softmax of rows 1088 apart")
    x = apart(rng, 2, 40960, 64, torch.bfloat16)
    y, report = submission.metered("softmax", x)
    close(y, normalised(x), says="the cost shape's values")
    cost(report, 2 * x.numel() * 2, says="softmax of long rows 41024 apart", limit=1.6)


@part(3)
def test_it_compiles_for_real_gpus(submission, rng):
    reports = []
    for N, dtype in ((1000, torch.float16), (LONGEST_ONE_PASS, torch.float32), (40009, torch.bfloat16)):
        x = rng.normal(1, N, dtype=dtype)
        y, report = submission.metered("softmax", x)
        close(y, normalised(x), says=f"a row of {N}")
        reports.append(report)
    compiles(reports)
