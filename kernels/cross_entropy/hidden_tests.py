"""What is asked of cross_entropy: losses, log-sum-exps, ignored targets, layouts; bytes, sectors and the compiler."""

PRECISIONS = (torch.float32, torch.float16, torch.bfloat16)


def losses(logits, targets, ignore_index=-100):
    wide = logits.double()
    lse = torch.logsumexp(wide, dim=-1)
    counted = targets != ignore_index
    picked = wide.gather(1, torch.where(counted, targets, 0).long()[:, None])[:, 0]
    return torch.where(counted, lse - picked, 0.0).float(), lse.float()


def inputs(rng, M, V, dtype=torch.float32, scale=2.0):
    return (rng.normal(M, V) * scale).to(dtype), rng.integers(0, V, M)


def apart(rng, M, V, gap, dtype=torch.float32):
    return rng.normal(M, V + gap, dtype=dtype)[:, :V]


@part(1)
def test_small_vocabularies_primes_and_powers_of_two(submission, rng):
    for M, V in ((3, 2), (2, 7), (2, 31), (3, 32), (2, 33), (2, 127), (2, 129)):
        logits, targets = inputs(rng, M, V)
        close(submission.cross_entropy(logits, targets), losses(logits, targets), says=f"{M} tokens, V = {V}")


@part(1)
def test_a_vocabulary_of_one(submission, rng):
    logits, targets = inputs(rng, 3, 1)
    loss, lse = submission.cross_entropy(logits, targets)
    close(lse, logits[:, 0], says="lse of one logit is the logit", trivial_ok=True)
    close(loss + 1, torch.ones(3), says="its loss is 0", trivial_ok=True)


@part(1)
def test_vocabularies_of_several_blocks(submission, rng):
    for M, V in ((2, 1000), (1, 4097), (1, 5003), (2, 12289), (1, 131101)):
        logits, targets = inputs(rng, M, V)
        logits += torch.linspace(0, 20, V)
        close(submission.cross_entropy(logits, targets), losses(logits, targets), says=f"{M} tokens, V = {V}")


@part(1)
def test_many_tokens(submission, rng):
    logits, targets = inputs(rng, 291, 5)
    close(submission.cross_entropy(logits, targets), losses(logits, targets), says="291 tokens, V = 5")


@part(1)
def test_first_and_last_columns_as_targets(submission, rng):
    logits, _ = inputs(rng, 4, 4099)
    targets = torch.tensor([0, 4098, 4096, 4095])
    close(submission.cross_entropy(logits, targets), losses(logits, targets), says="targets at the edges of blocks")


@part(1)
def test_the_maximum_may_come_late_or_early(submission, rng):
    V = 9001
    logits, targets = torch.stack([rng.normal(V), rng.normal(V)]), rng.integers(0, V, 2)
    logits[0] += torch.linspace(0, 200, V)
    logits[1] -= torch.linspace(0, 200, V)
    close(
        submission.cross_entropy(logits, targets), losses(logits, targets), says="logits that rise and that fall by 200"
    )


@part(1)
def test_all_logits_negative(submission, rng):
    logits, targets = rng.uniform(-9, -4, 3, 21), rng.integers(0, 21, 3)
    close(submission.cross_entropy(logits, targets), losses(logits, targets), says="every logit far below 0")


@part(1)
def test_large_logits_do_not_overflow(submission, rng):
    logits, targets = rng.normal(2, 50) * 100, rng.integers(0, 50, 2)
    close(submission.cross_entropy(logits, targets), losses(logits, targets), says="logits up to 300")
    logits, targets = rng.normal(2, 50) + 1e4, rng.integers(0, 50, 2)
    loss, lse = submission.cross_entropy(logits, targets)
    # One step of float32 at 10000 is 0.001, and the loss is a difference of two such numbers.
    close(loss, losses(logits, targets)[0], says="the loss of logits around +10000", tol=5e-3)
    close(lse - 1e4, losses(logits, targets)[1] - 1e4, says="lse of logits around +10000", tol=2e-3)


@part(2)
def test_ignored_targets_have_no_loss_and_their_lse(submission, rng):
    logits, targets = inputs(rng, 6, 45)
    targets[1], targets[4] = -100, -100
    close(submission.cross_entropy(logits, targets), losses(logits, targets), says="two of six targets are ignored")


@part(2)
def test_the_first_and_last_token_ignored(submission, rng):
    logits, targets = inputs(rng, 3, 45)
    targets[0], targets[2] = -100, -100
    close(submission.cross_entropy(logits, targets), losses(logits, targets), says="the first and the last are ignored")


@part(2)
def test_any_negative_ignore_index(submission, rng):
    for ignore in (-1, -7):
        logits, targets = inputs(rng, 4, 45)
        targets[1] = ignore
        got = submission.cross_entropy(logits, targets, ignore)
        close(got, losses(logits, targets, ignore), says=f"ignore_index = {ignore}")


@part(2)
def test_an_ignore_index_that_is_a_column_or_past_the_last(submission, rng):
    for ignore in (0, 7, 11, 1000000):
        logits, targets = inputs(rng, 4, 45)
        targets[1] = ignore
        got = submission.cross_entropy(logits, targets, ignore)
        close(got, losses(logits, targets, ignore), says=f"ignore_index = {ignore}")


@part(2)
def test_half_precision_logits_give_float32_results(submission, rng):
    for dtype in PRECISIONS:
        logits, targets = inputs(rng, 3, 150, dtype)
        targets[1] = -100
        close(submission.cross_entropy(logits, targets), losses(logits, targets), says=f"{dtype}")


@part(2)
def test_int32_targets(submission, rng):
    logits, targets = inputs(rng, 3, 45)
    targets[2] = -100
    got = submission.cross_entropy(logits, targets.int())
    close(got, losses(logits, targets), says="int32 targets")


@part(2)
def test_forbidden_tokens_are_minus_infinity(submission, rng):
    logits, targets = inputs(rng, 3, 9001)
    logits[0, 1:8000], logits[1, :8500], logits[2, ::2] = float("-inf"), float("-inf"), float("-inf")
    logits[0, 0] = 9.0
    targets[0], targets[1], targets[2] = 0, 8999, 4001
    close(submission.cross_entropy(logits, targets), losses(logits, targets), says="whole blocks of -inf")
    logits, targets = rng.normal(1, 12289) + 5, rng.integers(0, 4096, 1)
    logits[0, 4096:8192] = float("-inf")
    close(submission.cross_entropy(logits, targets), losses(logits, targets), says="-inf from 4096 to 8191")


@part(2)
def test_strides_of_logits_and_targets_are_free(submission, rng):
    logits, targets = apart(rng, 4, 43, 7), rng.integers(0, 43, 4, 3)[:, 1]
    close(submission.cross_entropy(logits, targets), losses(logits, targets), says="rows 50 apart, targets 3 apart")
    targets = rng.integers(0, 43, 4, 2).int()[:, 1]
    close(submission.cross_entropy(logits, targets), losses(logits, targets), says="int32 targets 2 apart")
    logits = logits[:1].expand(4, 43)
    close(submission.cross_entropy(logits, targets), losses(logits, targets), says="one row for four targets")
    logits = apart(rng, 4, 44, 1, torch.bfloat16)  # an even width, but no row of a pair's alignment
    targets = rng.integers(0, 44, 4)
    close(submission.cross_entropy(logits, targets), losses(logits, targets), says="rows of 44, 45 apart, bfloat16")


@part(2)
def test_heavy_tails(submission, rng):
    for dtype in (torch.float32, torch.bfloat16):
        logits, targets = (rng.normal(3, 70) ** 5).to(dtype), rng.integers(0, 70, 3)
        close(submission.cross_entropy(logits, targets), losses(logits, targets), says=f"heavy tails, {dtype}")


@part(2)
def test_the_sum_is_float32_inside(submission, rng):
    logits, targets = rng.uniform(-0.01, 0.01, 1, 12000).half(), rng.integers(0, 12000, 1)
    got = submission.cross_entropy(logits, targets)
    close(got, losses(logits, targets), says="12000 nearly equal logits in float16")


@part(2)
def test_the_exponential_is_float32_inside(submission, rng):
    # Every column past the first 4096 has one exponential, whose rounding to half precision would shift the sum.
    for dtype in (torch.float16, torch.bfloat16):
        logits, targets = torch.full((1, 20000), -9.5, dtype=dtype), rng.integers(0, 20000, 1)
        logits[:, 4096:] -= rng.choice([20, 22, 32]) / 16
        _, lse = submission.cross_entropy(logits, targets)
        close(lse, losses(logits, targets)[1], says=f"lse of columns of two sizes in {dtype}", trivial_ok=True)


@part(2)
def test_logits_far_below_zero(submission, rng):
    for V in (50, 9001):
        logits, targets = inputs(rng, 2, V)
        logits -= 6e4
        loss, lse = submission.cross_entropy(logits, targets)
        # One step of float32 at 60000 is 0.004.
        close(loss, losses(logits, targets)[0], says=f"the loss of {V} logits around -60000", tol=1e-2)
        close(lse + 6e4, losses(logits, targets)[1] + 6e4, says=f"lse of {V} logits around -60000", tol=1e-2)


@part(2)
def test_wide_rows_any_distance_apart(submission, rng):
    logits, targets = apart(rng, 3, 5003, 9), rng.integers(0, 5003, 3)
    close(submission.cross_entropy(logits, targets), losses(logits, targets), says="rows of 5003, 5012 apart")


@part(2)
def test_wide_rows_past_two_to_the_31(submission, rng):
    logits, targets = inputs(rng, 3, 5003, torch.float16)
    got, _ = submission.metered("cross_entropy", logits, targets, far={0: 1 << 30})
    close(got, losses(logits, targets), says="rows of 5003, 2^30 numbers apart")


@part(2)
def test_a_large_vocabulary_in_any_layout(submission, rng):
    logits, targets = rng.normal(3, 66001, dtype=torch.float16), rng.integers(0, 66001, 3, 2)[:, 1]
    targets[1] = -100
    got, _ = submission.metered("cross_entropy", logits, targets, far={0: 1 << 30})
    close(got, losses(logits, targets), says="V = 66001, rows 2^30 and targets 2 apart, the middle one ignored")


@part(2)
def test_offsets_past_two_to_the_31(submission, rng):
    logits, targets = inputs(rng, 3, 20, torch.float16)
    got, _ = submission.metered("cross_entropy", logits, targets, far={0: 1 << 30})
    close(got, losses(logits, targets), says="rows 2^30 numbers apart")


@part(2)
def test_programs_in_another_order(submission, rng):
    logits, targets = inputs(rng, 5, 90)
    got, _ = submission.metered("cross_entropy", logits, targets, reverse=True)
    close(got, losses(logits, targets), says="last program first")


@part(3)
def test_each_logit_moves_once(submission, rng):
    for M, V, dtype in ((6, 2048, torch.float32), (2, 16384, torch.bfloat16)):
        logits, targets = inputs(rng, M, V, dtype)
        targets[1] = -100
        got, report = submission.metered("cross_entropy", logits, targets)
        close(got, losses(logits, targets), says="the cost shape's values")
        cost(report, logits.numel() * logits.element_size() + 16 * M, says=f"cross_entropy of ({M}, {V}) {dtype}")


@part(3)
def test_strided_rows_are_not_copied(submission, rng):
    for M, V in ((6, 2048), (2, 66048)):
        logits, targets = apart(rng, M, V, 64, torch.bfloat16), rng.integers(0, V, M)
        got, report = submission.metered("cross_entropy", logits, targets)
        close(got, losses(logits, targets), says="the cost shape's values")
        cost(report, logits.numel() * 2 + 16 * M, says=f"cross_entropy of rows of {V}, {V + 64} apart")


@part(3)
def test_it_compiles_for_real_gpus(submission, rng):
    reports = []
    for V, dtype in ((1000, torch.float16), (32000, torch.bfloat16)):
        logits, targets = inputs(rng, 1, V, dtype)
        got, report = submission.metered("cross_entropy", logits, targets)
        close(got, losses(logits, targets), says=f"V = {V}")
        reports.append(report)
    compiles(reports)
