"""The six solutions move, to the byte, what a count by hand says, and the same in every run."""

import importlib.util
import os
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no wheel for this platform")

from grader.meter.triton_meter import run_metered

SOLUTIONS = Path(__file__).parents[3] / "solutions" / "kernels"


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(11)


def report(slug, name, *args):
    spec = importlib.util.spec_from_file_location(f"kernel_solution_{slug}", SOLUTIONS / f"{slug}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    first, second = (run_metered(getattr(module, name), args) for _ in range(2))
    assert first.error is None and first.report.faults == ()
    assert first.report.kernels == second.report.kernels
    assert first.report.traffic == second.report.traffic
    return first


@pytest.mark.parametrize(("T", "D", "dtype"), [(3, 37, torch.float32), (4, 2500, torch.bfloat16)])
def test_swiglu(T, D, dtype):
    packed = torch.randn(T, 2 * D).to(dtype)
    got = report("swiglu", "swiglu", packed[:, :D], packed[:, D:]).report
    assert got.moved_bytes() == 3 * T * D * packed.element_size()
    assert got.programs == T * -(-D // min(1024, 1 << (D - 1).bit_length()))


@pytest.mark.parametrize(("T", "D", "dtype"), [(3, 37, torch.float32), (4, 1000, torch.float16)])
def test_add_rmsnorm(T, D, dtype):
    x, residual, weight = torch.randn(T, D).to(dtype), torch.randn(T, D).to(dtype), torch.randn(D).to(dtype)
    got = report("add_rmsnorm", "add_rmsnorm", x, residual, weight).report
    e = x.element_size()
    assert got.moved_bytes() == 4 * T * D * e + T * D * e
    assert got.moved_bytes(without=("weight",)) == 4 * T * D * e + D * e


@pytest.mark.parametrize(("T", "H", "H_kv", "d"), [(3, 6, 2, 10), (5, 4, 4, 64)])
def test_rope(T, H, H_kv, d):
    q, k = torch.randn(T, H, d).half(), torch.randn(T, H_kv, d).half()
    got = report("rope_kernel", "rope_", q, k, torch.randn(T, d // 2), torch.randn(T, d // 2)).report
    assert got.moved_bytes() == 2 * T * (H + H_kv) * d * 2 + 4 * T * d


@pytest.mark.parametrize(("M", "N", "passes"), [(3, 37, 2), (100, 160, 2), (1, 32768, 2), (1, 32769, 3)])
def test_softmax(M, N, passes):
    got = report("softmax", "softmax", torch.randn(M, N)).report
    assert got.moved_bytes() == passes * M * N * 4


def test_cross_entropy():
    M, V = 5, 5003
    logits, targets = torch.randn(M, V).bfloat16(), torch.randint(0, V, (M,))
    targets[2] = -100
    got = report("cross_entropy", "cross_entropy", logits, targets).report
    assert got.moved_bytes() == M * V * 2 + 16 * M + 2 * (M - 1)


@pytest.mark.parametrize(("T", "E", "k"), [(300, 10, 3), (1024, 64, 2)])
def test_moe_permute(T, E, k):
    done = report("moe_permute", "topk_route", torch.randn(T, E), k)
    tokens = min(max(16384 // ((1 << (E - 1).bit_length()) * (1 << (k - 1).bit_length())), 1), 128)
    blocks = -(-T // tokens)
    # A block reads the beginning and the earlier slots of each expert it has; one address, however many slots.
    met = sum(int(part.unique().numel()) for part in done.result[1].split(tokens))
    assert done.report.moved_bytes() == 4 * T * E + 16 * T * k + 4 * (E + 1) + 3 * 4 * blocks * E + 2 * 4 * met
