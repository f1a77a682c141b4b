"""Stubs keep the contract and give nothing away."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from grader.catalogue import Catalogue
from grader.errors import ContentError
from grader.model import Exercise, Part
from grader.stubs import Source, stub_text


@pytest.fixture
def exercise(course: Path) -> Exercise:
    return Catalogue(course).exercise("scale_it")


@pytest.fixture
def stub(exercise: Exercise) -> str:
    return stub_text(exercise, exercise.solution_path.read_text())


def of(solution: str, symbols: tuple[str, ...], given: tuple[str, ...] = ()) -> str:
    """The stub of a solution given as text."""
    parts = (Part(1, "All", 10, symbols),)
    exercise = Exercise("x", "X", "attention", 1, 5, "A paper", parts, given, Path("x"), Path("x.py"))
    return stub_text(exercise, solution)


def test_a_stub_is_python_and_defines_every_symbol(stub: str, exercise: Exercise) -> None:
    names = {node.name for node in ast.parse(stub).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert names == {"unit", "_ones", "scale", "Scaler"}


def test_signatures_and_docstrings_stay_word_for_word(stub: str) -> None:
    assert "def scale(\n    x: Tensor,\n    factor: float = DEFAULT_FACTOR,\n) -> Tensor:" in stub
    assert (
        '    """Return x times factor.\n\n    x (B, T) -> (B, T).  Mind the "quotes" and the # sign.\n    """' in stub
    )
    assert "    @property\n    def sizes(self) -> Sequence[int]:" in stub
    assert "    weight: Tensor\n" in stub


def test_bodies_private_names_comments_and_the_reference_docstring_are_gone(stub: str) -> None:
    for secret in (
        "the trick",
        "x * factor",
        "_SECRET",
        "_apply_weight",
        "lru_cache",
        "super()",
        "the reference",
        "what to scale",
        "nn.Parameter",
    ):
        assert secret not in stub


def test_given_code_stays_whole_with_what_it_needs(stub: str) -> None:
    assert "    return _ones(n)  # given code keeps its comments" in stub
    assert "def _ones(n: int) -> Tensor:\n    return torch.ones(n)" in stub


def test_imports_are_those_that_the_kept_text_needs(stub: str) -> None:
    assert "from collections.abc import Sequence" in stub
    assert "import math" not in stub and "import functools" not in stub
    assert "import torch\nfrom torch import Tensor, nn" in stub


def test_every_body_says_which_part_asks_for_it(stub: str) -> None:
    assert 'raise NotImplementedError("part 1: write scale")' in stub
    assert 'raise NotImplementedError("part 2: write Scaler.forward")' in stub
    assert stub.count("raise NotImplementedError") == 4


def test_the_header_names_parts_points_minutes_and_the_command(stub: str) -> None:
    header = ast.get_docstring(ast.parse(stub)) or ""
    for piece in (
        "Scaling",
        "Made up 2020, section 1",
        "Part 1 (4 points)  The function: scale",
        "5 minutes",
        "kit grade scale_it",
        "Given whole: unit",
    ):
        assert piece in header


def test_a_symbol_of_two_parts_names_both(course: Path) -> None:
    exercise = Catalogue(course).exercise("shift")
    assert '"parts 1, 2: write shift"' in stub_text(exercise, exercise.solution_path.read_text())


def test_a_stub_is_made_twice_the_same(exercise: Exercise, stub: str) -> None:
    assert stub_text(exercise, exercise.solution_path.read_text()) == stub


def test_a_promised_name_that_the_solution_lacks_is_refused(exercise: Exercise) -> None:
    lacking = replace(exercise, parts=(Part(1, "One", 10, ("scale", "missing")),))
    with pytest.raises(ContentError, match="does not define missing"):
        stub_text(lacking, exercise.solution_path.read_text())


def test_a_public_name_that_nobody_mentions_is_refused() -> None:
    with pytest.raises(ContentError, match="extra is public"):
        of("def f() -> int:\n    return 1\n\n\ndef extra() -> int:\n    return 2\n", ("f",))


def test_a_signature_that_needs_a_private_name_is_refused() -> None:
    with pytest.raises(ContentError, match="needs the private name _K"):
        of("_K = 3\n\n\ndef f(x: int = _K) -> int:\n    return x\n", ("f",))


def test_a_private_base_class_is_refused() -> None:
    with pytest.raises(ContentError, match="needs the private name _Base"):
        of("class _Base:\n    pass\n\n\nclass C(_Base):\n    pass\n", ("C",))


def test_a_solution_that_is_no_python_is_refused() -> None:
    with pytest.raises(ContentError, match="not valid Python"):
        of("def f(:\n", ("f",))


def test_dataclasses_and_named_tuples_keep_their_fields() -> None:
    solution = (
        "from dataclasses import dataclass\n\n\n@dataclass(frozen=True)\nclass Box:\n"
        '    """A box."""\n\n    size: int = 3\n    _secret: int = 4\n\n'
        "    def volume(self) -> int:\n        return self.size**3\n"
    )
    stub = of(solution, ("Box",))
    assert '@dataclass(frozen=True)\nclass Box:\n    """A box."""\n\n    size: int = 3\n\n    def volume' in stub
    assert "_secret" not in stub and "**3" not in stub


def test_a_field_with_a_value_keeps_only_its_type_in_an_ordinary_class() -> None:
    stub = of("class C:\n    limit: int = 41\n    other = 42\n\n    def f(self) -> int:\n        return 1\n", ("C",))
    assert "    limit: int\n" in stub and "41" not in stub and "42" not in stub


def test_private_kernels_are_stripped_and_public_ones_keep_their_decorator() -> None:
    solution = (
        "import triton\nimport triton.language as tl\nfrom torch import Tensor\n\n\n"
        "@triton.jit\ndef _kernel(p, BLOCK: tl.constexpr):\n"
        "    tl.store(p, 1)\n\n\n@triton.jit\ndef helper(p):\n    tl.store(p, 2)\n\n\n"
        "def launch(x: Tensor) -> Tensor:\n    _kernel[(1,)](x, 4)\n    return x\n"
    )
    stub = of(solution, ("launch", "helper"))
    assert "_kernel" not in stub and "tl.store" not in stub
    assert "@triton.jit\ndef helper(p):" in stub and "import triton.language as tl" in stub


def test_a_one_line_function_and_a_class_without_docstring_are_blanked() -> None:
    stub = of(
        "def f(x: int) -> int: return x + 1\n\n\nclass C:\n    def g(self) -> int:\n        return 2\n", ("f", "C")
    )
    tree = ast.parse(stub)
    assert "x + 1" not in stub and "return 2" not in stub
    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)] == ["f", "C"]


def test_non_ascii_text_and_windows_line_ends_do_no_harm() -> None:
    solution = 'def f(α: float = 1.0) -> float:\r\n    """Größe α → 2α."""\r\n    return 2 * α\r\n'
    stub = of(solution, ("f",))
    assert "def f(α: float = 1.0) -> float:" in stub and '"""Größe α → 2α."""' in stub
    assert "\r" not in stub and "2 * α" not in stub


def test_a_lambda_default_and_a_dict_annotation_do_not_end_the_signature_early() -> None:
    solution = "def f(g=lambda x: x, table: dict[str, int] | None = None) -> dict[str, int]:\n    return {}\n"
    assert "def f(g=lambda x: x, table: dict[str, int] | None = None) -> dict[str, int]:\n    raise" in of(
        solution, ("f",)
    )


def test_a_source_finds_the_last_definition_of_a_name() -> None:
    source = Source("x = 1\nx = 2\n")
    assert source.named("x").first_line == 2
