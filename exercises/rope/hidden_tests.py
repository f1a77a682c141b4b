"""Hidden tests of `rope`."""

import math

import torch


def places(count, start=0):
    return torch.arange(start, start + count)


# ------------------------------------------------------------------------------------------------ part 1


@part(1)
def test_angles_of_consecutive_positions(submission, reference, rng):
    for dim in (rng.choice((6, 8)), rng.choice((10, 14))):
        positions = places(rng.integers(5, 9)).to(rng.normal(1).device)
        close(
            submission.rope_angles(positions, dim),
            reference.rope_angles(positions, dim),
            says=f"cosine and sine of m * base^(-2i/d) for d = {dim}",
        )


@part(1)
def test_angles_of_the_worked_example(submission, reference):
    positions = torch.tensor([0, 1, 3])
    angles = torch.tensor([[0.0, 0.0], [1.0, 0.01], [3.0, 0.03]])
    # Beside them more pairs: two frequencies alone cannot tell wrong exponents apart.
    mine = (submission.rope_angles(positions, 4), submission.rope_angles(positions, 10))
    expected = ((angles.cos(), angles.sin()), reference.rope_angles(positions, 10))
    close(mine, expected, says="d = 4: the frequencies are 1 and 0.01; and d = 10")


@part(1)
def test_angles_of_a_single_pair(submission, rng):
    positions = places(rng.integers(4, 8))
    cos, sin = submission.rope_angles(positions, 2)
    close(cos, positions.float().cos()[:, None], says="one pair turns by one radian per position")
    close(sin, positions.float().sin()[:, None], says="one pair turns by one radian per position")


@part(1)
def test_angles_with_another_base(submission, reference, rng):
    positions, dim = places(6, start=rng.integers(1, 4)), 8
    for base in (rng.choice((100.0, 500000.0)), rng.choice((1.5, 1234.5, 2.75))):
        close(
            submission.rope_angles(positions=positions, dim=dim, base=base),
            reference.rope_angles(positions, dim, base),
            says=f"angles for base = {base:g}",
        )


@part(1)
def test_rotation_of_a_batch_of_heads(submission, reference, rng):
    T, dim = rng.integers(5, 8), rng.choice((6, 10))
    x, positions = rng.normal(2, 3, T, dim), places(T)
    close(
        submission.apply_rope(x, positions.to(x.device)),
        reference.apply_rope(x, positions.to(x.device)),
        says="pairs (i, i + d/2) rotated by position",
    )


@part(1)
def test_rotation_of_the_worked_example(submission, reference, rng):
    x, wider = torch.tensor([[1.0, 2.0, 3.0, 4.0]]), rng.normal(1, 10)
    expected = torch.tensor([[-1.984111, 1.959901, 2.462378, 4.019800]])
    one = torch.tensor([1])
    mine = (submission.apply_rope(x, one), submission.apply_rope(wider, one.to(wider.device)))
    expected = (expected, reference.apply_rope(wider, one.to(wider.device)))
    close(mine, expected, says="(1, 2, 3, 4) at position 1; and a row of width 10 there")


@part(1)
def test_rotation_with_any_leading_axes(submission, reference, rng):
    for shape in ((7, 6), (2, 5, 8), (2, 3, 2, 5, 4), (2, 2, 1, 6), (3, 5, 2)):
        x = rng.normal(*shape)
        positions = places(shape[-2], start=2).to(x.device)
        close(
            submission.apply_rope(x, positions),
            reference.apply_rope(x, positions),
            says=f"x of shape {shape}; positions belong to axis -2",
        )


@part(1)
def test_rotation_with_as_many_heads_as_rows(submission, reference, rng):
    for shape in ((5, 5, 5, 6), (4, 4, 4, 4, 6), (6, 6, 6), (4, 4)):
        x = rng.normal(*shape)
        positions = places(shape[-2]).to(x.device)
        close(
            submission.apply_rope(x, positions),
            reference.apply_rope(x, positions),
            says=f"x is {shape}: positions belong to axis -2, whatever sizes the others have",
        )


@part(1)
def test_rotation_with_another_base(submission, reference, rng):
    base = rng.choice((100.0, 500000.0, 1234.5))
    x = rng.normal(2, 6, 8)
    positions = places(6, start=3).to(x.device)
    close(
        submission.apply_rope(x=x, positions=positions, base=base),
        reference.apply_rope(x, positions, base),
        says=f"rotation for base = {base:g}",
    )


@part(1)
def test_position_zero_is_not_rotated(submission, rng):
    x = rng.normal(2, 3, 6)
    zeros = torch.zeros(3, dtype=torch.int64, device=x.device)
    close(submission.apply_rope(x, zeros), x, says="every row at position 0 comes back as it is", trivial_ok=True)


@part(1)
def test_scores_depend_on_the_distance_alone(submission, reference, rng):
    q, k = rng.normal(2, 5, 8), rng.normal(2, 5, 8)
    shift = rng.integers(3, 20)
    mine = submission.apply_rope(q, places(5, start=shift).to(q.device)) @ submission.apply_rope(
        k, places(5, start=shift).to(q.device)
    ).transpose(-2, -1)
    at_zero = places(5).to(q.device)
    expected = reference.apply_rope(q, at_zero) @ reference.apply_rope(k, at_zero).transpose(-2, -1)
    close(mine, expected, says=f"scores do not change when all positions are shifted by {shift}", tol=1e-3)


@part(1)
def test_gradient_reaches_the_rotated_tensor(submission, reference, rng):
    for shape in ((2, 5, 6), (2, 3, 4, 6), (5, 8), (2, 1, 6)):
        x = rng.normal(*shape)
        mine, ref, w = plain(x).requires_grad_(), plain(x).requires_grad_(), rng.normal(*shape)
        positions = places(shape[-2], start=1).to(x.device)
        (submission.apply_rope(mine, positions) * w).sum().backward()
        (reference.apply_rope(ref, positions) * w).sum().backward()
        check(mine.grad is not None, f"a gradient reaches x of shape {shape}")
        close(mine.grad, ref.grad, says=f"the gradient is rotated back, x of shape {shape}")


@part(1)
def test_rotation_of_a_non_contiguous_tensor(submission, reference, rng):
    x = rng.normal(2, 5, 3, 6).transpose(1, 2)
    positions = places(5).to(x.device)
    close(submission.apply_rope(x, positions), reference.apply_rope(x, positions), says="x is a transposed view")


@part(1)
def test_odd_width_is_refused_by_the_angles(submission, rng):
    for dim in (rng.choice((3, 5, 7)), 1):
        with raises(ValueError, says=f"dim = {dim}"):
            submission.rope_angles(places(4), dim)


@part(1)
def test_odd_width_is_refused_by_the_rotation(submission, rng):
    with raises(ValueError, says="an x of odd width"):
        submission.apply_rope(rng.normal(2, 4, rng.choice((5, 7))), places(4))


# ------------------------------------------------------------------------------------------------ part 2


@part(2)
def test_one_row_at_its_position_equals_the_same_row_of_the_whole(submission, reference, rng):
    T = rng.integers(6, 9)
    x = rng.normal(2, 3, T, 8)
    whole = reference.apply_rope(x, places(T).to(x.device))
    for t in range(T - 3, T):
        row = submission.apply_rope(x[:, :, t : t + 1], torch.tensor([t], device=x.device))
        close(row, whole[:, :, t : t + 1], says=f"row {t} rotated alone")


@part(2)
def test_a_chunk_after_a_cache(submission, reference, rng):
    past = rng.integers(4, 30)
    x = rng.normal(2, 5, 6)
    positions = places(5, start=past).to(x.device)
    close(submission.apply_rope(x, positions), reference.apply_rope(x, positions), says=f"positions start at {past}")


@part(2)
def test_positions_in_any_order(submission, reference, rng):
    positions = rng.permutation(40)[:6]
    x = rng.normal(2, 6, 8)
    close(
        submission.apply_rope(x, positions),
        reference.apply_rope(x, positions),
        says="positions that are neither sorted nor consecutive",
    )


@part(2)
def test_gradient_in_other_dtypes(submission, reference, rng):
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        x, w = rng.normal(2, 5, 6, dtype=dtype), rng.normal(2, 5, 6, dtype=dtype)
        mine, ref, positions = plain(x).requires_grad_(), plain(x).requires_grad_(), places(5, start=3).to(x.device)
        (submission.apply_rope(mine, positions) * w).sum().backward()
        (reference.apply_rope(ref, positions) * w).sum().backward()
        check(mine.grad is not None, f"a gradient reaches x in {dtype}")
        close(mine.grad, ref.grad, says=f"the gradient of x in {dtype}", tol=1e-5 if dtype == torch.float64 else 6e-2)


@part(2)
def test_positions_with_gaps_in_memory(submission, reference, rng):
    x, positions = rng.normal(2, 5, 6), rng.permutation(20)[1::4]
    close(submission.apply_rope(x, positions), reference.apply_rope(x, positions), says="positions are every 4th entry")


@part(2)
def test_fractional_positions(submission, reference, rng):
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        positions = torch.cat([rng.uniform(0.25, 9.0, 5, dtype=dtype), rng.uniform(0.002, 0.008, 2, dtype=dtype)])
        close(
            submission.rope_angles(positions, 6),
            reference.rope_angles(positions, 6),
            says=f"fractional positions in {dtype}",
        )


@part(2)
def test_fractional_positions_rotate(submission, reference, rng):
    positions = places(6).to(torch.float32) / 4 + 0.125
    x = rng.normal(2, 6, 8)
    positions = positions.to(x.device)
    close(submission.apply_rope(x, positions), reference.apply_rope(x, positions), says="positions divided by 4")


@part(2)
def test_angles_are_float32_for_positions_of_any_dtype(submission, reference, rng):
    for dtype in (torch.int32, torch.int16, torch.int8, torch.uint8, torch.float64, torch.float16, torch.bfloat16):
        positions = torch.cat([places(5, start=rng.integers(1, 90)), rng.integers(100, 128, 9).cpu()]).to(dtype)
        mine = submission.rope_angles(positions, 6)
        check(
            all(part_.dtype == torch.float32 for part_ in mine),
            f"angles are float32 for {dtype} positions",
            str(mine[0].dtype),
        )
        close(mine, reference.rope_angles(positions, 6), says=f"angles for {dtype} positions")


@part(2)
def test_half_precision_rows_far_from_the_start(submission, reference, rng):
    for dtype in (torch.bfloat16, torch.float16):
        positions = 2 * rng.integers(1100, 2500, 5) + 1
        x = rng.normal(2, 5, 8, dtype=dtype)
        expected = reference.apply_rope(x.float(), positions).to(dtype)
        mine = submission.apply_rope(x, positions)
        check(mine.dtype == dtype, f"the result for {dtype} x has its dtype", seen=str(mine.dtype))
        close(mine, expected, says=f"{dtype} x at positions in the thousands: the angles are float32", tol=4e-2)


@part(2)
def test_half_precision_rows_near_the_start(submission, reference, rng):
    for dtype in (torch.bfloat16, torch.float16):
        x = rng.normal(2, 6, 10, dtype=dtype)
        positions = places(6).to(x.device)
        expected = reference.apply_rope(x.float(), positions).to(dtype)
        mine = submission.apply_rope(x, positions)
        check(mine.dtype == dtype, f"the result for {dtype} x has its dtype", seen=str(mine.dtype))
        close(mine, expected, says=f"{dtype} x, first positions", tol=4e-2)


@part(2)
def test_double_precision_rows(submission, reference, rng):
    x = rng.normal(2, 6, 8, dtype=torch.float64)
    positions = places(6).to(x.device)
    mine = submission.apply_rope(x, positions)
    check(mine.dtype == torch.float64, "the result for float64 x is float64", seen=str(mine.dtype))
    close(mine, reference.apply_rope(x, positions), says="float64 x", tol=1e-5)


@part(2)
def test_positions_far_from_the_start(submission, reference, rng):
    positions = rng.integers(20000, 60000, 6)
    close(
        submission.rope_angles(positions, 8),
        reference.rope_angles(positions, 8),
        says="positions of some ten thousands",
        tol=4e-2,
    )


@part(2)
def test_positions_beyond_a_hundred_thousand(submission, reference, rng):
    for dtype in (torch.int64, torch.int32, torch.float32):
        positions = torch.cat([rng.integers(70000, 130000, 4), rng.integers(200000, 900000, 3)]).to(dtype)
        close(
            submission.rope_angles(positions, 8, 500000.0),
            reference.rope_angles(positions, 8, 500000.0),
            says=f"positions of 70000 to 900000, in {dtype}",
            tol=6e-2,
        )


@part(2)
def test_without_gradients_too(submission, reference, rng):
    x, positions = rng.normal(2, 5, 6), places(5, start=2)
    positions = positions.to(x.device)
    with torch.no_grad():
        close(submission.apply_rope(x, positions), reference.apply_rope(x, positions), says="a call under no_grad")


@part(2)
def test_calls_do_not_depend_on_earlier_calls(submission, reference, rng):
    x = rng.normal(2, 5, 6)
    for start, base in ((0, 10000.0), (7, 10000.0), (7, 500.0), (0, 10000.0)):
        positions = places(5, start=start).to(x.device)
        close(
            submission.apply_rope(x, positions, base),
            reference.apply_rope(x, positions, base),
            says=f"called again with start {start} and base {base:g}",
        )
    for middle in ((1, 2, 3), (3, 1, 2), (2, 2, 3)):
        positions = torch.tensor((0, *middle, 4)).to(x.device)
        close(
            submission.apply_rope(x, positions),
            reference.apply_rope(x, positions),
            says="called again with other positions between the same first and last one",
        )
    wider = rng.normal(2, 5, 10)
    positions = places(5).to(x.device)
    close(submission.apply_rope(wider, positions), reference.apply_rope(wider, positions), says="then a wider x")


@part(2)
def test_one_position_for_several_rows_is_refused(submission, rng):
    with raises(ValueError, says="one position for several rows"):
        submission.apply_rope(rng.normal(2, rng.integers(3, 6), 4), torch.tensor([2]))


@part(2)
def test_several_positions_for_one_row_are_refused(submission, rng):
    with raises(ValueError, says="several positions for one row"):
        submission.apply_rope(rng.normal(2, 1, 4), places(rng.integers(2, 6)))


@part(2)
def test_too_few_or_too_many_positions_are_refused(submission, rng):
    T = rng.integers(4, 7)
    for count in (T - 1, T + 1):
        with raises(ValueError, says=f"{count} positions for {T} rows"):
            submission.apply_rope(rng.normal(2, T, 4), places(count))


@part(2)
def test_positions_are_counted_against_axis_2_alone(submission, rng):
    T, n_heads = rng.integers(6, 9), rng.integers(3, 6)
    for shape in ((2, T, n_heads, 4), (T, n_heads, 4)):
        with raises(ValueError, says=f"{T} positions for x of shape {shape}, which has {n_heads} rows in axis -2"):
            submission.apply_rope(rng.normal(*shape), places(T))


@part(2)
def test_rotation_follows_the_device_of_its_inputs(submission):
    x, positions = torch.randn(2, 3, 5, 6, device="meta"), torch.arange(5, device="meta")
    on_meta(lambda: submission.apply_rope(x, positions))
    on_meta(lambda: submission.rope_angles(positions, 6))


# ------------------------------------------------------------------------------------------------ part 3


@part(3)
def test_rows_move_within_their_heads(submission, reference, rng):
    for n_heads, d_head in ((2, 6), (4, 10), (6, 4)):
        weight = rng.normal(n_heads * d_head, 4 * n_heads)
        close(
            submission.interleaved_to_half_split(weight, n_heads),
            reference.interleaved_to_half_split(weight, n_heads),
            says=f"{n_heads} heads of width {d_head}",
        )


@part(3)
def test_rows_of_the_worked_example(submission):
    rows = torch.arange(8.0)[:, None].repeat(1, 3) + torch.tensor([0.0, 0.25, 0.5])
    moved = submission.interleaved_to_half_split(weight=rows, n_heads=2)
    close(moved, rows[[0, 2, 1, 3, 4, 6, 5, 7]], says="two heads of width 4")
    one = submission.interleaved_to_half_split(rows[:6], 1)
    close(one, rows[[0, 2, 4, 1, 3, 5]], says="one head of width 6")


@part(3)
def test_square_weights_are_permuted_by_rows(submission, reference, rng):
    n_heads = rng.choice((2, 4))
    weight = rng.normal(n_heads * 6, n_heads * 6)
    close(
        submission.interleaved_to_half_split(weight, n_heads),
        reference.interleaved_to_half_split(weight, n_heads),
        says="rows, not columns, of a square weight",
    )


@part(3)
def test_an_odd_number_of_heads(submission, reference, rng):
    n_heads = rng.choice((3, 5))
    weight = rng.normal(n_heads * 8, 12 * n_heads)
    close(
        submission.interleaved_to_half_split(weight, n_heads),
        reference.interleaved_to_half_split(weight, n_heads),
        says=f"{n_heads} heads of width 8",
    )


@part(3)
def test_heads_of_width_two_stay_as_they_are(submission, reference, rng):
    weight, wider = rng.normal(6, 12), rng.normal(24, 12)
    moved = tuple(submission.interleaved_to_half_split(each, 3) for each in (weight, wider))
    expected = (weight, reference.interleaved_to_half_split(wider, 3))
    close(moved, expected, says="one pair per head: nothing moves; then heads of width 8", trivial_ok=True)


@part(3)
def test_converted_weights_give_the_scores_of_the_interleaved_model(submission, reference, rng):
    T, n_heads, d_head, d_model = 5, 2, 6, 8
    wq, wk, x = rng.normal(n_heads * d_head, d_model), rng.normal(n_heads * d_head, d_model), rng.normal(T, d_model)
    positions = places(T, start=3).to(x.device)
    cos, sin = reference.rope_angles(positions, d_head)

    def interleaved(weight):
        y = (x @ weight.T).view(T, n_heads, d_head).transpose(0, 1)
        a, b = y[..., 0::2], y[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)

    def half_split(weight):
        moved = submission.interleaved_to_half_split(weight, n_heads)
        return reference.apply_rope((x @ moved.T).view(T, n_heads, d_head).transpose(0, 1), positions)

    expected = interleaved(wq) @ interleaved(wk).transpose(-2, -1) / math.sqrt(d_head)
    mine = half_split(wq) @ half_split(wk).transpose(-2, -1) / math.sqrt(d_head)
    close(mine, expected, says="scores of the converted model with half-split RoPE")


@part(3)
def test_conversion_keeps_the_dtype(submission, reference, rng):
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        weight = rng.normal(12, 8, dtype=dtype)
        close(
            submission.interleaved_to_half_split(weight, 2),
            reference.interleaved_to_half_split(weight, 2),
            says=f"a weight in {dtype}",
            tol=1e-9,
        )


@part(3)
def test_gradient_reaches_the_converted_weight(submission, reference, rng):
    weight, w = rng.normal(12, 8), rng.normal(12, 8)
    mine, ref = plain(weight).requires_grad_(), plain(weight).requires_grad_()
    (submission.interleaved_to_half_split(mine, 2) * w).sum().backward()
    (reference.interleaved_to_half_split(ref, 2) * w).sum().backward()
    check(mine.grad is not None, "a gradient reaches the weight")
    close(mine.grad, ref.grad, says="the gradient goes back to the rows it came from")


@part(3)
def test_conversion_of_a_non_contiguous_weight(submission, reference, rng):
    weight = rng.normal(8, 12).T
    close(
        submission.interleaved_to_half_split(weight, 2),
        reference.interleaved_to_half_split(weight, 2),
        says="a weight that is a transposed view",
    )


@part(3)
def test_rows_that_do_not_divide_are_refused(submission, rng):
    for rows, n_heads in ((14, 3), (22, 5), (10, 3)):  # rows // n_heads is even twice, so only the division is at fault
        with raises(ValueError, says=f"{rows} rows and {n_heads} heads"):
            submission.interleaved_to_half_split(rng.normal(rows, 4 * n_heads), n_heads)


@part(3)
def test_more_heads_than_rows_are_refused(submission, rng):
    with raises(ValueError, says="4 rows and 8 heads"):
        submission.interleaved_to_half_split(rng.normal(4, 16), 8)


@part(3)
def test_heads_of_odd_width_are_refused(submission, rng):
    n_heads = rng.choice((2, 4))
    with raises(ValueError, says="heads of odd width"):
        submission.interleaved_to_half_split(rng.normal(n_heads * 5, 12 * n_heads), n_heads)


@part(3)
def test_conversion_follows_the_device_of_the_weight(submission):
    on_meta(lambda: submission.interleaved_to_half_split(torch.randn(12, 8, device="meta"), 2))


# ------------------------------------------------------------- second paths: long, wide, other bases, boundaries


@part(1)
def test_a_long_sequence_of_wide_rows(submission, reference, rng):
    for shape in ((700, 2), (5, 320), (2, 600, 6)):
        x, positions = rng.normal(*shape), torch.arange(shape[-2])
        got, expected = submission.apply_rope(x, positions), reference.apply_rope(x, positions)
        close(got, expected, says=f"x {shape}", tol=2e-3)


@part(1)
def test_a_large_base_and_a_single_pair(submission, reference, rng):
    for shape, base in (((3, 5, 8), 5e7), ((2, 5, 2), 100.0), ((4, 6), 5e5)):
        x, positions = rng.normal(*shape), 2000 + torch.arange(shape[-2])
        got, expected = submission.apply_rope(x, positions, base), reference.apply_rope(x, positions, base)
        close(got, expected, says=f"x {shape}, base {base}", tol=2e-3)


@part(1)
def test_width_one_and_missing_positions_are_refused(submission, rng):
    with raises(ValueError, says="apply_rope of width 1"):
        submission.apply_rope(rng.normal(4, 1), torch.arange(4))
    with raises(ValueError, says="no position for four rows"):
        submission.apply_rope(rng.normal(4, 6), torch.arange(0))


@part(2)
def test_another_base_in_other_dtypes(submission, reference, rng):
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        x, positions = rng.normal(2, 5, 8, dtype=dtype), 30 + torch.arange(5)
        got, expected = submission.apply_rope(x, positions, 50.0), reference.apply_rope(x, positions, 50.0)
        close(got, expected, says=f"base 50 in {dtype}", tol=4e-2 if dtype == torch.bfloat16 else 6e-3)


@part(2)
def test_positions_of_a_small_integer_dtype(submission, reference, rng):
    for dtype, last in ((torch.int16, 32700), (torch.int8, 127), (torch.uint8, 255)):
        x, positions = rng.normal(2, 5, 6), (last - 3 * torch.arange(5)).to(dtype)
        got, expected = submission.apply_rope(x, positions), reference.apply_rope(x, positions)
        close(got, expected, says=f"{dtype} positions up to {last}", tol=2e-2)


@part(2)
def test_angles_after_a_move_use_nothing_old(submission, reference, rng):
    positions = rng.permutation(9)
    close(submission.rope_angles(positions, 10), reference.rope_angles(positions, 10), says="angles of nine positions")
    on_meta(
        lambda: submission.rope_angles(torch.empty(9, dtype=torch.long, device="meta"), 10)[0],
        says="angles of the same size as before on another device: what was kept stayed on the old one",
    )


@part(3)
def test_many_wide_and_single_heads(submission, reference, rng):
    for rows, width, n_heads in ((40 * 4, 3, 40), (2 * 128, 3, 2), (8, 8, 1), (12, 1, 2)):
        weight = rng.normal(rows, width)
        with torch.set_grad_enabled(rng.choice((True, False))):
            got = submission.interleaved_to_half_split(weight, n_heads)
        close(
            got, reference.interleaved_to_half_split(weight, n_heads), says=f"{n_heads} heads, weight {rows} x {width}"
        )


@part(3)
def test_conversion_without_gradients(submission, reference, rng):
    weight = rng.normal(12, 5)
    with torch.no_grad():
        got = submission.interleaved_to_half_split(weight, 2)
    close(got, reference.interleaved_to_half_split(weight, 2), says="under no_grad")


@part(3)
def test_heads_of_width_one_are_refused(submission, rng):
    with raises(ValueError, says="four heads of width 1"):
        submission.interleaved_to_half_split(rng.normal(4, 3), 4)
