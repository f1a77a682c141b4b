"""Compiling without a GPU: what the compiler says, for kernels that fit and kernels that do not."""

import os
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import sys

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no wheel for this platform")

from grader.meter import compile_report, roofline
from grader.meter.compile_report import compile_kernels
from grader.meter.compile_report_source import KernelTexts, kernel_module
from grader.meter.triton_meter import run_metered
from grader.meter.triton_records import ArgumentSignature, LaunchSignature

sys.path.insert(0, os.path.dirname(__file__))
import triton_samples as samples

SOURCE = Path(samples.__file__).read_text()


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def signatures(function, *args, **kwargs):
    call = run_metered(function, args, kwargs)
    if call.error is not None:
        raise call.error
    return call.report.signatures


def test_an_aligned_softmax_compiles_with_vector_loads_and_no_spills():
    wanted = signatures(samples.softmax, torch.randn(2, 1024))
    report = compile_kernels(SOURCE, wanted)
    assert [one.target for one in report.compiled] == [80, 90]
    assert report.problems == ()
    for one in report.compiled:
        assert one.compiled and one.registers > 0 and one.spill_bytes == 0
        assert one.load_bits == {128: 2} and one.store_bits == {128: 2}
        assert one.tensor_cores == ""


def test_an_odd_row_length_loses_the_vector_loads():
    (one,) = compile_kernels(SOURCE, signatures(samples.softmax, torch.randn(2, 1001)), targets=(80,)).compiled
    assert set(one.load_bits) == {32}


def test_a_wide_row_on_four_warps_spills_and_says_so():
    report = compile_kernels(SOURCE, signatures(samples.softmax, torch.randn(1, 32768)), targets=(90,))
    assert report.compiled[0].spill_bytes > 0
    assert "spills" in report.problems[0]


def test_what_the_interpreter_takes_and_a_gpu_does_not_fails_with_the_compilers_reason():
    wanted = signatures(samples.matmul, torch.randn(16, 8).half(), torch.randn(8, 16).half())
    report = compile_kernels(SOURCE, wanted, targets=(80,))
    assert "K >= 16" in report.problems[0]


def test_tuples_with_names_and_constant_tuples_compile():
    (one,) = compile_kernels(SOURCE, signatures(samples.takes_tuples, torch.randn(3, 5)), targets=(80,)).compiled
    assert one.compiled, one.reason


def test_tensor_cores_are_recognised():
    wanted = signatures(samples.matmul, torch.randn(64, 64).half(), torch.randn(64, 64).half())
    (one,) = compile_kernels(SOURCE, wanted, targets=(80,)).compiled
    assert one.tensor_cores == "mma.sync"


def test_shared_memory_is_held_against_the_device():
    one = compile_report.Compiled("k", 80, 0, True, shared_bytes=200_000)
    assert "163" not in one.problem and "166912" in one.problem
    assert compile_report.Compiled("k", 90, 0, True, shared_bytes=200_000).problem == ""


def test_the_facts_of_a_kernel_are_one_line_over_launches_and_targets():
    made = [
        compile_report.Compiled("k", 80, 0, True, registers=44, shared_bytes=8, load_bits={16: 2}),
        compile_report.Compiled("k", 90, 1, True, registers=50, shared_bytes=128, load_bits={128: 1}),
        compile_report.Compiled("k", 90, 2, False, reason="refused"),
    ]
    (fact,) = compile_report.CompileReport(tuple(made)).facts
    assert fact == (
        "k (sm_80, sm_90): 44 to 50 registers, up to 128 of 232448 bytes of shared memory, loads up to 128 bits"
    )


def test_the_second_time_nothing_is_compiled(monkeypatch):
    wanted = signatures(samples.triple, torch.randn(40))
    first = compile_kernels(SOURCE, wanted, targets=(80,))
    monkeypatch.setattr(compile_report, "_run", lambda *_: pytest.fail("compiled again"))
    assert compile_kernels(SOURCE, wanted, targets=(80,)) == first
    moved = "\n\n\n" + SOURCE
    assert compile_kernels(moved, wanted, targets=(80,)) == first


def test_a_compiler_that_dies_is_a_reason_and_not_an_exception(monkeypatch):
    wanted = signatures(samples.triple, torch.randn(40))
    monkeypatch.setattr(compile_report.sys, "executable", "/bin/false")
    (one,) = compile_kernels(SOURCE, wanted, targets=(80,)).compiled
    assert not one.compiled and "the compiler ended with status 1" in one.reason


def test_a_kernel_that_is_not_there_is_a_reason():
    signature = LaunchSignature("nowhere", 1, (ArgumentSignature("x", "int", "i32"),))
    (one,) = compile_kernels(SOURCE, [signature], targets=(80,)).compiled
    assert "nowhere is not a @triton.jit function" in one.reason


def test_nothing_of_the_file_runs_but_kernels_and_constants():
    source = (
        "import os\nimport triton\nimport triton.language as tl\nos._exit(3)\nN = 2 ** 4\nM = os.getpid()\n"
        "print('hello')\n@decorated\n@triton.jit\ndef k(x, B: tl.constexpr):\n    tl.store(x, N)\n"
    )
    import ast

    text = ast.unparse(kernel_module(source))
    assert "os" not in text and "print" not in text and "decorated" not in text
    assert "N = 2 ** 4" in text and "def k" in text


def test_a_kernels_text_holds_what_it_refers_to_and_no_more():
    text = KernelTexts(SOURCE).of("helper_kernel", "_triple")
    assert "def _triple" in text and "SCALE" in text and "softmax" not in text


def test_floors_are_bytes_or_operations_whichever_takes_longer():
    memory = roofline.floor(268e6, 0, roofline.H100)
    assert str(memory) == "H100: at least 80 µs, memory-bound"
    compute = roofline.floor(1, 990e12, roofline.H100)
    assert (compute.bound, compute.seconds) == ("compute", 1.0)
    assert [one.device.name for one in roofline.floors(1e9)] == ["A100", "H100", "B200"]
    with pytest.raises(ValueError, match="-1"):
        roofline.floor(-1)
    with pytest.raises(ValueError, match="int4"):
        roofline.floor(1, dtype="int4")
