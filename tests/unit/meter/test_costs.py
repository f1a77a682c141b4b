"""The cost meter against counts made by hand."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from grader.meter.costs import CostMeter, Costs, held_bytes, measure, metered


def costs(call, **options) -> Costs:
    return measure(call, **options)[1]


# -- FLOPs


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: a @ b,
        lambda a, b: torch.einsum("mk,kn->mn", a, b),
        lambda a, b: F.linear(a, b.T),
        lambda a, b: torch.bmm(a[None], b[None]),
        lambda a, b: torch.baddbmm(torch.zeros(1, 7, 5), a[None], b[None]),
        lambda a, b: torch.addmm(torch.zeros(5), a, b),
        lambda a, b: torch.stack([a @ b[:, j] for j in range(5)]),
        lambda a, b: torch.stack([torch.stack([torch.dot(row, b[:, j]) for j in range(5)]) for row in a]),
        lambda a, b: F.conv1d(a.T[None], b.T[:, :, None]),
    ],
)
def test_a_matrix_product_costs_the_same_however_it_is_written(call):
    a, b = torch.randn(7, 11), torch.randn(11, 5)
    assert costs(lambda: call(a, b)).contraction_flops == 2 * 7 * 11 * 5


def test_a_product_written_as_multiplication_and_sum_is_not_free():
    a, b = torch.randn(7, 11), torch.randn(11, 5)
    found = costs(lambda: (a[:, :, None] * b).sum(1))
    assert found.flops == 2 * 7 * 11 * 5
    assert found.contraction_flops == 0


@pytest.mark.parametrize("mask", [None, "bool", "causal"])
@pytest.mark.parametrize("heads_kv", [4, 2])
@pytest.mark.parametrize("grad", [False, True])
def test_fused_attention_counts_query_heads(mask, heads_kv, grad):
    q = torch.randn(2, 4, 5, 8, requires_grad=grad)
    k = torch.randn(2, heads_kv, 7, 8, requires_grad=grad)
    options = {"attn_mask": torch.ones(5, 7, dtype=torch.bool)} if mask == "bool" else {"is_causal": mask == "causal"}
    found = costs(lambda: F.scaled_dot_product_attention(q, k, k, enable_gqa=True, **options))
    products, softmax = 2 * 4 * 5 * 7 * 2 * 16, 2 * 4 * 5 * 7 * 5
    assert products + softmax <= found.flops <= products + 2 * softmax


def test_attention_backward_costs_about_two_and_a_half_forwards():
    q = torch.randn(2, 4, 16, 32, requires_grad=True)
    forward = costs(lambda: F.scaled_dot_product_attention(q, q, q)).flops
    both = costs(lambda: F.scaled_dot_product_attention(q, q, q).sum().backward()).flops
    assert 3.2 < both / forward < 3.8


def test_manual_attention_costs_what_fused_attention_does():
    q = torch.randn(2, 4, 16, 8)
    manual = costs(lambda: (q @ q.mT / 8**0.5).softmax(-1) @ q).flops
    fused = costs(lambda: F.scaled_dot_product_attention(q, q, q)).flops
    assert manual == pytest.approx(fused, rel=0.05)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: x + 1, 60),
        (lambda x: x.clone().mul_(2), 60),
        (lambda x: torch.add(x, x, out=torch.empty(3, 20)), 60),
        (lambda x: x.sum(), 60),
        (lambda x: x.cumsum(-1), 60),
        (lambda x: x.softmax(-1), 300),
        (lambda x: torch.maximum(x, x), 60),
        (lambda x: torch.max(x, x), 60),
        (lambda x: torch._foreach_mul([x, x], 2.0), 120),
        (lambda x: torch.zeros(3, 20).index_add_(0, torch.arange(3), x), 60),
        (lambda x: torch.zeros(3, 20).scatter_add_(1, torch.zeros(3, 20, dtype=torch.long), x), 60),
        (lambda x: x.transpose(0, 1).contiguous(), 0),
        (lambda x: torch.cat([x, x]), 0),
        (lambda x: x[torch.tensor([0, 2])], 0),
        (lambda x: x > 0, 0),
        (lambda x: torch.ones(50, 50, dtype=torch.bool).tril(), 0),
        (lambda x: F.one_hot(torch.arange(9), 40), 0),
    ],
)
def test_work_element_by_element(call, expected):
    x = torch.randn(3, 20)
    assert costs(lambda: call(x)).flops == expected


def test_a_fast_transform_costs_n_log_n():
    x = torch.randn(3, 1024)
    assert costs(lambda: torch.fft.rfft(x)).flops == 3 * 5 * 1024 * 10 // 2
    assert costs(lambda: torch.fft.irfft(torch.fft.rfft(x, n=2048), n=2048)).flops == 3 * 5 * 2048 * 11


def test_inference_mode_counts_the_same():
    layer, x = nn.Linear(6, 5, bias=False), torch.randn(3, 6)
    with torch.inference_mode():
        found = costs(lambda: F.silu(layer(x)))
    assert found.contraction_flops == 2 * 3 * 6 * 5
    assert found.flops == 2 * 3 * 6 * 5 + 15


# -- bytes


def test_views_allocate_nothing():
    x = torch.randn(4, 6)
    found = costs(lambda: x.view(2, 12).transpose(0, 1)[1:].expand(5, 11, 2).unsqueeze(0))
    assert found == Costs()


def test_an_expansion_that_is_copied_is_allocated():
    k = torch.randn(2, 3, 7, 4)
    found = costs(lambda: k.repeat_interleave(2, dim=1))
    assert found.allocated_bytes >= 2 * k.numel() * 4
    assert found.largest_numel == 2 * k.numel()


def test_the_peak_counts_what_is_alive_at_once():
    def chain():
        x = torch.zeros(1000)
        for _ in range(10):
            x = x + 1
        return x

    found = costs(chain)
    assert found.allocated_bytes == 11 * 4000
    assert found.peak_bytes == 2 * 4000


def test_memory_made_before_the_block_and_freed_in_it_is_not_counted():
    held = [torch.zeros(1000)]

    def call():
        held[0] + 1
        held.clear()
        return torch.zeros(10)

    found = costs(call)
    assert found.allocated_bytes == 4040
    assert found.peak_bytes == 4000


def test_storage_that_grows_and_storage_from_numpy_are_counted():
    import numpy as np

    assert costs(lambda: torch.zeros(0).resize_(50)).allocated_bytes == 200
    assert costs(lambda: torch.from_numpy(np.zeros(9)) + 1).allocated_bytes == 144


def test_saved_bytes_count_each_storage_once_and_no_weights():
    layer = nn.Linear(6, 5)
    x = torch.randn(3, 6, requires_grad=True)
    assert costs(lambda: layer(x)).saved_bytes == 3 * 6 * 4
    assert costs(lambda: layer(x) + layer(x)).saved_bytes == 3 * 6 * 4
    assert costs(lambda: F.silu(layer(x))).saved_bytes == 3 * 6 * 4 + 3 * 5 * 4
    with torch.no_grad():
        assert costs(lambda: layer(x)).saved_bytes == 0


def test_checkpointing_saves_only_its_input():
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(3, 6, requires_grad=True)
    assert costs(lambda: checkpoint(lambda a: a.exp().exp().exp(), x, use_reentrant=False)).saved_bytes <= 3 * 6 * 4


def test_function_transforms_run_when_saved_bytes_are_not_asked_for():
    x = torch.randn(4, 4)
    assert costs(lambda: torch.func.grad(lambda a: (a @ a).sum())(x), saved=False).contraction_flops >= 3 * 128


# -- operations and the largest tensor


def test_a_loop_issues_at_least_an_operation_a_step_and_a_scan_does_not():
    x = torch.randn(2, 50, 3)

    def loop():
        state, out = torch.zeros(2, 3), []
        for step in x.unbind(1):
            state = state * 0.5 + step
            out.append(state)
        return torch.stack(out, 1)

    assert costs(loop).operations == 2 * 50 + 2
    assert costs(lambda: x.cumsum(1)).operations == 1


def test_tensors_computed_from_weights_alone_are_left_out():
    up, x = nn.Linear(4, 40, bias=False), torch.randn(3, 4)
    found = costs(lambda: x @ (up.weight.T @ up.weight))
    assert found.largest_numel == 12
    buffer = torch.randn(100, 4)
    assert costs(lambda: buffer * 2, weights=[buffer]).largest_numel == 0
    assert costs(lambda: buffer * 2).largest_numel == 400


def test_a_buffer_filled_with_data_is_data():
    up, x = nn.Linear(4, 40, bias=False), torch.randn(3, 4)

    def call():
        out = up.weight * 0
        out[:3] = x
        return out + 1

    assert costs(call).largest_numel == 160


# -- what makes it deterministic


class Busy(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)
        self.table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.ones(x.shape[1], x.shape[1]).tril().bool()
        cycle = [x + 1]
        cycle.append(cycle)
        scores = (x @ x.mT).masked_fill(~self.table, float("-inf")).softmax(-1)
        return self.down(F.gelu(self.up(scores @ x)))


def test_two_runs_agree_to_the_byte():
    found = []
    for garbage in (0, 5000):
        module, x = Busy(), torch.randn(2, 9, 16)
        litter = [[] for _ in range(garbage)]
        for item in litter:
            item.append(item)
        del litter
        found.append(costs(lambda m=module, x=x: m(x).sum().backward(), warm_up=lambda m=module, x=x: m(x)))
    assert found[0] == found[1]
    assert gc.isenabled()


def test_a_table_kept_from_the_warm_up_costs_nothing():
    module, x = Busy(), torch.randn(2, 9, 16)
    cold = costs(lambda: module(x))
    warm = costs(lambda: module(x))
    assert cold.allocated_bytes > warm.allocated_bytes
    assert costs(lambda: module(x)) == warm


def test_nothing_of_the_meter_is_left_after_an_error():
    def call():
        torch.ones(3) + 1
        raise ValueError("on purpose")

    meter = CostMeter()
    with pytest.raises(ValueError, match="on purpose"), meter:
        call()
    assert meter.costs.operations == 2
    torch.ones(3) + 1
    assert meter.costs.operations == 2
    assert gc.isenabled()


def test_what_the_block_returned_may_die_later():
    with CostMeter() as meter:
        kept = torch.zeros(100)
    before = meter.costs
    del kept
    assert meter.costs == before


def test_a_compiled_function_is_counted():
    compiled = torch.compile(lambda a: a @ a + 1, backend="eager")
    a = torch.randn(4, 4)
    compiled(a)
    assert costs(lambda: compiled(a)).contraction_flops == 128


def test_another_thread_does_not_disturb():
    import threading

    x = torch.randn(3, 3)

    def call():
        worker = threading.Thread(target=lambda: [x @ x for _ in range(20)])
        worker.start()
        worker.join()
        return x + 1

    assert costs(call).operations == 1


# -- what an object holds


PLAIN = SimpleNamespace(meter_options="")


class Keeper:
    def __init__(self, window):
        self.window, self.kept = window, []

    def append(self, token):
        self.kept = [*self.kept, token.clone()][-self.window :]


def test_an_object_holds_its_tensors_whole_and_once():
    keeper = Keeper(4)
    base = torch.zeros(1000)
    keeper.kept = [base[:1], base[1:2]]
    assert held_bytes(keeper) == 4000 + 8  # and the number `window`


@pytest.mark.parametrize(("window", "grows"), [(8, False), (10_000, True)])
def test_what_is_held_after_many_calls_tells_a_ring_from_a_list(window, grows):
    keeper, found = Keeper(window), []
    for step in range(1, 65):
        _, report = metered(partial(keeper.append, torch.randn(1, 2, 1, 8)), PLAIN)
        if step in (16, 64):
            found.append(msgspec.msgpack.decode(report, type=Costs).held_bytes)
    assert (found[1] > 2 * found[0]) is grows


def test_a_closure_and_an_array_are_held_and_a_module_is_not():
    import numpy as np

    big = torch.zeros(1000)
    keeper = Keeper(1)
    keeper.kept = [lambda: big, np.zeros(500), torch]
    assert held_bytes(keeper) == 4000 + 4000 + 8


def test_a_module_s_buffers_are_weights_and_a_function_holds_nothing():
    module = nn.Module()
    module.register_buffer("table", torch.randn(50, 4))
    module.forward = lambda: module.table * 2
    _, report = metered(partial(module), PLAIN)
    assert msgspec.msgpack.decode(report, type=Costs).largest_numel == 0
    _, report = metered(partial(lambda: torch.ones(3)), PLAIN)
    assert msgspec.msgpack.decode(report, type=Costs).held_bytes == 0


def test_every_cost_is_what_another_machine_recorded():
    bench = Path(__file__).resolve().parents[2] / "bench"
    recorded = json.loads((bench / "costs.json").read_text())

    def measured():
        command = [sys.executable, str(bench / "costs_twice.py"), "--dump", "--seed", str(recorded["seed"])]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    same_torch = torch.__version__.split("+")[0] == recorded["torch"]  # another one may count otherwise
    assert measured() == (recorded["counts"] if same_torch else measured())
    assert len(recorded["counts"]) >= 11
