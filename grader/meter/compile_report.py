"""Compile the kernels of a file for real GPUs, with no GPU and no driver, and say what came out.

The work is done in a process for each target (``python -m grader.meter.compile_report``): Triton's interpreter, once
imported, compiles nothing, and a compiler that crashes must not take the judge along.  One JSON request on standard
input, one JSON line per compiled kernel on standard output.  The learner's file is not run there: only its
kernels and the constants they need are taken from it (``compile_report_source``).
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from grader.errors import GraderFault
from grader.meter.triton_records import LaunchSignature

GATE_TARGETS = (80, 90)
"""A kernel must compile for these; 100 is reported where it is asked for."""

SHARED_LIMIT_BYTES = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024}
"""What one block may use; Triton leaves the check to the driver."""

DEVICE_NAMES = {80: "A100", 90: "H100", 100: "B200"}
COMPILE_SECONDS = 120.0
_REASON_LIMIT = 1200


class Compiled(msgspec.Struct, frozen=True):
    """One kernel, launched one way, compiled for one target.

    ``load_bits`` and ``store_bits`` map the width of a global memory instruction to how many there are;
    ``tensor_cores`` names the instruction that was found, or is empty; ``reason`` is the compiler's own.
    """

    kernel: str
    target: int
    signature: int
    compiled: bool
    reason: str = ""
    registers: int = 0
    spill_bytes: int = 0
    shared_bytes: int = 0
    load_bits: dict[int, int] = {}
    store_bits: dict[int, int] = {}
    tensor_cores: str = ""

    @property
    def problem(self) -> str:
        """Why this does not pass the gate, as a sentence; empty when it does."""
        where = f"{self.kernel} for sm_{self.target}"
        if not self.compiled:
            return f"{where} does not compile: {self.reason}"
        if self.spill_bytes:
            return f"{where} spills {self.spill_bytes} bytes of registers to local memory; give it smaller blocks"
        limit = SHARED_LIMIT_BYTES[self.target]
        if self.shared_bytes > limit:
            return (
                f"{where} needs {self.shared_bytes} bytes of shared memory, and an {DEVICE_NAMES[self.target]} has "
                f"{limit} a block"
            )
        return ""


class CompileReport(msgspec.Struct, frozen=True):
    """Everything that was compiled."""

    compiled: tuple[Compiled, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the gate is not passed: a sentence for each kernel and target of the gate that fails."""
        return tuple(one.problem for one in self.compiled if one.target in GATE_TARGETS and one.problem)

    @property
    def facts(self) -> tuple[str, ...]:
        """What the compiler made of each kernel, over all launches and targets, a line each."""
        made: dict[str, list[Compiled]] = {}
        for one in self.compiled:
            if one.compiled:
                made.setdefault(one.kernel, []).append(one)
        return tuple(_facts(name, launches) for name, launches in made.items())


def _facts(name: str, made: list[Compiled]) -> str:
    targets = ", ".join(f"sm_{target}" for target in sorted({one.target for one in made}))
    fewest, most = min(one.registers for one in made), max(one.registers for one in made)
    largest = max(made, key=lambda one: one.shared_bytes / SHARED_LIMIT_BYTES[one.target])
    words = [f"{fewest} to {most} registers" if fewest < most else f"{most} registers"]
    if spilled := max(one.spill_bytes for one in made):
        words.append(f"{spilled} bytes spilled")
    words.append(f"up to {largest.shared_bytes} of {SHARED_LIMIT_BYTES[largest.target]} bytes of shared memory")
    if bits := [max(one.load_bits) for one in made if one.load_bits]:
        words.append(f"loads up to {max(bits)} bits")
    words += dict.fromkeys(one.tensor_cores for one in made if one.tensor_cores)
    return f"{name} ({targets}): {', '.join(words)}"


class Request(msgspec.Struct, frozen=True):
    """What the compiling process is asked."""

    source: str
    signatures: tuple[LaunchSignature, ...]
    target: int


def compile_kernels(
    source: str,
    signatures: Sequence[LaunchSignature],
    targets: Sequence[int] = GATE_TARGETS,
    seconds: float = COMPILE_SECONDS,
) -> CompileReport:
    """Compile every kernel that was launched, as it was launched.

    Args:
        source: the text of the file that holds the kernels.
        signatures: how they were launched (``MeterReport.signatures``).
        targets: compute capabilities: 80, 90, 100.
        seconds: how long the compiler may take altogether.

    Raises:
        GraderFault: the compiling process cannot be started.
    """
    wanted = tuple(dict.fromkeys(signatures))
    store = _Store(source)
    found = {key: one for key in _keys(wanted, targets) if (one := store.get(wanted[key[0]], key[1])) is not None}
    missing = {target: [place for place in range(len(wanted)) if (place, target) not in found] for target in targets}
    with ThreadPoolExecutor(max(1, len(missing))) as pool:  # the targets side by side, each in a process of its own
        runs = {
            target: pool.submit(_run, Request(source, tuple(wanted[place] for place in places), target), seconds)
            for target, places in missing.items()
            if places
        }
    for target, run in runs.items():
        for one in run.result():
            place = missing[target][one.signature]
            found[place, target] = msgspec.structs.replace(one, signature=place)
            store.put(wanted[place], found[place, target])
    return CompileReport(tuple(found[key] for key in _keys(wanted, targets) if key in found))


def _keys(signatures: Sequence[LaunchSignature], targets: Sequence[int]) -> list[tuple[int, int]]:
    return [(place, target) for place in range(len(signatures)) for target in targets]


def _run(request: Request, seconds: float) -> list[Compiled]:
    """Ask a compiling process; what it did not answer did not compile."""
    root = str(Path(__file__).resolve().parents[2])
    code = f"import sys; sys.path.insert(0, {root!r}); from grader.meter.compile_report import main; main()"
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in ("PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME", "LANG")
    }
    environment |= {"TRITON_DEFAULT_FP_FUSION": "1"}
    ended = "the compiler gave no answer"
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", code],
            input=msgspec.json.encode(request),
            capture_output=True,
            timeout=seconds,
            env=environment,
            check=False,
        )
        output, errors = done.stdout, done.stderr.decode(errors="replace").strip()
        if done.returncode:
            ended = f"the compiler ended with status {done.returncode}: {errors[-300:]}"
    except subprocess.TimeoutExpired as slow:
        output = slow.stdout or b""
        ended = f"the compiler had no answer after {seconds:g} s"
    except OSError as problem:
        raise GraderFault(f"the compiling process cannot be started: {problem}") from problem
    answers = [msgspec.json.decode(line, type=Compiled) for line in output.splitlines() if line.startswith(b"{")]
    answered = {one.signature for one in answers}
    for place, signature in enumerate(request.signatures):
        if place not in answered:
            answers.append(Compiled(signature.kernel, request.target, place, False, ended))
    return answers


class _Store:
    """Results on disk by what they depend on, so that grading the same kernel again compiles nothing."""

    def __init__(self, source: str) -> None:
        from grader.meter.compile_report_source import KernelTexts

        try:
            self._triton = version("triton")
        except PackageNotFoundError:
            self._triton = ""
        self._texts = KernelTexts(source)

    def _path(self, signature: LaunchSignature, target: int) -> Path:
        # The line of the kernel is not part of it: the same kernel further down compiles to the same code.
        signed = msgspec.json.encode(msgspec.structs.replace(signature, line=0))
        functions = [str(argument.value) for argument in signature.arguments if argument.kind == "function"]
        text = self._texts.of(signature.kernel, *functions)
        key = hashlib.sha256(
            b"\0".join([text.encode(), signed, str(target).encode(), self._triton.encode(), *_compiling_code()])
        )
        return _cache_folder() / "reports" / f"{key.hexdigest()}.json"

    def get(self, signature: LaunchSignature, target: int) -> Compiled | None:
        """A remembered result."""
        try:
            return msgspec.json.decode(self._path(signature, target).read_bytes(), type=Compiled)
        except (OSError, msgspec.DecodeError):
            return None

    def put(self, signature: LaunchSignature, result: Compiled) -> None:
        """Remember a result, unless the compiler was cut short; a cache that cannot be written is no fault."""
        if not result.compiled and result.reason.startswith("the compiler "):
            return
        path = self._path(signature, result.target)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(msgspec.json.encode(result))
            part.replace(path)
        except OSError:
            return


@functools.cache
def _compiling_code() -> tuple[bytes, ...]:
    """The code that a result depends on beside Triton's."""
    names = ("compile_report_build.py", "compile_report_source.py")
    return tuple(Path(__file__).with_name(name).read_bytes() for name in names)


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "kit-grader" / "kernels"


def main() -> None:
    """The compiling process: a request on standard input, results on standard output as they come."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a compiler prints must not stand between the answers
    from grader.meter.compile_report_build import Builder

    with Builder(request.source) as builder:
        for place, signature in enumerate(request.signatures):
            answers.write(json.dumps(msgspec.to_builtins(builder.build(signature, request.target, place))) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
