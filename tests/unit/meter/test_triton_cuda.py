"""The CUDA tier's own checks, on CPU tensors and a clock of our own: what needs a device is not run here."""

import os

os.environ["TRITON_INTERPRET"] = "1"

import ctypes

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no wheel for this platform")

from grader.meter.triton_meter_cuda import run_on_device
from grader.meter.triton_records import FaultKind


def poke(tensor, offset, values):
    """Write behind torch's back, as a kernel does."""
    raw = torch.tensor(values, dtype=tensor.dtype)
    ctypes.memmove(tensor.data_ptr() + offset * tensor.element_size(), raw.data_ptr(), raw.numel() * raw.element_size())


def faults(function, *args):
    _, error, report = run_on_device(function, args, {}, [f"argument {i}" for i in range(len(args))])
    assert error is None
    assert report.tier == "cuda"
    return {(fault.kind, fault.tensor, fault.offset) for fault in report.faults}


def test_a_whole_output_has_no_fault():
    def launch(x):
        y = torch.empty_like(x)
        poke(y, 0, [1.0, 2.0, 3.0])
        return y

    assert faults(launch, torch.zeros(3)) == set()


def test_a_store_past_the_output_is_found_in_its_guard_band():
    def launch(x):
        y = torch.empty_like(x)
        poke(y, 0, [1.0, 2.0, 3.0, 4.0])
        return y

    assert (FaultKind.OUT_OF_BOUNDS_STORE, "result", 3) in faults(launch, torch.zeros(3))


def test_a_store_before_an_input_is_found_in_its_guard_band():
    def launch(x):
        poke(x, -2, [5.0])
        y = torch.empty_like(x)
        poke(y, 0, [1.0, 2.0, 3.0])
        return y

    assert (FaultKind.OUT_OF_BOUNDS_STORE, "argument 0", -2) in faults(launch, torch.zeros(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_elements_nobody_wrote_are_found(dtype):
    def launch(x):
        y = torch.empty(4, dtype=dtype)
        poke(y, 0, [1, 2, 3])
        return y

    assert faults(launch, torch.zeros(4)) == {(FaultKind.UNWRITTEN, "result", 3)}


def test_torch_arithmetic_is_named():
    assert {kind for kind, _, _ in faults(lambda x: torch.exp(x), torch.zeros(4))} == {FaultKind.TORCH_OP}


def test_in_place_changes_come_back():
    x = torch.zeros(3)
    assert faults(lambda u: poke(u, 1, [7.0]), x) == set()
    assert x.tolist() == [0.0, 7.0, 0.0]
