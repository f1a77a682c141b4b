"""What is asked of rope_: rotations in place, layouts, dtypes; then bytes, sectors and the compiler."""

import math

PRECISIONS = (torch.float32, torch.float16, torch.bfloat16)


def turned(u, cos, sin):
    first, second = u.double().chunk(2, dim=-1)
    cos, sin = cos.double()[:, None], sin.double()[:, None]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(u.dtype)


def angles(rng, T, d, dtype=torch.float32):
    theta = rng.uniform(0, 6.28, T, d // 2)
    return torch.cos(theta).to(dtype), torch.sin(theta).to(dtype)


def inputs(rng, T, H, H_kv, d, dtype=torch.float32):
    return rng.normal(T, H, d, dtype=dtype), rng.normal(T, H_kv, d, dtype=dtype), *angles(rng, T, d)


def rotates(submission, q, k, cos, sin, says, **how):
    """Run rope_ and compare both tensors; the angles must survive."""
    expected = turned(q, cos, sin), turned(k, cos, sin)
    before = cos.clone(), sin.clone()
    _, report = submission.mutating().metered("rope_", q, k, cos, sin, **how)
    # q and k themselves are the inputs now, so the comparison cannot tell a copy of them from an answer.
    close(q, expected[0], says=f"queries, {says}", trivial_ok=True)
    close(k, expected[1], says=f"keys, {says}", trivial_ok=True)
    same(cos, before[0], says="cos is left as it was")
    same(sin, before[1], says="sin is left as it was")
    return report


@part(1)
def test_queries_and_keys_are_rotated(submission, rng):
    for T, H, H_kv, d in ((3, 4, 2, 16), (2, 8, 1, 8), (4, 2, 4, 32)):
        rotates(submission, *inputs(rng, T, H, H_kv, d), says=f"{H} and {H_kv} heads of {d}")


@part(1)
def test_one_token_one_head_one_pair(submission, rng):
    q, k, cos, sin = inputs(rng, 1, 1, 1, 2)
    rotates(submission, q, k, cos, sin, says="one pair")


@part(1)
def test_head_counts_that_are_no_powers_of_two(submission, rng):
    for T, H, H_kv, d in ((3, 6, 3, 16), (2, 7, 5, 8), (2, 12, 3, 4)):
        rotates(submission, *inputs(rng, T, H, H_kv, d), says=f"{H} and {H_kv} heads")


@part(1)
def test_widths_whose_half_is_no_power_of_two(submission, rng):
    for d in (6, 10, 62, 66, 254, 514, 1030):
        rotates(submission, *inputs(rng, 2, 2, 1, d), says=f"heads of {d}")


@part(1)
def test_many_heads(submission, rng):
    for T, H, H_kv, d in ((2, 65, 17, 4), (1, 2, 131, 4), (1, 65, 3, 64), (1, 23, 33, 128)):
        rotates(submission, *inputs(rng, T, H, H_kv, d), says=f"{H} and {H_kv} heads of {d}")


@part(1)
def test_every_token_has_its_own_angles(submission, rng):
    q, k, cos, sin = inputs(rng, 141, 2, 1, 4)
    rotates(submission, q, k, cos, sin, says="141 tokens")


@part(1)
def test_an_angle_of_zero_changes_nothing(submission, rng):
    q, k, cos, sin = inputs(rng, 4, 3, 2, 12)
    cos[2], sin[2] = 1, 0
    rotates(submission, q, k, cos, sin, says="token 2 stays")


@part(1)
def test_a_right_angle_exchanges_the_halves(submission, rng):
    q, k, cos, sin = inputs(rng, 3, 3, 2, 12)
    q[:, :, :6] *= 1e6
    cos[:], sin[:] = 0, rng.choice([1, -1]) * rng.uniform(0.6, 0.8)  # scaled: three quarter turns are not one backwards
    expected = turned(q, cos, sin)
    rotates(submission, q, k, cos, sin, says="90 degrees")
    says = "90 degrees: the new first half is the old second one, whose numbers are small beside their partners"
    close(q[:, :, :6], expected[:, :, :6], says=says, trivial_ok=True)


@part(1)
def test_turning_back_gives_what_was_there(submission, rng):
    q, k, cos, sin = inputs(rng, 4, 3, 2, 12)
    before = q.clone()
    submission.mutating().rope_(q, k, cos, sin)
    submission.rope_(q, k, cos, -sin)
    close(q, before, says="forth and back", trivial_ok=True)


@part(2)
def test_slices_of_one_fused_projection(submission, rng):
    T, H, H_kv, d = 5, 4, 2, 16
    fused = rng.normal(T, H + 2 * H_kv, d)
    cos, sin = angles(rng, T, d)
    rotates(submission, fused[:, :H], fused[:, H : H + H_kv], cos, sin, says="slices of (q, k, v)")


@part(2)
def test_strides_of_tokens_and_heads_are_free(submission, rng):
    q = rng.normal(6, 5, 12)[:, :3, :10]
    k = rng.normal(4, 6, 14).transpose(0, 1)[:, :2, :10]
    cos, sin = rng.normal(6, 9)[:, :5], rng.normal(6, 7)[:, :5]
    rotates(submission, q, k, cos, sin, says="odd strides")
    cos, sin = (part.expand(6, 5) for part in angles(rng, 1, 10))
    rotates(submission, q, k, cos, sin, says="one row of angles for six tokens, rows 0 apart")


@part(2)
def test_heads_first_layout(submission, rng):
    q, k = rng.normal(3, 7, 8).transpose(0, 1), rng.normal(2, 7, 8).transpose(0, 1)
    cos, sin = angles(rng, 7, 8)
    rotates(submission, q, k, cos, sin, says="(H, T, d) transposed to (T, H, d)")


@part(2)
def test_half_precision(submission, rng):
    for dtype in PRECISIONS:
        q, k, cos, sin = inputs(rng, 2, 3, 2, 24, dtype)
        rotates(submission, q, k, cos, sin, says=f"{dtype}, float32 angles")
        q, k, cos, sin = *inputs(rng, 2, 3, 2, 24, dtype)[:2], *angles(rng, 2, 24, dtype)
        rotates(submission, q, k, cos, sin, says=f"{dtype} angles")


@part(2)
def test_large_and_heavy_tailed_values(submission, rng):
    for dtype in (torch.float32, torch.bfloat16):
        q, k, cos, sin = inputs(rng, 2, 3, 2, 24)
        q, k = (q + 1e4).to(dtype), (k**5).to(dtype)
        rotates(submission, q, k, cos, sin, says=f"+10000 and heavy tails, {dtype}")
    q, k, cos, sin = inputs(rng, 2, 3, 2, 24)
    rotates(submission, (q * 1e6).bfloat16(), (k * 1e30).bfloat16(), cos, sin, says="bfloat16 far beyond float16")


@part(2)
def test_products_are_taken_in_float32(submission, rng):
    q, k, cos, sin = inputs(rng, 3, 2, 2, 16)
    q, k = (q + 6e4).clamp(max=6.5e4).half(), (k * 1e3).half()
    theta = rng.uniform(0.1, 0.2, 3, 8)
    cos, sin = 1.5 * torch.cos(theta), 1.5 * torch.sin(theta)
    q[:, :, 8:] = (q[:, :, 8:].float() - 2e4).half()
    cos, sin = cos * 0.5, sin * 0.5
    rotates(submission, q, k, cos, sin, says="near the end of float16")


@part(2)
def test_products_that_nearly_cancel(submission, rng):
    # At 45 degrees the first half is a difference of near-equal products: rounded to half precision they leave noise.
    cases = [(torch.float16, 0.5, 45, torch.float32), (torch.bfloat16, 4.0, 45, torch.float32)]
    cases += [(torch.float16, 0.5, -45, torch.float32), (torch.float16, 0.5, 45, torch.float16)]
    for dtype, step, degrees, angle_dtype in cases:
        q, k = ((512 + step * rng.integers(0, 9, 3, H, 16)).to(dtype) for H in (4, 2))
        angle = torch.full((3, 8), math.radians(degrees))
        cos, sin = torch.cos(angle).to(angle_dtype), torch.sin(angle).to(angle_dtype)
        expected = turned(q, cos, sin), turned(k, cos, sin)
        submission.mutating().rope_(q, k, cos, sin)
        for mine, wanted in zip((q, k), expected, strict=True):
            close(
                mine[:, :, :8], wanted[:, :, :8], says=f"the first half at {degrees} degrees, {dtype}", trivial_ok=True
            )
            says = f"the second half at {degrees} degrees, {dtype}, angles in {angle_dtype}"
            close(mine[:, :, 8:], wanted[:, :, 8:], says=says, trivial_ok=True)


@part(2)
def test_angles_keep_their_digits(submission, rng):
    # Equal halves near 45 degrees: the first half becomes u (cos - sin), a difference that half precision cannot tell.
    for dtype in (torch.float16, torch.bfloat16):
        q, k = (rng.integers(200, 256, 3, H, 8).to(dtype).repeat(1, 1, 2) for H in (4, 2))
        angle = math.pi / 4 + rng.uniform(0.0005, 0.0015, 3, 8)
        cos, sin = torch.cos(angle), torch.sin(angle)
        expected = turned(q, cos, sin), turned(k, cos, sin)
        submission.mutating().rope_(q, k, cos, sin)
        for mine, wanted in zip((q, k), expected, strict=True):
            says = f"float32 angles near 45 degrees, equal halves, {dtype}"
            close(mine[:, :, :8], wanted[:, :, :8], says=says, trivial_ok=True)


@part(2)
def test_offsets_past_two_to_the_31(submission, rng):
    for place, name in enumerate(("q", "k", "cos", "sin")):
        q, k, cos, sin = inputs(rng, 3, 2, 2, 8, torch.float16)
        rotates(submission, q, k, cos, sin, says=f"tokens of {name} 2^30 numbers apart", far={place: 1 << 30})


@part(2)
def test_programs_in_another_order(submission, rng):
    rotates(submission, *inputs(rng, 5, 4, 2, 12), says="last program first", reverse=True)


@part(3)
def test_each_number_moves_once(submission, rng):
    T, d = 6, 128
    for H, H_kv, dtype in ((8, 2, torch.float16), (4, 4, torch.float32)):
        q, k, cos, sin = inputs(rng, T, H, H_kv, d, dtype)
        report = rotates(submission, q, k, cos, sin, says="the cost shape")
        ideal = 2 * T * (H + H_kv) * d * q.element_size() + 4 * T * d
        cost(report, ideal, says=f"rope_ of {H} and {H_kv} heads of {d}", rereads=["cos", "sin"])


@part(3)
def test_slices_are_not_copied(submission, rng):
    T, H, H_kv, d = 6, 8, 2, 64
    fused = rng.normal(T, H + 2 * H_kv, d, dtype=torch.bfloat16)
    cos, sin = angles(rng, T, d)
    report = rotates(submission, fused[:, :H], fused[:, H : H + H_kv], cos, sin, says="the cost shape")
    ideal = 2 * T * (H + H_kv) * d * 2 + 4 * T * d
    cost(report, ideal, says="rope_ of slices of a fused projection", rereads=["cos", "sin"])


@part(3)
def test_it_compiles_for_real_gpus(submission, rng):
    reports = []
    for T, H, H_kv, d, dtype in ((2, 6, 3, 80, torch.float16), (2, 32, 8, 128, torch.bfloat16)):
        q, k, cos, sin = inputs(rng, T, H, H_kv, d, dtype)
        reports.append(rotates(submission, q, k, cos, sin, says=f"{H} heads of {d}"))
    compiles(reports)
