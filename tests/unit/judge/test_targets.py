"""Cost and speed targets on a miniature exercise, in process and with real hosts."""

from __future__ import annotations

import contextlib
import dataclasses
import textwrap
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch

from grader import paths
from grader.catalogue import Catalogue, read_exercise
from grader.errors import ContentError
from grader.host import wire
from grader.host.process import Zygote
from grader.host.session import Session
from grader.judge import speed, timing
from grader.judge.benchmarks import load_benchmarks
from grader.judge.client import JudgeClient
from grader.judge.costs import SETTINGS, judged, measure_costs, own_cost
from grader.judge.orders import GradeOrder, Judged, Measuring
from grader.judge.pack import Pack, module_of
from grader.judge.speed import SpeedJudge
from grader.judge.targets import NO_PROCESS, NO_REFERENCE, Targets, costly
from grader.judge.trial import InProcess
from grader.judge.view import Submission
from grader.meter.child import METERS
from grader.model import (
    Attempt,
    CostTarget,
    Edit,
    GrowthTarget,
    Isolation,
    Mistake,
    Outcome,
    PartResult,
    SpeedTarget,
    SpeedVerdict,
)

SOLUTION = """
import torch
from torch import Tensor, nn


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.up(x))


def total(x: Tensor) -> Tensor:
    return x.cumsum(0)
"""

TOML = """
slug = "mini"
title = "Mini"
track = "attention"
stars = 1
minutes = 1
source = "none"

[[part]]
number = 1
title = "All"
points = 10
symbols = ["Layer", "total"]

[[cost]]
name = "FLOPs"
part = 1
limit = 1.5
floor = 0.5
unit = "x"
cause = "too many products"

[[cost]]
name = "bytes"
part = 1
limit = 1.2
unit = "x"
required = false

[[speed]]
name = "layer"
part = 1
target = 3.0
cause = "a loop"

[[growth]]
name = "growth of total"
part = 1
limit = 0.5
relative = true
"""

BENCHMARKS = """
@cost("FLOPs")
def flops(submission, reference, rng):
    mine, ref = pair(submission.Layer, reference.Layer, 16)
    spent, needed = both(mine, ref, rng.normal(8, 16))
    return spent.flops / needed.flops


@cost("bytes")
def size(submission, reference, rng):
    spent, needed = both(submission.total, reference.total, rng.normal(50, 3))
    return spent.allocated_bytes / needed.allocated_bytes


@speed("layer")
def layer(module):
    return module.Layer(96), lambda rng: arguments(rng.normal(256, 96))


@growth("growth of total", sizes=(100, 200, 400))
def total(module, size):
    return module.total, lambda rng: arguments(rng.normal(size, 50))
"""

HONEST_TOTAL = "return x.cumsum(0)"
HONEST_LAYER = "return torch.tanh(self.up(x))"


def variant(layer: str = HONEST_LAYER, total: str = HONEST_TOTAL) -> str:
    def indented(body: str, spaces: int) -> str:
        return textwrap.indent(textwrap.dedent(body).strip(), " " * spaces).lstrip()

    source = SOLUTION.replace(HONEST_LAYER, indented(layer, 8)).replace(HONEST_TOTAL, indented(total, 4))
    return source


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    folder = tmp_path / "exercises" / "mini"
    folder.mkdir(parents=True)
    (folder / "exercise.toml").write_text(TOML)
    (folder / "benchmarks.py").write_text(BENCHMARKS)
    solution = tmp_path / "mini.py"
    solution.write_text(SOLUTION)
    return Pack(read_exercise(folder, solution), module_of(SOLUTION, "reference_mini", solution), SOLUTION, (), ())


@pytest.fixture(scope="module")
def zygotes() -> Iterator[tuple[Zygote, Zygote]]:
    pair = Zygote.executed(Isolation.PROCESS), Zygote.executed(Isolation.PROCESS)
    yield pair
    for zygote in pair:
        zygote.close()


def loaded(pack: Pack, source: str) -> Submission:
    submission = Submission(InProcess(Session(meters=METERS)), pack.reference)
    submission.load(source.encode(), "mini.py", 1)
    return submission


def loads_of(pack: Pack, source: str):
    return lambda: contextlib.nullcontext(lambda: loaded(pack, source))


def costs_of(pack: Pack, source: str):
    found = measure_costs(pack, load_benchmarks(pack), [1], lambda: loaded(pack, source), 5)
    return {cost.name: cost for cost in found}


# -- reading


def test_targets_are_read_with_their_floors_and_kinds(pack):
    exercise = pack.exercise
    assert exercise.costs[0] == CostTarget("FLOPs", 1, 1.5, "x", True, "too many products", 0.5)
    assert not exercise.costs[1].required
    assert exercise.speeds == (SpeedTarget("layer", 1, 3.0, "a loop"),)
    assert exercise.growths == (GrowthTarget("growth of total", 1, 0.5, True),)


@pytest.mark.parametrize(
    ("old", "new"), [('@cost("bytes")', '@cost("octets")'), ('@cost("FLOPs")', ""), ('@speed("layer")', "")]
)
def test_a_target_without_a_benchmark_is_a_fault_of_the_content(pack, old, new):
    path = pack.exercise.folder / "benchmarks.py"
    path.write_text(BENCHMARKS.replace(old, new))
    with pytest.raises(ContentError, match="must name the same targets"):
        load_benchmarks(pack)


def test_targets_without_benchmarks_are_a_fault_of_the_content(pack):
    (pack.exercise.folder / "benchmarks.py").unlink()
    with pytest.raises(ContentError, match="there is no benchmarks"):
        load_benchmarks(pack)


def test_an_exercise_without_targets_needs_no_benchmarks(pack):
    bare = dataclasses.replace(pack.exercise, costs=(), speeds=(), growths=())
    (pack.exercise.folder / "benchmarks.py").unlink()
    assert load_benchmarks(dataclasses.replace(pack, exercise=bare)).costs == ()


# -- costs


def test_the_solution_costs_what_it_costs(pack):
    found = costs_of(pack, SOLUTION)
    assert found["FLOPs"].value == found["bytes"].value == 1.0
    assert found["FLOPs"].passed and found["bytes"].passed


def test_a_product_too_many_fails_and_says_what_causes_it(pack):
    found = costs_of(pack, variant(layer="return torch.tanh(self.up(x)) + 0 * self.up(x)"))["FLOPs"]
    assert not found.passed
    assert 1.9 < found.value < 2.1
    assert found.cause == "too many products"


@pytest.mark.parametrize(
    ("when", "says"), [("not self.training", "in evaluation mode"), ("torch.is_grad_enabled()", "with gradients")]
)
def test_a_product_too_many_in_one_setting_fails_and_says_in_which(pack, when, says):
    found = costs_of(pack, variant(layer=f"return torch.tanh(self.up(x)) + (0 * self.up(x) if {when} else 0)"))["FLOPs"]
    assert not found.passed
    assert 1.9 < found.value < 2.1
    assert found.cause == f"too many products (measured {says}; in training without gradients it is within the target)"


def test_an_answer_kept_from_another_setting_is_a_wrong_answer(pack):
    kept = """
    if self.training or not hasattr(Layer, "kept"):
        Layer.kept = torch.tanh(self.up(x))
    return Layer.kept + 0.0
    """
    found = costs_of(pack, variant(layer=kept))["FLOPs"]
    assert not found.passed
    assert "another answer" in found.cause


def test_work_in_numpy_is_not_a_free_pass(pack):
    hidden = "return torch.from_numpy(__import__('numpy').tanh(x.numpy() @ self.up.weight.detach().numpy().T))"
    found = costs_of(pack, variant(layer=hidden))["FLOPs"]
    assert not found.passed
    assert "outside torch" in found.cause


def test_an_answer_kept_from_the_warm_up_is_a_wrong_answer(pack):
    kept = """
    if not hasattr(self, "kept"):
        self.kept = torch.tanh(self.up(x))
    return self.kept + 0.0
    """
    # Each benchmark builds its own object, so it is the module's memory that is tried here.
    everywhere = variant(layer=kept).replace("self.kept", "Layer.kept").replace("hasattr(self,", "hasattr(Layer,")
    found = costs_of(pack, everywhere)["FLOPs"]
    assert not found.passed
    assert "another answer" in found.cause


def test_function_transforms_are_measured_like_anything_else(pack):
    unusual = "return torch.func.vmap(lambda row: torch.tanh(self.up(row)))(x)"
    assert costs_of(pack, variant(layer=unusual))["FLOPs"].passed


def test_what_raises_in_a_benchmark_has_not_met_the_target_and_the_next_goes_on(pack):
    found = costs_of(pack, variant(layer="raise RuntimeError('at this size')"))
    assert not found["FLOPs"].passed
    assert "at this size" in found["FLOPs"].cause
    assert "not measured" in found["FLOPs"].unit
    assert found["bytes"].passed


def test_a_benchmark_that_trips_over_the_solution_is_a_fault_of_the_content(pack):
    path = pack.exercise.folder / "benchmarks.py"
    path.write_text(BENCHMARKS.replace("return spent.flops / needed.flops", "return spent.nonsense"))
    with pytest.raises(ContentError, match="'FLOPs' is at fault"):
        costs_of(pack, SOLUTION)


def test_a_value_under_the_floor_is_no_result():
    target = CostTarget("FLOPs", 1, 1.5, "x", floor=0.5)
    little, enough = ([(SETTINGS[0], value)] for value in (0.1, 0.5))
    assert not judged(target, little).passed
    assert "outside torch" in judged(target, little).cause
    assert judged(target, enough).passed


def test_costs_are_the_same_to_the_byte_in_two_runs(pack):
    assert costs_of(pack, SOLUTION) == costs_of(pack, SOLUTION)


def test_saved_bytes_are_measured_with_gradients_on(pack):
    path = pack.exercise.folder / "benchmarks.py"
    path.write_text(BENCHMARKS.replace("rng.normal(50, 3))", "rng.normal(50, 3).requires_grad_(), saved=True)"))
    assert costs_of(pack, SOLUTION)["bytes"].value == 1.0


# -- the attempt


def attempt_of(passed: bool = True) -> Attempt:
    part = PartResult(1, "All", passed, 10)
    points = 10 if passed else 0
    return Attempt("mini", "mini.py", 5, "cpu", Isolation.PROCESS, 0.0, passed, points, 10, (part,), ())


def measured(pack: Pack, source: str, passed: bool = True, **changes) -> tuple[Attempt, list]:
    events: list = []
    order = GradeOrder("mini", "", source.encode(), "mini.py", "mini.py", seed=5, **changes)

    def no_zygote() -> Zygote:
        raise AssertionError("no host is needed")

    targets = Targets(no_zygote)
    attempt = targets.measure(pack, attempt_of(passed), order, loads_of(pack, source), no_zygote, events.append)
    return attempt, events


def test_a_part_whose_tests_fail_is_not_measured(pack):
    attempt, events = measured(pack, SOLUTION, passed=False)
    assert attempt == attempt_of(False)
    assert events == []


def test_without_speed_only_costs_are_measured(pack):
    attempt, events = measured(pack, SOLUTION, speed=False)
    assert attempt.passed
    assert [event.name for event in events] == ["FLOPs", "bytes"]
    assert attempt.speed == ()


def test_a_missed_cost_takes_the_part_and_a_missed_stretch_does_not(pack):
    greedy = variant(total="return x.cumsum(0) + 0 * x")
    attempt, _ = measured(pack, greedy, speed=False)
    assert attempt.passed and not attempt.costs[1].passed
    doubled = variant(layer="return torch.tanh(self.up(x)) + 0 * self.up(x)")
    attempt, _ = measured(pack, doubled, speed=False)
    assert not attempt.passed
    assert attempt.points == 0
    assert not attempt.parts[0].passed


def test_without_isolation_speed_is_not_measured_and_the_attempt_says_so(pack):
    attempt, _ = measured(pack, SOLUTION, speed=True, isolation=Isolation.NONE)
    assert attempt.notes == (NO_PROCESS,)


def test_a_student_kit_has_no_reference_to_measure_against(pack):
    class Tape:
        seed = 1

    attempt, _ = measured(dataclasses.replace(pack, tape=Tape()), SOLUTION, speed=True)
    assert attempt.notes == (NO_REFERENCE,)
    assert attempt.costs == ()


def test_a_known_costly_variant_is_named_and_an_unknown_one_is_not(pack):
    twice = Mistake(
        "twice",
        "Twice",
        1,
        (Edit(HONEST_LAYER, "return torch.tanh(self.up(x) + 0 * self.up(x))"),),
        "s",
        "h",
        kind="costly",
    )
    thrice = Mistake(
        "thrice",
        "Thrice",
        1,
        (Edit(HONEST_LAYER, "return torch.tanh(self.up(x) + 0 * self.up(x) + 0 * self.up(x))"),),
        "s",
        "h",
        kind="costly",
    )
    knowing = dataclasses.replace(pack, mistakes=(twice, thrice))
    attempt, _ = measured(knowing, variant(layer="y = self.up(x)\nz = self.up(x)\nreturn torch.tanh(y + z * 0)"))
    assert [diagnosis.mistake for diagnosis in attempt.diagnosis] == ["twice"]
    attempt, _ = measured(knowing, variant(layer="return torch.tanh(sum(self.up(x) for _ in range(5)) / 5)"))
    assert attempt.diagnosis == ()


def test_two_variants_of_the_same_cost_name_nothing(pack):
    edits = [f"return torch.tanh(self.up(x) + {zero} * self.up(x))" for zero in ("0", "0.0")]
    twins = tuple(
        Mistake(f"m{place}", "T", 1, (Edit(HONEST_LAYER, edit),), "s", "h", kind="costly")
        for place, edit in enumerate(edits)
    )
    knowing = dataclasses.replace(pack, mistakes=twins)
    benchmarks = load_benchmarks(knowing)
    value = own_cost(knowing, benchmarks.costs[0][1], knowing.variant(twins[0]), 5)
    assert costly(knowing, benchmarks, [judged(knowing.exercise.costs[0], value)], 5) == []


# -- speed, in real hosts


def speed_of(pack: Pack, zygotes, source: str, **options):
    judge = SpeedJudge(pack, *zygotes, wire.Load(source.encode(), "mini.py", 1), **options)
    ((target, benchmark),) = load_benchmarks(pack).speeds
    return judge.speed(target, benchmark)


def test_the_solution_against_itself_does_not_fail(pack, zygotes):
    found = speed_of(pack, zygotes, SOLUTION)
    assert found.verdict is not SpeedVerdict.FAIL
    assert found.low < 1.5


def test_six_times_the_work_fails_and_says_why(pack, zygotes):
    found = speed_of(pack, zygotes, variant(layer="return torch.tanh(sum(self.up(x) for _ in range(12)) / 12)"))
    assert found.verdict is SpeedVerdict.FAIL
    assert found.cause == "a loop"


def test_argument_sets_are_used_in_turn_where_there_is_a_cache_to_leave(pack, zygotes, monkeypatch):
    plain_init, plain_request = timing.Comparison.__init__, timing.Comparison._request
    copies = set()

    def cached(self, *arguments, **options):
        plain_init(self, *arguments, **options)
        self._cache_bytes = 1 << 18

    def noted(self, *arguments):
        made = plain_request(self, *arguments)
        copies.add(made[0].copies)
        return made

    monkeypatch.setattr(timing.Comparison, "__init__", cached)
    monkeypatch.setattr(timing.Comparison, "_request", noted)
    found = speed_of(pack, zygotes, SOLUTION)
    assert max(copies) > 2
    assert found.verdict is not SpeedVerdict.FAIL  # answers of rolled copies were looked at, and are right
    replayed = """
    if not hasattr(self, "first"):
        self.first = torch.tanh(self.up(x))
    return self.first
    """
    assert speed_of(pack, zygotes, variant(layer=replayed)).verdict is SpeedVerdict.FAIL


def test_gradients_can_be_part_of_a_call(pack, zygotes):
    path = pack.exercise.folder / "benchmarks.py"
    path.write_text(BENCHMARKS.replace('@speed("layer")', '@speed("layer", backward=True)'))
    assert speed_of(pack, zygotes, SOLUTION).verdict is not SpeedVerdict.FAIL
    wrong = "return torch.tanh(self.up(x)) + (x - x.detach()) * (x.shape[0] > 100)"
    found = speed_of(pack, zygotes, variant(layer=wrong))
    assert found.verdict is SpeedVerdict.FAIL
    assert "wrong" in found.cause


def test_a_wrong_answer_at_the_timed_size_fails(pack, zygotes):
    found = speed_of(pack, zygotes, variant(layer="return torch.tanh(self.up(x)) * (x.shape[0] < 100)"))
    assert found.verdict is SpeedVerdict.FAIL
    assert "answer is wrong" in found.cause


def test_an_error_at_the_timed_size_fails_with_its_message(pack, zygotes):
    slow = """
    if x.shape[0] > 100:
        raise MemoryError("too large")
    return torch.tanh(self.up(x))
    """
    found = speed_of(pack, zygotes, variant(layer=slow))
    assert found.verdict is SpeedVerdict.FAIL
    assert "too large" in found.cause


def test_a_process_that_ends_while_it_is_timed_fails(pack, zygotes):
    found = speed_of(pack, zygotes, variant(layer="import os\nos._exit(0)"))
    assert found.verdict is SpeedVerdict.FAIL
    assert "ended" in found.cause


def test_a_call_that_never_ends_fails(pack, zygotes, monkeypatch):
    monkeypatch.setattr(speed, "SAMPLE_SECONDS", 3.0)
    found = speed_of(pack, zygotes, variant(layer="while True:\n    pass"))
    assert found.verdict is SpeedVerdict.FAIL
    assert found.low > 3.0


def test_growth_tells_a_quadratic_sum_from_a_scan(pack, zygotes):
    ((target, benchmark),) = load_benchmarks(pack).growths
    quadratic = "return torch.ones(len(x), len(x)).tril() @ x + 0 * (x[:, None] * x[None]).sum(1)"
    for source, verdicts in (
        (SOLUTION, {"pass", "inconclusive"}),
        (variant(total=quadratic), {"fail", "inconclusive"}),
    ):
        found = SpeedJudge(pack, *zygotes, wire.Load(source.encode(), "mini.py", 1)).growth(target, benchmark)
        assert str(found.verdict) in verdicts
        assert found.unit == "exponent, less the reference's"


def test_the_verdict_on_values_and_costs_comes_before_any_timing(pack, zygotes):
    events: list = []
    order = GradeOrder("mini", "", SOLUTION.encode(), "mini.py", "mini.py", seed=5, speed=True)
    targets = Targets(lambda: zygotes[1])
    attempt = targets.measure(pack, attempt_of(), order, loads_of(pack, SOLUTION), lambda: zygotes[0], events.append)
    kinds = [event.name if isinstance(event, Measuring) else type(event) for event in events]
    assert kinds == ["FLOPs", "bytes", Judged, "layer", "growth of total"]
    assert next(event for event in events if isinstance(event, Judged)).attempt.passed
    assert {item.name for item in attempt.speed} == {"layer", "growth of total"}


def test_several_threads_are_charged_as_one(pack, zygotes):
    judge = SpeedJudge(pack, *zygotes, wire.Load(b"", "mini.py", 1))
    from grader.meter.paired import PairedRatio

    found = PairedRatio(2.0, 1.9, 2.1, 3.0, SpeedVerdict.PASS, 6, 1, 1e6, 1.0)
    target = pack.exercise.speeds[0]
    assert judge._judged(target, found, 1.0).verdict is SpeedVerdict.PASS
    charged = judge._judged(target, found, 2.0)
    assert charged.verdict is SpeedVerdict.FAIL
    assert "threads" in charged.cause


def test_cpu_time_of_a_process_is_known():
    import os

    before = timing.cpu_ns(os.getpid())
    x = torch.randn(300, 300)
    while timing.cpu_ns(os.getpid()) - before < 30_000_000:
        x @ x
    assert timing.cpu_ns(os.getpid()) > before
    assert timing.cpu_ns(1 << 30) == 0


def test_results_survive_their_json():
    assert msgspec.json.decode(msgspec.json.encode(attempt_of()), type=Attempt) == attempt_of()


def test_waiting_for_a_processor_is_told_from_sleeping():
    import os
    import time

    if not Path(f"/proc/{os.getpid()}/schedstat").exists():
        pytest.skip("this kernel keeps no such account")
    before = timing.account_of(os.getpid())
    time.sleep(0.2)
    after = timing.account_of(os.getpid())
    assert after.waited_ns - before.waited_ns < 100_000_000
    assert after.ran_ns - before.ran_ns < 100_000_000
    assert timing.account_of(1 << 30) == (0, 0)


def test_a_busy_machine_does_not_make_a_verdict(pack, zygotes):
    """Three processes that never rest beside the timed one: waiting for a processor is no work."""
    import subprocess
    import sys

    crowd = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        slow = "return torch.tanh(sum(self.up(x) for _ in range(2)) / 2)"
        assert speed_of(pack, zygotes, variant(layer=slow)).verdict is not SpeedVerdict.FAIL
        slower = "return torch.tanh(sum(self.up(x) for _ in range(12)) / 12)"
        assert speed_of(pack, zygotes, variant(layer=slower)).verdict is not SpeedVerdict.PASS
    finally:
        for process in crowd:
            process.kill()
            process.wait()


def test_a_right_answer_that_is_slow_has_its_costs_measured():
    """A cost takes several calls, under a meter, where a hidden test may make one."""
    exercise = Catalogue(paths.content_root()).exercise("mla")
    source = exercise.solution_path.read_text(encoding="utf-8")
    first = "        past = cache[0].shape[1]\n"
    assert source.count(first) == 1
    slow = source.replace(first, f"        __import__('time').sleep(0.5)\n{first}")
    order = GradeOrder("mla", str(paths.content_root()), slow.encode(), "mla.py", "mla.py", seed=3, speed=False)
    order = msgspec.structs.replace(order, only=("test_decode_returns_the_extended_cache",), timeout_seconds=1.5)
    with JudgeClient() as judge:
        attempt = judge.grade(order, lambda event: None)
    assert [test.outcome for test in attempt.tests] == [Outcome.PASSED]
    assert [cost.passed for cost in attempt.costs] == [True], attempt.costs
