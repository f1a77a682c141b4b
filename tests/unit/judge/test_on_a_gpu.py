"""What of grading kernels on a GPU can be tested without one."""

from __future__ import annotations

import inspect

import pytest
import torch

from grader import paths
from grader.catalogue import Catalogue, read_mistakes
from grader.host import sandbox
from grader.judge.benchmarks import load_benchmarks
from grader.judge.client import JudgeClient
from grader.judge.orders import GradeOrder
from grader.judge.pack import load_pack
from grader.judge.testing import Rng
from grader.model import Isolation

CATALOGUE = Catalogue(paths.content_root())
KERNELS = [slug for slug in CATALOGUE.slugs if CATALOGUE.exercise(slug).track == "kernels"]
SHOW = b"import os\nprint('interpret', os.environ.get('TRITON_INTERPRET'))\n"


@pytest.mark.parametrize("slug", KERNELS)
def test_a_kernel_is_timed_at_full_size_and_on_a_gpu_only(slug: str) -> None:
    exercise = CATALOGUE.exercise(slug)
    pack = load_pack(exercise, read_mistakes(exercise))
    ((target, benchmark),) = load_benchmarks(pack).speeds
    launcher, draw = benchmark.build(pack.reference)
    given = draw(Rng(1))
    inspect.signature(launcher).bind(*given.args, **given.kwargs)
    tensors = [value for value in given.args if isinstance(value, torch.Tensor)]
    assert target.moved_bytes >= 0.9 * sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    assert target.applies_to("cuda") and not target.applies_to("cpu")


@pytest.mark.parametrize("isolation", [Isolation.PROCESS, Isolation.BWRAP])
@pytest.mark.parametrize(("device", "interpret"), [("cpu", "1"), ("cuda", "0")])
def test_hosts_interpret_kernels_unless_a_gpu_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, device: str, interpret: str, isolation: Isolation
) -> None:
    if isolation is Isolation.BWRAP and sandbox.why_not():
        pytest.fail(f"bubblewrap is needed here: {sandbox.why_not()}")
    monkeypatch.setenv("TRITON_INTERPRET", "nonsense")  # what the user's shell says does not count
    order = GradeOrder(
        "sliding_window", str(CATALOGUE.root), SHOW, "w.py", "w.py", only=("mask",), isolation=isolation, diagnose=False
    )
    with JudgeClient(device=device) as judge:
        attempt = judge.grade(order, lambda event: None)
    assert f"interpret {interpret}" in "".join(test.printed for test in attempt.tests)
