"""Kernels and launchers for the meter's own tests: right ones in many styles, and wrong ones."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

SCALE = tl.constexpr(3.0)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n, BLOCK: tl.constexpr, PASSES: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    if PASSES == 3:
        x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=-float("inf")).to(tl.float32)
    total = tl.sum(tl.exp(x - top), axis=0)
    if PASSES == 3:
        x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=-float("inf")).to(tl.float32)
    tl.store(y_ptr + row * y_stride + columns, tl.exp(x - top) / total, mask=inside)


def softmax(x, passes=1):
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](x, y, x.stride(0), y.stride(0), x.shape[1], BLOCK=block, PASSES=passes)
    return y


@triton.jit
def copy_columns_kernel(x_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK) * columns + tl.program_id(0)
    inside = tl.arange(0, BLOCK) < rows
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=inside), mask=inside)


def copy_columns(x):
    y = torch.empty_like(x)
    copy_columns_kernel[(x.shape[1],)](x, y, *x.shape, BLOCK=triton.next_power_of_2(x.shape[0]))
    return y


@triton.jit
def add_kernel(a_ptr, b_ptr, y_ptr, n, LOAD_EXTRA: tl.constexpr, STORE_EXTRA: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(a_ptr + at, mask=at < n + LOAD_EXTRA, other=0.0)
    b = tl.load(b_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, a + b, mask=at < n + STORE_EXTRA)


def add(a, b, load_extra=0, store_extra=0, skip=0):
    y = torch.empty_like(a)
    grid = (triton.cdiv(a.numel(), 64) - skip,)
    add_kernel[grid](a, b, y, a.numel(), LOAD_EXTRA=load_extra, STORE_EXTRA=store_extra, BLOCK=64)
    return y


@triton.jit
def row_reader_kernel(x_ptr, y_ptr, x_stride, n, past, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + at, mask=at < n + past, other=0.0)
    tl.store(y_ptr + row, tl.sum(x, axis=0))


def row_sums(x, past=0):
    y = torch.empty(x.shape[0], dtype=x.dtype)
    block = triton.next_power_of_2(x.shape[1] + 1)
    row_reader_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], past, BLOCK=block)
    return y


@triton.jit
def counter_kernel(x_ptr, count_ptr, n, ATOMIC: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = tl.sum((tl.load(x_ptr + at, mask=at < n, other=0.0) > 0).to(tl.int32), axis=0)
    if ATOMIC:
        tl.atomic_add(count_ptr, found)
    else:
        tl.store(count_ptr, tl.load(count_ptr) + found)


def count_positive(x, atomic=True):
    count = torch.zeros(1, dtype=torch.int32)
    counter_kernel[(triton.cdiv(x.numel(), 32),)](x, count, x.numel(), ATOMIC=atomic, BLOCK=32)
    return count


@triton.jit
def relay_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    me = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    before = tl.zeros([BLOCK], dtype=tl.float32)
    if me > 0:
        before = tl.load(y_ptr + (me - 1) * BLOCK + at)
    tl.store(y_ptr + me * BLOCK + at, before + tl.load(x_ptr + me * BLOCK + at))


def relay(x):
    y = torch.empty_like(x)
    relay_kernel[(x.shape[0],)](x, y, BLOCK=x.shape[1])
    return y


@triton.jit
def last_block_kernel(x_ptr, partial_ptr, ticket_ptr, y_ptr, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    me = tl.program_id(0)
    at = me * BLOCK + tl.arange(0, BLOCK)
    tl.store(partial_ptr + me, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), axis=0))
    if tl.atomic_add(ticket_ptr, 1) == tl.num_programs(0) - 1:
        parts = tl.arange(0, PARTS)
        partial = tl.load(partial_ptr + parts, mask=parts < tl.num_programs(0), other=0.0)
        tl.store(y_ptr, tl.sum(partial, axis=0))


def last_block_sum(x):
    blocks = triton.cdiv(x.numel(), 32)
    partial, y = torch.empty(blocks), torch.empty(1)
    ticket = torch.zeros(1, dtype=torch.int32)
    last_block_kernel[(blocks,)](x, partial, ticket, y, x.numel(), PARTS=triton.next_power_of_2(blocks), BLOCK=32)
    return y


@triton.jit
def undefined_kernel(x_ptr, y_ptr, n, HOW: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    if HOW == "sum":
        tl.store(y_ptr, tl.sum(x, axis=0))
    elif HOW == "max":
        tl.store(y_ptr, tl.max(x, axis=0))
    elif HOW == "min":
        tl.store(y_ptr, tl.min(x, axis=0))
    else:
        tl.store(y_ptr, tl.sum(tl.where(at < n, x, 0.0), axis=0))


def undefined(x, how):
    y = torch.empty(1, dtype=x.dtype)
    undefined_kernel[(1,)](x, y, x.numel(), HOW=how, BLOCK=triton.next_power_of_2(x.numel() + 1))
    return y


@triton.jit
def far_kernel(x_ptr, y_ptr, stride, n, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    if WIDE:
        row = row.to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < n)
    tl.store(y_ptr + tl.program_id(0) * n + at, x, mask=at < n)


def gather_rows(x, wide=True):
    y = torch.empty(x.shape, dtype=x.dtype)
    far_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], WIDE=wide, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


@triton.jit
def _triple(x):
    return x * SCALE


@triton.jit
def helper_kernel(x_ptr, y_ptr, n, act: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(y_ptr + at, act(tl.load(x_ptr + at, mask=inside, other=0.0)), mask=inside)


def triple(x):
    y = torch.empty_like(x)
    helper_kernel[(triton.cdiv(x.numel(), 32),)](x, y, x.numel(), act=_triple, BLOCK=32)
    return y


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((32, 2), (64, 4), (128, 8))],
    key=["n"],
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned_kernel(x_ptr, y_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(y_ptr + at, tl.load(x_ptr + at) * 2)
    else:
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


def tuned_double(x):
    y = torch.empty_like(x)
    tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y


@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (32, 64)], key=["n"])
@triton.jit
def tuned_sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), axis=0))


def tuned_sum(x):
    y = torch.zeros(1)
    tuned_sum_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y


@triton.jit
def described_kernel(x_desc, y_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    out = tl.make_tensor_descriptor(y_ptr, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    for column in range(0, columns, COLUMNS):
        out.store([0, column], x_desc.load([0, column]) * 2)


def described_double(x):
    y = torch.empty_like(x)
    desc = TensorDescriptor.from_tensor(x, [8, 16])
    described_kernel[(1,)](desc, y, x.shape[0], x.shape[1], ROWS=8, COLUMNS=16)
    return y


@triton.jit
def scalar_mask_kernel(x_ptr, y_ptr, rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for i in range(ROWS):
        row = tl.program_id(0) * ROWS + i
        inside = (at < n) & (row < rows)
        tl.store(y_ptr + row * n + at, tl.load(x_ptr + row * n + at, mask=inside, other=0.0) + 1, mask=inside)


def scalar_mask(x):
    y = torch.empty_like(x)
    scalar_mask_kernel[(triton.cdiv(x.shape[0], 4),)](x, y, *x.shape, ROWS=4, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


@triton.jit
def one_lane_kernel(x_ptr, y_ptr, n):
    me = tl.program_id(0)
    before = tl.load(x_ptr + me - 1, mask=me > 0, other=0.0)
    tl.store(y_ptr + me, tl.load(x_ptr + me) - before)


def differences(x):
    y = torch.empty_like(x)
    one_lane_kernel[(x.numel(),)](x, y, x.numel())
    return y


@triton.jit
def bfloat16_kernel(a_ptr, b_ptr, y_ptr, OP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    if OP == "add":
        y = a + b
    elif OP == "mul":
        y = a * b
    elif OP == "sub":
        y = a - b
    elif OP == "neg":
        y = -a
    elif OP == "max":
        y = tl.maximum(a, b)
    elif OP == "where":
        y = tl.where(a > b, a, b)
    elif OP == "round":
        y = (a.to(tl.float32) * 1.2345678).to(tl.bfloat16)
    else:
        y = tl.abs(a)
    tl.store(y_ptr + at, y)


def bfloat16(a, b, op):
    y = torch.empty_like(a)
    bfloat16_kernel[(1,)](a, b, y, OP=op, BLOCK=a.numel())
    return y


@triton.jit
def matmul_kernel(a_ptr, b_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    tl.store(y_ptr + m[:, None] * N + n[None, :], tl.dot(a, b))


def matmul(a, b):
    y = torch.empty(a.shape[0], b.shape[1])
    matmul_kernel[(1,)](a, b, y, a.shape[0], b.shape[1], a.shape[1])
    return y


@triton.jit
def _linear(a0, b0, a1, b1):
    return a0 * a1, b0 * a1 + b1


@triton.jit
def recurrence_kernel(a_ptr, b_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    _, h = tl.associative_scan((tl.load(a_ptr + at), tl.load(b_ptr + at)), 0, _linear)
    tl.store(y_ptr + at, h)


def recurrence(a, b):
    y = torch.empty_like(a)
    recurrence_kernel[(1,)](a, b, y, BLOCK=a.numel())
    return y


@triton.jit
def loop_kernel(x_ptr, y_ptr, rows, n, BLOCK: tl.constexpr):
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        base = row.to(tl.int64) * n
        for start in tl.range(0, n, BLOCK):
            at = base + start + tl.arange(0, BLOCK)
            inside = start + tl.arange(0, BLOCK) < n
            for step in tl.static_range(2):
                tl.store(y_ptr + at, tl.load(x_ptr + at, mask=inside) + (step * 1), mask=inside)


def loops(x):
    y = torch.empty_like(x)
    loop_kernel[(2,)](x, y, *x.shape, BLOCK=8)
    return y


@triton.jit
def sort_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.sort(tl.load(x_ptr + at)))


def sort(x):
    y = torch.empty_like(x)
    sort_kernel[(1,)](x, y, BLOCK=x.numel())
    return y


@triton.jit
def broadcast_pointer_kernel(w_ptr, y_ptr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows, at = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    w = tl.load(w_ptr + at[None, :] + rows[:, None] * 0)
    tl.store(y_ptr + rows[:, None] * BLOCK + at[None, :], w)


def spread(w):
    y = torch.empty(4, w.numel())
    broadcast_pointer_kernel[(1,)](w, y, ROWS=4, BLOCK=w.numel())
    return y


def falls_back(x):
    y = torch.empty_like(x)
    try:
        add_kernel[(1,)](x, x, y, x.numel(), LOAD_EXTRA=0, STORE_EXTRA=0, BLOCK=100)  # not a power of two
    except Exception:
        return torch.softmax(x, dim=-1)
    return y


def swallows(x):
    try:
        return row_sums(x, past=1)
    except Exception:
        y = torch.empty(x.shape[0])
        row_reader_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], 0, BLOCK=triton.next_power_of_2(x.shape[1]))
        return y


def numpy_result(x):
    import numpy as np

    return torch.from_numpy(np.exp(x.numpy()))


def numpy_into_output(x):
    import numpy as np

    y = torch.empty_like(x)
    y.numpy()[...] = np.exp(x.numpy())
    return y


def numpy_then_kernel(x):
    import numpy as np

    return triple(torch.from_numpy(np.exp(x.numpy()) / 3))


def numpy_buffer_then_kernel(x):
    import numpy as np

    scratch = torch.empty_like(x)
    scratch.numpy()[...] = np.exp(x.numpy()) / 3
    return triple(scratch)


def cast_result(x):
    return triple(x.float()).to(x.dtype).contiguous()


def returns_input(x):
    triple(x)
    return x


def returns_copy(x):
    triple(x)
    return x.clone()


def numpy_numbers_then_kernel(x):
    import numpy as np

    y = torch.empty_like(x)
    for place, value in enumerate(np.exp(x.numpy())):
        fill_kernel[(1,)](y, place, float(value))
    return y


def list_numbers_then_kernel(x):
    y = torch.empty_like(x)
    for place, value in enumerate(x.tolist()):
        fill_kernel[(1,)](y, place, 3 * value)
    return y


@triton.jit
def fill_kernel(y_ptr, place, value):
    tl.store(y_ptr + place, value)


BUFFER = torch.zeros(32)


def numpy_module_buffer_then_kernel(x):
    import numpy as np

    BUFFER.numpy()[...] = np.exp(np.from_dlpack(x)) / 3
    return triple(BUFFER)


class Workspace:
    made_at_import = torch.zeros(32)
    made_by_a_call = None


def uses_class_attribute(x):
    Workspace.made_at_import.copy_(x)
    return triple(Workspace.made_at_import)


def uses_kept_workspace(x):
    if Workspace.made_by_a_call is None:
        Workspace.made_by_a_call = torch.empty_like(x)
    kept = Workspace.made_by_a_call
    helper_kernel[(triton.cdiv(x.numel(), 32),)](x, kept, x.numel(), act=_triple, BLOCK=32)
    return triple(kept)


def numpy_kept_workspace_then_kernel(x):
    uses_kept_workspace(x)
    torch._C.TensorBase.numpy(Workspace.made_by_a_call)[...] = 0
    return triple(Workspace.made_by_a_call)


def returns_kept_workspace(x):
    uses_kept_workspace(x)
    return Workspace.made_by_a_call


@torch.library.custom_op("samples::triple", mutates_args=())
def registered_triple(x: torch.Tensor) -> torch.Tensor:
    return triple(x)


@torch.library.custom_op("samples::square", mutates_args=())
def registered_square(x: torch.Tensor) -> torch.Tensor:
    return triple(x * x)


def uses_registered_operator(x):
    return registered_triple(x)


def uses_registered_arithmetic(x):
    return registered_square(x)


def asks_for_types(x):
    torch.result_type(x, 1.0)
    torch.can_cast(x.dtype, torch.float64)
    return triple(x).to(torch.promote_types(x.dtype, torch.float16))


CONSTANT = torch.arange(32, dtype=torch.float32)


def uses_module_constant(x):
    return add(x, CONSTANT)


def doubles_twice(x, z):
    y = torch.empty_like(x)
    helper_kernel[(triton.cdiv(x.numel(), 32),)](x, y, x.numel(), act=_triple, BLOCK=32)
    helper_kernel[(triton.cdiv(z.numel(), 32),)](z, y, z.numel(), act=_triple, BLOCK=32)
    return y


class Extent(NamedTuple):
    rows: int
    columns: int


@triton.jit
def extent_kernel(x_ptr, y_ptr, extent, scales: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    at = row * extent.columns + columns
    inside = columns < extent.columns
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=inside, other=0.0) * scales[1], mask=inside)


def takes_tuples(x):
    y = torch.empty_like(x)
    extent = Extent(*x.shape)
    extent_kernel[(extent.rows,)](x, y, extent, scales=(1.0, 3.0), BLOCK=triton.next_power_of_2(extent.columns))
    return y


@triton.jit
def peak_kernel(x_ptr, top_ptr, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + columns, mask=columns < n, other=-float("inf"))
    tl.atomic_max(top_ptr, tl.max(x, axis=0))
    tl.atomic_min(top_ptr + 1, tl.min(tl.where(columns < n, x, float("inf")), axis=0))


def extremes(x):
    top = torch.full((2,), -float("inf"))
    top[1:].fill_(float("inf"))
    peak_kernel[(x.shape[0],)](x, top, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return top


def odd_warps(x):
    y = torch.empty_like(x)
    add_kernel[(1,)](x, x, y, x.numel(), LOAD_EXTRA=0, STORE_EXTRA=0, BLOCK=64, num_warps=3)
    return y
