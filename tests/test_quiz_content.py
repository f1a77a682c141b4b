"""The question bank holds together: every question can be drawn, worked, and agrees with published numbers."""

from __future__ import annotations

import importlib.util
import inspect
import math
import random
import string
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest

QUIZ = Path(__file__).resolve().parent.parent / "quiz"


def read(name: str) -> dict[str, Any]:
    return tomllib.loads((QUIZ / name).read_text(encoding="utf-8"))


def calculators() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("quiz_calculators", QUIZ / "calculators.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GEOMETRIES = read("geometries.toml")
NUMERIC = read("numeric.toml")["question"]
SPOKEN = read("spoken.toml")["question"]
CALCULATORS = calculators()


def drawn(question: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    values: dict[str, Any] = dict(GEOMETRIES[rng.choice(question["models"])]) if "models" in question else {}
    for name, rule in question.get("draw", {}).items():
        if "choices" in rule:
            values[name] = rng.choice(rule["choices"])
        elif "share" in rule:
            values[name] = int(rng.uniform(*rule["share"]) * values[rule["of"]])
        else:
            values[name] = rng.randrange(rule["low"], rule["high"] + 1, rule["step"])
    return values


def placeholders(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


@pytest.mark.parametrize("question", NUMERIC, ids=lambda question: question["id"])
def test_a_numeric_question_can_be_drawn_and_worked(question: dict[str, Any]) -> None:
    needed = {"id", "topic", "title", "text", "unit", "calculator", "tolerance", "minutes", "worked"}
    assert needed <= set(question) <= needed | {"models", "draw"}
    calculator = getattr(CALCULATORS, question["calculator"])
    parameters = set(inspect.signature(calculator).parameters)
    rng, texts, answers = random.Random(question["id"]), set(), set()
    for _ in range(60):
        values = drawn(question, rng)
        assert parameters <= set(values), f"{parameters - set(values)} is neither drawn nor in every geometry"
        assert parameters & set(question.get("draw", {})) == set(question.get("draw", {})), "a drawn number is not used"
        answer, steps = calculator(**{name: values[name] for name in parameters})
        assert math.isfinite(answer)
        assert placeholders(question["text"]) <= set(values), "the text shows a number that the learner cannot know"
        text = question["text"].format(**values)
        worked = question["worked"].format(**values, **steps, answer=answer)
        assert "{" not in text + worked
        given = parameters - {name for name in parameters if name in placeholders(question["text"])}
        assert not given, f"{given} is used but not told"
        if question["tolerance"] == 0:
            assert answer == int(answer), "an exact answer must be a whole number"
        texts.add(text)
        answers.add(answer)
    assert len(texts) >= 3 and len(answers) >= 2, "fresh numbers must give other answers"


def test_ids_are_unique_and_topics_known() -> None:
    ids = [question["id"] for question in [*NUMERIC, *SPOKEN]]
    assert len(set(ids)) == len(ids)
    topics = {
        "attention",
        "mixture-of-experts",
        "state-space-models",
        "objectives",
        "scaling",
        "serving",
        "architecture",
    }
    assert {question["topic"] for question in [*NUMERIC, *SPOKEN]} <= topics


@pytest.mark.parametrize("question", SPOKEN, ids=lambda question: question["id"])
def test_a_spoken_question_has_an_answer_and_ten_points(question: dict[str, Any]) -> None:
    needed = {"id", "topic", "minutes", "question", "answer", "follow_up", "follow_up_answer", "rubric"}
    assert set(question) == needed
    assert all(question[name].strip() for name in needed - {"minutes", "rubric"})
    assert sum(line["points"] for line in question["rubric"]) == 10
    assert all(line["says"] for line in question["rubric"])


def test_there_are_the_eleven_spoken_questions() -> None:
    assert len(SPOKEN) == 11


# Latent attention has projections that the table leaves out.
COUNTABLE = {name: shape for name, shape in GEOMETRIES.items() if "d_latent" not in shape and "d_ff" in shape}


@pytest.mark.parametrize("shape", COUNTABLE.values(), ids=list(COUNTABLE))
def test_parameter_counts_follow_from_the_shapes(shape: dict[str, Any]) -> None:
    attention = 2 * shape["d_model"] * shape["d_head"] * (shape["n_heads"] + shape["n_kv_heads"])
    if shape["name"].startswith("GPT"):
        attention, ffn, tables = 4 * shape["d_model"] ** 2, 2 * shape["d_model"] * shape["d_ff"], 1
    else:
        ffn = 3 * shape["d_model"] * shape["d_ff"]
        tables = 1 if shape["name"].startswith("Gemma") else 2
    total = (
        shape["n_layers"] * (attention + ffn * shape.get("n_experts", 1)) + tables * shape["vocab"] * shape["d_model"]
    )
    assert total == pytest.approx(shape["parameters"], rel=0.005)


PUBLISHED = [
    ("kv_bytes_per_layer", {"n_kv_heads": 8, "d_head": 128, "dtype_bytes": 2}, 4096),
    ("kv_gib", {"n_layers": 80, "n_kv_heads": 8, "d_head": 128, "n_tokens": 32768, "batch": 1, "dtype_bytes": 2}, 10),
    ("gqa_reduction", {"n_heads": 128, "n_kv_heads": 8}, 16),
    ("mla_reduction", {"n_heads": 128, "d_head": 128, "d_latent": 512, "d_rope": 64}, 32768 / 576),
    ("mla_as_kv_heads", {"d_head": 128, "d_latent": 512, "d_rope": 64}, 2.25),
    ("rolling_cache_mib", {"n_layers": 32, "n_kv_heads": 8, "d_head": 128, "window": 4096, "n_tokens": 9000}, 512),
    ("receptive_field", {"n_layers": 32, "window": 4096}, 131072),
    ("mamba_crossover", {"d_inner": 4096, "d_state": 16, "n_kv_heads": 8, "d_head": 128}, 32),
    ("training_compute", {"parameters": 70 * 10**9, "training_tokens": 1400 * 10**9}, 588),
    ("tokens_per_parameter", {"parameters": 175 * 10**9, "training_tokens": 300 * 10**9}, 1.714),
    ("chinchilla_loss", {"params_b": 70, "tokens_b": 1400}, 1.97388),
    ("kaplan_growth", {"growth": 10}, 5.3703),
    ("moe_expert_parameters", {"n_layers": 32, "d_model": 4096, "d_ff": 14336, "n_experts": 8}, 45.097),
    ("expert_capacity", {"batch_tokens": 1000, "n_experts": 8, "k": 2, "capacity_factor": 1.25}, 313),
    ("experts_touched", {"n_experts": 8, "k": 2, "batch": 1}, 2),
    ("span_targets", {"length": 512, "density": 0.15, "mean_span": 3.0}, 104),
    ("t5_bucket", {"offset": -20}, 10),
    ("t5_bucket", {"offset": 1}, 17),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), PUBLISHED)
def test_formulas_agree_with_published_numbers(name: str, arguments: dict[str, Any], expected: float) -> None:
    assert getattr(CALCULATORS, name)(**arguments)[0] == pytest.approx(expected, rel=1e-3)
