"""The meter against exact, hand-computed values, and against kernels that are wrong in one known way."""

import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no wheel for this platform")

from grader.meter import triton_meter
from grader.meter.triton_meter import run_metered
from grader.meter.triton_meter_memory import far_apart
from grader.meter.triton_records import FaultKind

sys.path.insert(0, os.path.dirname(__file__))
import triton_samples as samples


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(5)


def metered(function, *args, **kwargs):
    call = run_metered(function, args, kwargs)
    if call.error is not None:
        raise call.error
    return call


def faults(call):
    return {fault.kind for fault in call.report.faults}


def test_one_pass_softmax_moves_each_byte_once():
    x = torch.randn(100, 160)
    call = metered(samples.softmax, x)
    report = call.report
    torch.testing.assert_close(call.result, torch.softmax(x, -1))
    assert report.moved_bytes() == 128_000
    assert (report.loaded_bytes("x"), report.stored_bytes("result")) == (64_000, 64_000)
    assert report.unique_bytes() == 128_000
    assert report.sector_ratio() == 1.0
    assert (report.launches, report.programs, report.dot_flops) == (1, 100, 0)
    assert report.faults == ()


def test_three_pass_softmax_moves_twice_as_much_of_the_same_addresses():
    report = metered(samples.softmax, torch.randn(100, 160), passes=3).report
    assert report.moved_bytes() == 256_000
    assert report.unique_bytes() == 128_000
    assert report.faults == ()


def test_column_order_touches_eight_times_the_sectors():
    report = metered(samples.copy_columns, torch.randn(64, 48)).report
    assert report.moved_bytes() == 2 * 64 * 48 * 4
    assert report.sector_ratio() == 8.0


def test_two_runs_give_the_same_report():
    x = torch.randn(7, 33)
    assert metered(samples.softmax, x).report == metered(samples.softmax, x).report


def test_counts_follow_the_mask_and_the_dtype():
    x = torch.randn(3, 5, dtype=torch.float16)
    report = metered(samples.softmax, x).report
    assert report.moved_bytes() == 2 * 3 * 5 * 2


def test_a_broadcast_pointer_is_one_address():
    report = metered(samples.spread, torch.randn(16)).report
    assert report.loaded_bytes("w") == 64


def test_dot_counts_two_m_n_k():
    a, b = torch.randn(16, 32), torch.randn(32, 8)
    call = metered(samples.matmul, a, b)
    torch.testing.assert_close(call.result, a @ b)
    assert call.report.dot_flops == 2 * 16 * 8 * 32


def test_dot_of_bfloat16_accumulates_in_float32():
    a, b = torch.randn(16, 32).bfloat16(), torch.randn(32, 8).bfloat16()
    torch.testing.assert_close(metered(samples.matmul, a, b).result, a.float() @ b.float())


def test_a_load_past_the_end_is_named_by_line_argument_and_offset():
    call = run_metered(samples.add, (torch.randn(100), torch.randn(100)), {"load_extra": 1})
    (fault,) = [fault for fault in call.report.faults if fault.kind is FaultKind.OUT_OF_BOUNDS_LOAD]
    assert (fault.kernel, fault.argument, fault.tensor, fault.offset) == ("add_kernel", "a_ptr", "a", 100)
    source = Path(samples.__file__).read_text().splitlines()[fault.line - 1]
    assert "tl.load(a_ptr + at" in source
    assert call.error is not None and "element 100 of a_ptr" in str(call.error)


def test_a_store_past_the_end_is_named_and_harms_nobody():
    a = torch.randn(100)
    call = run_metered(samples.add, (a, torch.randn(100)), {"store_extra": 28})
    (fault,) = [fault for fault in call.report.faults if fault.kind is FaultKind.OUT_OF_BOUNDS_STORE]
    assert (fault.argument, fault.offset, fault.count) == ("y_ptr", 100, 28)


def test_one_element_past_a_row_is_found_inside_the_storage_too():
    wide = torch.randn(4, 9)
    call = run_metered(samples.row_sums, (wide[:, :7],), {"past": 1})
    (fault,) = [fault for fault in call.report.faults if fault.kind is FaultKind.OUT_OF_BOUNDS_LOAD]
    assert "gap between two of its rows" in fault.message
    contiguous = run_metered(samples.row_sums, (torch.randn(4, 7),), {"past": 1})
    (fault,) = [fault for fault in contiguous.report.faults if fault.kind is FaultKind.OUT_OF_BOUNDS_LOAD]
    assert fault.offset == 28


def test_rows_with_gaps_pass_when_the_gaps_are_left_alone():
    wide = torch.randn(4, 9)
    call = metered(samples.row_sums, wide[:, :7])
    torch.testing.assert_close(call.result, wide[:, :7].sum(1))
    assert call.report.faults == ()


def test_an_unwritten_last_block_is_found():
    call = metered(samples.add, torch.randn(100), torch.randn(100), skip=1)
    (fault,) = call.report.faults
    assert (fault.kind, fault.tensor, fault.count, fault.offset) == (FaultKind.UNWRITTEN, "result", 36, 64)
    assert call.result[64:].isnan().all()


def test_a_racing_counter_is_a_write_conflict_and_an_atomic_one_is_not():
    x = torch.randn(100)
    racing = metered(samples.count_positive, x, atomic=False)
    assert FaultKind.WRITE_CONFLICT in faults(racing)
    right = metered(samples.count_positive, x)
    assert right.result.item() == (x > 0).sum().item()
    assert right.report.faults == ()
    assert sum(row.atomics for row in right.report.traffic) == 4


def test_reading_what_another_program_stored_is_a_race_unless_an_atomic_orders_it():
    assert faults(metered(samples.relay, torch.randn(3, 16))) == {FaultKind.READ_RACE}
    x = torch.randn(100)
    ordered = metered(samples.last_block_sum, x)
    torch.testing.assert_close(ordered.result[0], x.sum())
    assert ordered.report.faults == ()


@pytest.mark.parametrize("how", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32])
def test_lanes_without_other_are_not_zero(how, dtype):
    x = torch.arange(-9, 10).to(dtype)
    expected = getattr(torch, how)(x.float())
    assert metered(samples.undefined, x, how=how).result.float()[0] != expected
    assert metered(samples.undefined, x.float(), how="selected").result[0] == x.float().sum()


def test_an_offset_that_wraps_in_32_bits_is_called_that():
    rows = torch.randn(3, 10).half()
    try:
        far = far_apart(rows, 1 << 30)
    except OSError as problem:
        pytest.skip(f"this system reserves too little address space: {problem}")
    right = metered(samples.gather_rows, far)
    assert torch.equal(right.result, rows)
    assert right.report.faults == ()
    assert right.report.loaded_bytes("x") == 60
    wrong = run_metered(samples.gather_rows, (far,), {"wide": False})
    assert faults(wrong) == {FaultKind.OFFSET_OVERFLOW}


def test_helpers_constexpr_functions_and_globals():
    x = torch.randn(50)
    call = metered(samples.triple, x)
    torch.testing.assert_close(call.result, 3 * x)
    assert call.report.faults == ()


def test_two_launches_of_one_kernel_are_told_apart_by_tensor():
    report = metered(samples.doubles_twice, torch.randn(50), torch.randn(20)).report
    assert (report.loaded_bytes("x"), report.loaded_bytes("z"), report.stored_bytes("result")) == (200, 80, 280)
    assert (report.launches, report.programs) == (2, 3)


@pytest.mark.parametrize("n", [100, 128])
def test_autotune_and_heuristics_run_without_a_driver_and_are_counted_once(n):
    x = torch.randn(n)
    call = metered(samples.tuned_double, x)
    torch.testing.assert_close(call.result, 2 * x)
    assert call.report.moved_bytes() == 8 * n
    assert call.report.launches == 1
    assert call.report.faults == ()


def test_tuning_reruns_a_kernel_that_adds_to_its_output():
    x = torch.ones(77)
    assert metered(samples.tuned_sum, x).result.item() > 77
    assert metered(samples.tuned_sum, x).result.item() == 77


def test_tensor_descriptors_are_metered_like_pointers():
    x = torch.randn(8, 40)
    call = metered(samples.described_double, x)
    torch.testing.assert_close(call.result, 2 * x)
    assert call.report.moved_bytes() == 2 * 8 * 40 * 4
    assert {row.tensor for row in call.report.traffic} == {"x", "result"}
    assert call.report.faults == ()


def test_block_and_scalar_conditions_mix():
    x = torch.randn(6, 10)
    torch.testing.assert_close(metered(samples.scalar_mask, x).result, x + 1)


def test_other_zero_on_one_lane():
    x = torch.tensor([3.0, 5.0, 4.0])
    assert metered(samples.differences, x).result.tolist() == [3.0, 2.0, -1.0]


@pytest.mark.parametrize("op", ["add", "mul", "sub", "neg", "max", "where", "round", "abs"])
def test_bfloat16_is_exact_to_the_bit(op):
    a, b = (torch.randn(512) * 10 ** torch.randint(-20, 20, (512,)).float()).bfloat16(), torch.randn(512).bfloat16()
    a[:6] = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 3.3895e38])
    expected = {
        "add": a + b,
        "mul": a * b,
        "sub": a - b,
        "neg": -a,
        "abs": a.abs(),
        "max": torch.where(a.isnan(), b, torch.maximum(a, b)),
        "where": torch.where(a > b, a, b),
        "round": (a.float() * 1.2345678).bfloat16(),
    }[op]
    result = metered(samples.bfloat16, a, b, op=op).result
    both_nan = result.isnan() & expected.isnan()
    assert torch.equal(result.view(torch.int16)[~both_nan], expected.view(torch.int16)[~both_nan])


def test_a_scan_and_a_sort_of_a_whole_block_are_quick_and_right():
    a, b = torch.rand(512), torch.randn(512)
    h, expected = torch.zeros(()), []
    for t in range(512):
        h = h * a[t] + b[t]
        expected.append(h)
    torch.testing.assert_close(metered(samples.recurrence, a, b).result, torch.stack(expected))
    assert torch.equal(metered(samples.sort, b).result, b.sort().values)


def test_a_loop_variable_is_a_tensor_as_on_a_gpu():
    x = torch.randn(5, 20)
    call = metered(samples.loops, x)
    torch.testing.assert_close(call.result, x + 1)
    assert call.report.faults == ()


def test_a_fall_back_to_torch_names_the_operation():
    call = metered(samples.falls_back, torch.randn(8, 8))
    assert [fault.tensor for fault in call.report.faults if fault.kind is FaultKind.TORCH_OP] == ["_softmax"]


def test_a_swallowed_fault_is_reported_all_the_same():
    call = metered(samples.swallows, torch.randn(4, 7))
    assert FaultKind.OUT_OF_BOUNDS_LOAD in faults(call)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("numpy_result", FaultKind.NO_KERNEL),
        ("numpy_into_output", FaultKind.UNWRITTEN),
        ("numpy_then_kernel", FaultKind.FOREIGN),
        ("numpy_buffer_then_kernel", FaultKind.HOST_WRITE),
        ("numpy_module_buffer_then_kernel", FaultKind.HOST_WRITE),
        ("numpy_kept_workspace_then_kernel", FaultKind.HOST_WRITE),
        ("numpy_numbers_then_kernel", FaultKind.TORCH_OP),
        ("list_numbers_then_kernel", FaultKind.TORCH_OP),
        ("uses_registered_arithmetic", FaultKind.TORCH_OP),
        ("returns_input", FaultKind.NO_KERNEL),
        ("returns_copy", FaultKind.NO_KERNEL),
    ],
)
def test_work_done_outside_the_kernels_is_found(name, kind):
    assert kind in faults(metered(getattr(samples, name), torch.randn(32)))


def test_casts_and_copies_are_allowed_and_counted():
    x = torch.randn(40).half()
    call = metered(samples.cast_result, x)
    assert call.report.faults == ()
    torch.testing.assert_close(call.result, (3 * x.float()).half())
    assert call.report.moved_bytes() == (80 + 160) + (160 + 160) + (160 + 80)


@pytest.mark.parametrize(
    "name",
    [
        "uses_module_constant",
        "uses_class_attribute",
        "uses_kept_workspace",
        "uses_registered_operator",
        "asks_for_types",
    ],
)
def test_what_a_launcher_keeps_registers_or_asks_is_its_own_business(name):
    for _ in range(3):
        assert metered(getattr(samples, name), torch.randn(32)).report.faults == ()


def test_what_an_earlier_call_wrote_is_no_result_of_this_one():
    def twice(x):
        return samples.uses_kept_workspace(x) if first else samples.Workspace.made_by_a_call

    first = True
    assert metered(twice, torch.randn(32)).report.faults == ()
    first = False
    assert faults(metered(twice, torch.randn(32))) == {FaultKind.UNWRITTEN}


def test_an_earlier_result_is_no_result_of_this_call():
    earlier = metered(samples.returns_kept_workspace, torch.randn(32)).result
    assert faults(metered(lambda x: earlier, torch.randn(32))) == {FaultKind.NO_KERNEL}


def test_what_nobody_keeps_is_forgotten():
    for _ in range(3):
        metered(samples.uses_registered_operator, torch.randn(32))
    assert [home for home in triton_meter._kept if home.label != "scratch" or not home.is_in_use] == []
    samples.Workspace.made_by_a_call = None
    metered(samples.uses_registered_operator, torch.randn(32))
    assert triton_meter._kept == []


def test_rows_that_are_one_memory_may_be_arguments():
    x = torch.randn(1, 5).expand(3, 5)
    torch.testing.assert_close(metered(samples.softmax, x).result, torch.softmax(x, -1))


def test_atomic_extremes_of_floats():
    x = torch.randn(7, 9)
    assert metered(samples.extremes, x).result.tolist() == [x.max().item(), x.min().item()]


def test_tuples_with_names_and_constant_tuples():
    x = torch.randn(3, 5)
    torch.testing.assert_close(metered(samples.takes_tuples, x).result, 3 * x)


def test_a_launch_that_no_gpu_takes_is_refused():
    call = run_metered(samples.odd_warps, (torch.randn(32),))
    assert "num_warps must be a power of two" in str(call.error)


def test_the_interpreter_is_as_it_was_afterwards():
    from triton.runtime import interpreter

    before = (interpreter._patch_lang, interpreter.GridExecutor.__call__, interpreter.interpreter_semantic.builder)
    run_metered(samples.add, (torch.randn(100), torch.randn(100)), {"load_extra": 1})
    after = (interpreter._patch_lang, interpreter.GridExecutor.__call__, interpreter.interpreter_semantic.builder)
    assert before == after
    assert samples.tl.max.__class__.__name__ == "InterpretedFunction"
