"""The content checks behind ``kit author``: format, fresh stubs, mistakes that apply; and the proof by running.

What can be checked by reading is checked here.  What needs torch (stub fails, solution passes, every mistake
is killed and named) is `judge.selfcheck`, run in a process of its own.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from grader import stubs
from grader.catalogue import EXERCISE_KEYS, MISTAKE_KEYS, PART_KEYS, Catalogue, read_hints, read_mistakes, read_prompt
from grader.errors import ContentError, GraderFault, KitError
from grader.model import Exercise, Mistake
from grader.paths import CONTENT_VARIABLE

PROMPT_HEADINGS = ("Formula", "Signatures", "Conventions", "Parts", "Worked example", "What the interviewer asks next")
TOTAL_POINTS = 10
MAX_STARS = 3
PROOF_SECONDS_PER_SEED = 1200.0

_FILES = frozenset({"exercise.toml", "prompt.md", "hints.md", "hidden_tests.py", "mistakes.toml", "benchmarks.py"})
_CONTENT_IMPORTS = frozenset({"torch", "numpy", "math", "triton"}) | sys.stdlib_module_names
_TEST_IMPORTS = frozenset({"torch", "math", "numpy", "pytest", "__future__"})


class Finding(msgspec.Struct, frozen=True):
    """One thing checked: its kind, its name, whether it holds, and what was seen."""

    kind: str
    name: str
    holds: bool
    seen: str


def write_stub(exercise: Exercise) -> bool:
    """Generate the stub from the solution; True when the file changed.

    Raises:
        ContentError: the solution is missing, or does not fit exercise.toml.
    """
    text = fresh_stub(exercise)
    path = exercise.folder / f"{exercise.slug}.py"
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.write_text(text, encoding="utf-8", newline="\n")
    return True


def fresh_stub(exercise: Exercise) -> str:
    """The stub the solution gives now.

    Raises:
        ContentError: the solution is missing, or does not fit exercise.toml.
    """
    return stubs.stub_text(exercise, _solution(exercise))


def read_through(catalogue: Catalogue, slug: str) -> list[Finding]:
    """Everything about an exercise that can be checked without running it, one finding per kind.

    A kind that holds has one finding; a kind that does not has one per fault.
    """
    checks: tuple[tuple[str, Callable[[Exercise], Iterator[str]]], ...] = (
        ("exercise.toml", _exercise_faults),
        ("files", _file_faults),
        ("solution text", _solution_faults),
        ("stub is fresh", _stub_faults),
        ("prompt", _prompt_faults),
        ("hints", _hint_faults),
        ("hidden tests", _test_faults),
        ("mistakes apply", _mistake_faults),
    )
    try:
        exercise = catalogue.exercise(slug)
    except KitError as error:
        return [Finding("exercise.toml", slug, False, error.message)]
    found: list[Finding] = []
    for kind, check in checks:
        try:
            faults = list(check(exercise))
        except KitError as error:
            faults = [error.message]
        except (OSError, ValueError) as error:
            faults = [f"cannot be read: {error}"]
        found.extend(Finding(kind, slug, False, fault) for fault in faults)
        if not faults:
            found.append(Finding(kind, slug, True, ""))
    return found


def stray_content(catalogue: Catalogue) -> list[Finding]:
    """Solutions without an exercise, and slugs that stand in both ``exercises/`` and ``kernels/``."""
    faults = []
    for base in ("solutions", "solutions/kernels"):
        for path in sorted((catalogue.root / base).glob("*.py")):
            if catalogue.folders.get(path.stem) is None:
                faults.append(f"{base}/{path.name} belongs to no exercise")
    for folder in sorted((catalogue.root / "kernels").glob("*/exercise.toml")):
        if (catalogue.root / "exercises" / folder.parent.name).is_dir():
            faults.append(f"{folder.parent.name} stands in exercises/ and in kernels/")
    return [Finding("stray files", "catalogue", False, fault) for fault in faults]


def prove(catalogue: Catalogue, slug: str, seeds: int, submissions: Path, jobs: int = 1) -> list[Finding]:
    """Run the exercise's proof: solution, stub, every mistake, the right and wrong submissions.

    Args:
        catalogue: where the exercise is.
        slug: the exercise.
        seeds: how many run seeds, from 0.
        submissions: the folder that holds ``<slug>/right`` and ``<slug>/wrong``.
        jobs: how many processes work at it.

    Raises:
        GraderFault: the proof could not be run.
    """
    command = [sys.executable, "-m", "grader.judge.selfcheck", slug, "--json", "--seeds", str(seeds)]
    command += ["--jobs", str(jobs)]
    environment = {**os.environ, CONTENT_VARIABLE: str(catalogue.root)}
    try:
        done = subprocess.run(
            [*command, "--submissions", str(submissions)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=PROOF_SECONDS_PER_SEED * seeds,
        )
    except subprocess.TimeoutExpired:
        return [Finding("proof", slug, False, f"did not end within {PROOF_SECONDS_PER_SEED * seeds:.0f} s")]
    if done.returncode == ContentError.exit_code:
        return [Finding("proof", slug, False, " ".join(done.stdout.split()))]
    try:
        return msgspec.json.decode(done.stdout, type=list[Finding])
    except msgspec.DecodeError as error:
        raise GraderFault(f"the proof of {slug} broke off", done.stderr.strip()[-2000:]) from error


def scaffold(root: Path, slug: str, title: str, track: str) -> list[Path]:
    """Write the files of a new exercise, as the content format wants them, for an author to fill.

    Raises:
        ContentError: the slug is no Python name in lower case, or the exercise exists.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", slug):
        raise ContentError(f"{slug!r} is no slug: lower-case letters, digits and _, beginning with a letter")
    kernel = track == "kernels"
    folder = root / ("kernels" if kernel else "exercises") / slug
    solution = root / "solutions" / ("kernels" if kernel else "") / f"{slug}.py"
    if any(path.exists() for path in (root / "exercises" / slug, root / "kernels" / slug, solution)):
        raise ContentError(f"{slug} exists already")
    texts = {
        solution: _NEW_SOLUTION.format(title=title),
        folder / "exercise.toml": _NEW_EXERCISE.format(slug=slug, title=title, track=track),
        folder / "prompt.md": "\n".join(f"## {heading}\n\n" for heading in PROMPT_HEADINGS),
        folder / "hints.md": "## Part 1\n\n### Nudge\n\n\n### Idea\n\n\n### Line\n\n",
        folder / "hidden_tests.py": _NEW_TESTS,
        folder / "mistakes.toml": _NEW_MISTAKES,
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    return list(texts)


def _solution(exercise: Exercise) -> str:
    try:
        return exercise.solution_path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ContentError(f"{exercise.solution_path} cannot be read: {error}") from error


def _exercise_faults(exercise: Exercise) -> Iterator[str]:
    table = tomllib.loads((exercise.folder / "exercise.toml").read_text(encoding="utf-8"))
    for key in sorted(set(table) - EXERCISE_KEYS):
        yield f"unknown key {key}"
    for part in table["part"]:
        for key in sorted(set(part) - PART_KEYS):
            yield f"part {part['number']}: unknown key {key}"
    if exercise.max_points != TOTAL_POINTS:
        yield f"the parts' points add up to {exercise.max_points}, not {TOTAL_POINTS}"
    if not 1 <= exercise.stars <= MAX_STARS:
        yield f"{exercise.stars} stars; 1 to {MAX_STARS} are known"
    if exercise.minutes < 1 or exercise.timeout_seconds <= 0:
        yield "minutes and timeout_seconds must be positive"
    for symbol in exercise.symbols_minutes:
        if symbol not in exercise.symbols:
            yield f"symbol_minutes names {symbol}, which no part asks for"
    for part in exercise.parts:
        if not part.symbols:
            yield f"part {part.number} asks for nothing"


def _file_faults(exercise: Exercise) -> Iterator[str]:
    allowed = _FILES | {f"{exercise.slug}.py"}
    present = {path.name for path in exercise.folder.iterdir() if path.name != "__pycache__"}
    for name in sorted(present - allowed):
        yield f"stray file {name}"
    for name in sorted(allowed - present - {"benchmarks.py"}):
        yield f"{name} is missing"
    targets = bool(exercise.costs or exercise.speeds or exercise.growths)
    if targets and "benchmarks.py" not in present:
        yield "exercise.toml has targets, but there is no benchmarks.py"
    if not targets and "benchmarks.py" in present:
        yield "there is a benchmarks.py, but exercise.toml has no targets"
    for path in exercise.folder.glob("*.*"):
        if b"\r" in path.read_bytes():
            yield f"{path.name} has Windows line ends"


def _solution_faults(exercise: Exercise) -> Iterator[str]:
    source = stubs.Source(_solution(exercise), exercise.solution_path.name)
    for module in _imported(source.tree):
        if module not in _CONTENT_IMPORTS:
            yield f"the solution imports {module}"
    if ast.get_docstring(source.tree) is None:
        yield "the solution has no module docstring"
    for name in exercise.symbols:
        node = source.named(name).node
        if isinstance(node, stubs.FunctionNode | ast.ClassDef):
            yield from _unexplained(node, name)


def _unexplained(node: stubs.FunctionNode | ast.ClassDef, name: str) -> Iterator[str]:
    """Public code without a docstring, and results without the annotation that the judge checks."""
    if ast.get_docstring(node) is None and not name.endswith(".__init__"):
        yield f"{name} has no docstring"
    if isinstance(node, ast.ClassDef):
        for item in node.body:
            if isinstance(item, stubs.FunctionNode) and (item.name == "__init__" or not item.name.startswith("_")):
                yield from _unexplained(item, f"{name}.{item.name}")
    elif node.returns is None and not name.endswith(".__init__"):
        yield f"{name} has no return annotation"


def _stub_faults(exercise: Exercise) -> Iterator[str]:
    path = exercise.folder / f"{exercise.slug}.py"
    if not path.exists():
        yield f"there is no stub; kit author stub {exercise.slug}"
    elif path.read_text(encoding="utf-8") != fresh_stub(exercise):
        yield f"the stub is stale; kit author stub {exercise.slug}"


def _prompt_faults(exercise: Exercise) -> Iterator[str]:
    text = read_prompt(exercise)
    pieces = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    sections = {title.strip(): body.strip() for title, body in zip(pieces[1::2], pieces[2::2], strict=True)}
    for heading in PROMPT_HEADINGS:
        if not sections.get(heading):
            yield f"prompt.md: ## {heading} is {'empty' if heading in sections else 'missing'}"
    for symbol in exercise.symbols:
        if symbol not in text:
            yield f"prompt.md does not mention {symbol}"


def _hint_faults(exercise: Exercise) -> Iterator[str]:
    read_hints(exercise)
    yield from ()


def _test_faults(exercise: Exercise) -> Iterator[str]:
    path = exercise.folder / "hidden_tests.py"
    tree = stubs.Source(path.read_text(encoding="utf-8"), path.name).tree
    for module in _imported(tree):
        if module not in _TEST_IMPORTS and not (exercise.track == "kernels" and module == "triton"):
            yield f"hidden_tests.py imports {module}"
    names: list[str] = []
    parts: set[object] = set()
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
            continue
        names.append(node.name)
        numbers = [
            item.args[0].value
            for item in node.decorator_list
            if isinstance(item, ast.Call) and getattr(item.func, "id", "") == "part"
            if item.args and isinstance(item.args[0], ast.Constant)
        ]
        if len(numbers) != 1:
            yield f"{node.name} needs exactly one @part(n)"
        parts.update(numbers)
        for item in ast.walk(node):
            if isinstance(item, ast.Assert) and item.msg is None:
                yield f"{node.name}: the assert in line {item.lineno} has no message"
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two tests are called {name}"
    for part in exercise.parts:
        if part.number not in parts:
            yield f"part {part.number} has no test"


def _mistake_faults(exercise: Exercise) -> Iterator[str]:
    solution = _solution(exercise)
    table = tomllib.loads((exercise.folder / "mistakes.toml").read_text(encoding="utf-8"))
    for row in table.get("mistake", []):
        for key in sorted(set(row) - MISTAKE_KEYS):
            yield f"{row.get('id')}: unknown key {key}"
    seen: dict[str, str] = {}
    for mistake in read_mistakes(exercise):
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", mistake.id):
            yield f"{mistake.id}: an id is words in lower case joined by -"
        if not 1 <= mistake.part <= len(exercise.parts):
            yield f"{mistake.id}: there is no part {mistake.part}"
        text, fault = apply_edits(solution, mistake)
        if fault:
            yield f"{mistake.id}: {fault}"
        elif text == solution:
            yield f"{mistake.id} changes nothing"
        elif text in seen:
            yield f"{mistake.id} is the same as {seen[text]}"
        seen.setdefault(text, mistake.id)
    if not seen:
        yield "there is no mistake"


def apply_edits(solution: str, mistake: Mistake) -> tuple[str, str]:
    """The solution with the mistake in it, and what is wrong with its edits (empty: nothing)."""
    text = solution
    for edit in mistake.edits:
        if text.count(edit.find) != edit.count:
            return text, f"{edit.find!r} occurs {text.count(edit.find)} times in the solution, not {edit.count}"
        text = text.replace(edit.find, edit.replace)
    try:
        ast.parse(text)
    except SyntaxError as error:
        return text, f"its variant is no Python: {error}"
    return text, ""


def _imported(tree: ast.Module) -> list[str]:
    """The top-level packages that a module imports anywhere."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.extend(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.append((node.module or "").partition(".")[0])
    return list(dict.fromkeys(found))


_NEW_SOLUTION = '''"""{title}.

References and the symbols of the paper, one per line.
"""

from __future__ import annotations

from torch import Tensor


def rename_me(x: Tensor) -> Tensor:
    """What it returns. x (B, T, d_model) -> (B, T, d_model), x's dtype.

    Raises:
        ValueError: an argument that makes no sense; the message carries the number.
    """
    return x * 2
'''

_NEW_EXERCISE = """slug = "{slug}"
title = "{title}"
track = "{track}"
stars = 1
minutes = 15
source = "Author et al. year, title, arXiv:0000.00000, section n"
given = []

[[part]]
number = 1
title = "What part 1 asks for"
points = 10
symbols = ["rename_me"]
"""

_NEW_TESTS = '''"""Hidden tests; see CONTRIBUTING.md for the names that are injected."""


@part(1)
def test_the_values_are_those_of_the_formula(submission, reference, rng):
    x = rng.normal(2, 5, 7)
    close(submission.rename_me(x), reference.rename_me(x), says="every element follows the formula")
'''

_NEW_MISTAKES = """[[mistake]]
id = "rename-me"
title = "What is wrong, in a few words"
part = 1
find = "x * 2"
replace = "x * 3"
says = "What the code does, and what it should do."
hint = "What to try in order to see it."
seen_in = ""
"""
