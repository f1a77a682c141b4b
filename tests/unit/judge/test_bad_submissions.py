"""What a learner's file can do wrong before it is even wrong: each gives its outcome and one clear sentence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grader import paths
from grader.errors import KitError, RequestError
from grader.judge.client import JudgeClient
from grader.judge.orders import GradeOrder
from grader.model import Attempt, Isolation

RIGHT = """
import torch
import torch.nn.functional as F
from torch import nn

class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        self.d = d_model // n_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.d, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.d, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, kv_cache=None, use_cache=False):
        q, k, v = (p(x).unflatten(-1, (-1, self.d)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        y = self.o_proj(y.transpose(1, 2).flatten(2))
        return y, None
"""
ONLY = ("test_multi_head_case", "test_multi_query_case")


@pytest.fixture(scope="module")
def judge() -> Iterator[JudgeClient]:
    with JudgeClient() as client:
        yield client


def grade(judge: JudgeClient, source: str, **changes: object) -> Attempt:
    settings = {"seed": 5, "only": ONLY, "timeout_seconds": 30.0, "diagnose": False, **changes}
    order = GradeOrder("gqa", str(paths.content_root()), source.encode(), "gqa.py", "mine.py", **settings)  # type: ignore[arg-type]
    return judge.grade(order, lambda event: None)


def changed(old: str, new: str) -> str:
    assert RIGHT.count(old) == 1
    return RIGHT.replace(old, new)


def test_the_sample_itself_passes(judge: JudgeClient) -> None:
    assert {str(test.outcome) for test in grade(judge, RIGHT).tests} == {"passed"}


def test_a_detached_result_is_called_that(judge: JudgeClient) -> None:
    detached = changed("return y, None", "return y.detach(), None")
    test = grade(judge, detached, only=("test_gradients_reach_the_input_and_every_weight",)).tests[0]
    assert str(test.outcome) == "failed"
    assert test.message == "what was returned carries no gradient: it was detached, or made anew from values"


RETURN = "return y, None"
O_PROJ = "self.o_proj = nn.Linear(d_model, d_model, bias=False)"
BAD = {
    "None": (RETURN, "return None", "failed", "returned None; it must return tuple["),
    "a list": (RETURN, "return [y, None]", "failed", "returned a list of 2"),
    "a tensor alone": (RETURN, "return y", "failed", "returned a float32 tensor of shape"),
    "three things": (RETURN, "return y, None, None", "failed", "returned a tuple of 3"),
    "an array": (RETURN, "return y.detach().numpy(), None", "failed", "an object of type numpy.ndarray"),
    "NaN": (RETURN, "return y * float('nan'), None", "failed", ""),
    "another dtype": (RETURN, "return y.double(), None", "failed", ""),
    "another shape": (RETURN, "return y[:, :, :-1], None", "failed", ""),
    "another device": (RETURN, "return y.to('meta'), None", "failed", ""),
    "a subclass": (RETURN, "return y.as_subclass(type('Mine', (torch.Tensor,), {})), None", "failed", "Mine"),
    "an exception": (RETURN, "raise RuntimeError('shapes')", "error", "RuntimeError: shapes"),
    "other arguments": ("d_model, n_heads, n_kv_heads):", "d_model, n_heads):", "error", "takes 3 positional"),
    "a forward of other arguments": ("x, kv_cache=None, use_cache=False):", "):", "error", "TypeError"),
    "a missing parameter": ("self.o_proj = nn", "self.out = nn", "failed", "has no parameter `o_proj.weight`"),
    "a bias": (O_PROJ, "self.o_proj = nn.Linear(d_model, d_model)", "failed", "nobody asked for: o_proj.bias"),
    "a misshapen parameter": (O_PROJ, O_PROJ.replace("(d_model", "(2 * d_model"), "failed", "it must be ("),
}


@pytest.mark.parametrize("name", BAD)
def test_what_a_call_may_not_give(judge: JudgeClient, name: str) -> None:
    old, new, outcome, sentence = BAD[name]
    attempt = grade(judge, changed(old, new))
    for test in attempt.tests:
        assert str(test.outcome) == outcome, test
        shown = test.message + (f" {test.mismatch}" if test.mismatch else "")
        assert sentence in shown
    assert not attempt.passed


@pytest.mark.parametrize(
    "name, mismatch",
    [("NaN", "nan"), ("another dtype", "float64"), ("another shape", "shape"), ("another device", "meta")],
)
def test_a_mismatch_says_what_it_met(judge: JudgeClient, name: str, mismatch: str) -> None:
    old, new, _, _ = BAD[name]
    test = grade(judge, changed(old, new)).tests[0]
    assert test.mismatch is not None and mismatch in str(test.mismatch)


@pytest.mark.parametrize(
    "source, sentence",
    [
        ("def broken(:\n    pass\n", "line 1"),
        ("import torch\n\nraise ValueError('no config')\n", "ValueError: no config"),
        ("import no_such_module\n", "ModuleNotFoundError"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("import sys\nsys.exit(0)\n", "SystemExit"),
        ("import os\nos._exit(0)\n", "ended its process"),
        ("x = 'a\0b'\n", "null bytes"),
    ],
)
def test_a_file_that_does_not_load_is_said_once(judge: JudgeClient, source: str, sentence: str) -> None:
    attempt = grade(judge, source)
    assert sentence in attempt.load_error
    assert not attempt.passed and all(test.outcome != "passed" for test in attempt.tests)


def test_a_breakpoint_without_a_terminal_is_sent_to_pdb(judge: JudgeClient) -> None:
    assert "breakpoint() has no terminal here; kit grade NAME --pdb" in grade(judge, "breakpoint()\n").load_error


def test_an_endless_loop_at_import_ends(judge: JudgeClient) -> None:
    attempt = grade(judge, "while True:\n    pass\n")
    assert {str(test.outcome) for test in attempt.tests} == {"timeout"} and attempt.load_error


@pytest.mark.parametrize(
    "source, sentence",
    [
        ("import torch\n\ndef helper():\n    pass\n", "does not define `GroupedQueryAttention` (it defines helper)"),
        ("def GroupedQueryAttention(*args):\n    pass\n", "is a function in your file; it must be a class"),
        ("GroupedQueryAttention = 3\n", "is a value in your file; it must be a class"),
    ],
)
def test_a_missing_name_and_a_name_of_another_kind(judge: JudgeClient, source: str, sentence: str) -> None:
    for test in grade(judge, source).tests:
        assert sentence in test.message and test.not_started


def test_a_traceback_holds_only_the_learners_lines(judge: JudgeClient) -> None:
    test = grade(judge, changed("y = self.o_proj(y.transpose", "y = self.o_proj(y @ y.transpose")).tests[0]
    assert test.outcome == "error" and test.trace
    assert all("site-packages" not in line and "hidden" not in line for line in test.trace)
    assert "self.o_proj(y @ y.transpose" in test.trace[-1]


def test_what_is_printed_is_shown_under_its_test(judge: JudgeClient) -> None:
    attempt = grade(judge, changed(RETURN, "print('shape', tuple(y.shape))\n        return y, None"))
    assert [test.printed.strip() for test in attempt.tests] == ["shape (2, 6, 40)", "shape (2, 5, 42)"]


def test_no_message_quotes_the_hidden_tests_or_the_solution(judge: JudgeClient) -> None:
    attempt = grade(judge, changed("is_causal=True, ", ""), only=(), diagnose=True)
    secrets = {
        line.strip()
        for name in ("exercises/gqa/hidden_tests.py", "solutions/gqa.py")
        for line in (paths.content_root() / name).read_text().splitlines()
        if len(line.strip()) > 30 and "(" in line and '"""' not in line
    }
    shown = "\n".join(str(test) for test in attempt.tests) + str(attempt.diagnosis)
    assert not [line for line in secrets if line in shown]


def test_the_part_that_is_asked_for_alone_decides(judge: JudgeClient) -> None:
    check = "if d_model % n_heads or n_heads % n_kv_heads:\n            raise ValueError(n_heads)"
    attempt = grade(judge, changed("super().__init__()", f"super().__init__()\n        {check}"), only=(), part=1)
    assert attempt.passed and [part.number for part in attempt.parts] == [1]
    with pytest.raises(RequestError, match="no part 9"):
        grade(judge, RIGHT, part=9)


def test_an_unknown_exercise_is_a_sentence(judge: JudgeClient) -> None:
    with pytest.raises(KitError):
        judge.grade(GradeOrder("nope", str(paths.content_root()), b"x = 1", "a.py", "a.py"), lambda event: None)


@pytest.mark.parametrize("isolation", [Isolation.NONE, Isolation.BWRAP])
def test_every_isolation_level_gives_the_same_verdicts(judge: JudgeClient, isolation: Isolation) -> None:
    if isolation is Isolation.BWRAP:
        from grader.host.sandbox import why_not

        if reason := why_not():
            pytest.fail(f"bubblewrap is needed here: {reason}")
    right = grade(judge, RIGHT, isolation=isolation)
    wrong = grade(judge, changed("is_causal=True", "is_causal=False"), isolation=isolation)
    assert right.isolation == isolation
    assert {str(test.outcome) for test in right.tests} == {"passed"}
    assert {str(test.outcome) for test in wrong.tests} == {"failed"}


def test_the_same_seed_gives_the_same_inputs_and_another_seed_others(judge: JudgeClient) -> None:
    wrong = changed("is_causal=True", "is_causal=False")
    first, again, other = (grade(judge, wrong, seed=seed).tests[0].mismatch for seed in (5, 5, 6))
    assert first == again != other
