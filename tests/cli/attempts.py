"""Attempts made by hand, one of each kind that a learner can meet."""

from __future__ import annotations

from pathlib import Path

from grader import model
from grader.model import (
    Attempt,
    CostResult,
    Diagnosis,
    Exercise,
    Isolation,
    Mismatch,
    Outcome,
    Part,
    PartResult,
    SpeedResult,
    SpeedVerdict,
)

EXERCISE = Exercise(
    slug="gqa",
    title="Grouped-query attention",
    track="attention",
    stars=2,
    minutes=20,
    source="",
    parts=(
        Part(1, "Training forward", 4, ("GroupedQueryAttention",)),
        Part(2, "KV cache", 4, ("GroupedQueryAttention",)),
        Part(3, "Conversion", 2, ("mean_pool_kv_heads",)),
    ),
    given=(),
    folder=Path("exercises/gqa"),
    solution_path=Path("solutions/gqa.py"),
)

HOSTILE = "NUL \0 bell \a escape \x1b[31mred\x1b[0m back\x08 cr \r rtl \u202e end \ud800 ]]> <b>&amp; \ufffe"


def test_result(name: str, part: int, outcome: Outcome = Outcome.PASSED, **more: object) -> model.TestResult:
    """One test's result; not itself a test."""
    return model.TestResult(id=f"test_{name}", part=part, outcome=outcome, seconds=0.0123, **more)  # type: ignore[arg-type]


test_result.__test__ = False  # type: ignore[attr-defined]


def attempt(tests: tuple[model.TestResult, ...], passed_parts: tuple[int, ...] = (), **more: object) -> Attempt:
    """An attempt with these tests; the points follow from the parts that passed."""
    parts = tuple(
        PartResult(part.number, part.title, part.number in passed_parts, part.points * (part.number in passed_parts))
        for part in EXERCISE.parts
    )
    fields: dict[str, object] = {
        "exercise": "gqa",
        "file": "workspace/gqa.py",
        "seed": 7,
        "device": "cpu",
        "isolation": Isolation.PROCESS,
        "seconds": 1.94,
        "passed": all(part.passed for part in parts),
        "points": sum(part.points for part in parts),
        "max_points": 10,
        "parts": parts,
        "tests": tests,
    }
    return Attempt(**{**fields, **more})  # type: ignore[arg-type]


PASSED = attempt(
    (test_result("forward", 1), test_result("decode", 2), test_result("pooling", 3)),
    (1, 2, 3),
    costs=(CostResult("decode step", 1.0, 1.2, "x reference FLOPs", True, 2),),
    speed=(SpeedResult("training forward", "cpu", 1.04, 0.98, 1.11, 1.5, SpeedVerdict.PASS),),
)

UNTOUCHED = attempt(
    tuple(
        test_result(name, part, Outcome.ERROR, message="NotImplementedError: part 1: write it", not_started=True)
        for name, part in (("forward", 1), ("decode", 2), ("pooling", 3))
    )
)

WRONG = attempt(
    (
        test_result("forward", 1),
        test_result(
            "one_token_decode_equals_the_full_forward[bf16]",
            2,
            Outcome.FAILED,
            message="decode step 5 equals the full forward",
            call="GroupedQueryAttention(48, 6, 2)((2, 1, 48) float32, kv_cache=((2, 2, 5, 8) float32, (2, 2, 5, 8)"
            " float32), use_cache=True)",
            mismatch=Mismatch(
                what="output 0",
                where="[1, 0, 31]",
                error=0.3125,
                allowed=1.2e-4,
                actual="[0.51, -0.25, 0.125]",
                expected="[0.51, 0.0625, 0.125]",
                actual_shape="(2, 1, 48)",
                expected_shape="(2, 1, 48)",
            ),
            trace=("line 31, in forward: scores = scores.masked_fill(mask, 0)",),
            printed="shape torch.Size([2, 1, 48])\n",
        ),
        test_result("chunked_prefill", 2, Outcome.FAILED, message="the second chunk"),
        test_result("an_empty_cache", 2, Outcome.FAILED, message="a cache of length 0"),
        test_result("pooling", 3, Outcome.TIMEOUT, message="did not answer within 10 s"),
        test_result(
            "pooled_bias",
            3,
            Outcome.ERROR,
            message="NotImplementedError: part 3: write mean_pool_kv_heads",
            not_started=True,
        ),
    ),
    (1,),
    diagnosis=(
        Diagnosis(
            "tiled-kv-heads",
            "KV heads tiled instead of repeated in blocks",
            "Query head h reads KV head h mod H_kv; it should read h // group.",
            ("test_one_token_decode_equals_the_full_forward[bf16]", "test_chunked_prefill"),
            "Draw which KV head each of 6 query heads reads when there are 2.",
        ),
    ),
    costs=(
        CostResult("decode step", 2.5, 1.2, "x reference FLOPs", False, 2, True, "the prefill is computed again"),
        CostResult("expanded keys", 1.5, 1.0, "x reference bytes", False, 2, False),
    ),
    speed=(
        SpeedResult("training forward", "cpu", 1.9, 1.7, 2.2, 1.5, SpeedVerdict.FAIL, 1, "a loop over heads"),
        SpeedResult("decode", "cpu", 1.5, 1.2, 1.8, 1.5, SpeedVerdict.INCONCLUSIVE, 2),
        SpeedResult(
            "forward against T", "cpu", 2.9, 2.8, 3.0, 2.3, SpeedVerdict.FAIL, 1, "cubic", unit="exponent of T"
        ),
    ),
    notes=("conftest.py beside your file: ignored, grading does not read it",),
    ran_on="CPU only",
)

DOES_NOT_LOAD = attempt(
    tuple(
        test_result(name, part, Outcome.ERROR, message="line 3: invalid syntax")
        for name, part in (("forward", 1), ("decode", 2))
    ),
    load_error="SyntaxError in line 3: invalid syntax\n    def forward(self x):",
)

ONE_PART = attempt(
    (test_result("forward", 1),),
    passed=True,
    points=4,
    max_points=4,
    parts=(PartResult(1, "Training forward", True, 4),),
)

NASTY = attempt(
    (
        test_result(
            "forward",
            1,
            Outcome.FAILED,
            message=HOSTILE,
            call=HOSTILE,
            trace=(HOSTILE,),
            printed="\n".join(f"{HOSTILE} {line}" for line in range(40)),
            mismatch=Mismatch(what="output", error=float("nan"), where="[0]", actual=HOSTILE),
        ),
    ),
    load_error="",
)

ALL = {
    "passed": PASSED,
    "untouched": UNTOUCHED,
    "wrong": WRONG,
    "does_not_load": DOES_NOT_LOAD,
    "one_part": ONE_PART,
    "nasty": NASTY,
}
