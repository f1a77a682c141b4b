"""Inside the compiling process: from a launch's signature to what ptxas says about the code."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from collections import Counter, namedtuple
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import cache
from triton.runtime.jit import JITFunction

from grader.meter.compile_report import _REASON_LIMIT, Compiled
from grader.meter.compile_report_source import kernel_module
from grader.meter.triton_records import ArgumentSignature, LaunchSignature

_NUMBERS = ("int", "float", "bool")
_DIVISIBLE = [["tt.divisibility", 16]]
_MEMORY = re.compile(r"\b(ld|st)\.global(?:\.[a-zA-Z_:0-9]+)*?(?:\.v(\d))?\.[bsuf](\d+)\b")
_COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global\b[^;]*?,\s*(?:0x)?([0-9a-fA-F]+)\b")
_TENSOR_CORES = (("tcgen05.mma", "tcgen05"), ("wgmma.mma_async", "wgmma"), ("mma.sync", "mma.sync"))
_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


class _Refused(Exception):
    """A launch that cannot be described to the compiler; its message says why."""


class Builder:
    """The kernels of one file, ready to be compiled.  A context: the file lies in a folder that goes away."""

    def __init__(self, source: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name) / "submission.py"
        self._path.write_text(source)
        self._names: dict[str, Any] = {"__name__": "submission", "__file__": str(self._path)}
        self._fault = ""
        # Triton's own store is of no use beside ours, and its key is a digest of half a gigabyte of library: a second
        # of each process.  Nothing is ever looked up in it here, so any key will do; Triton's workers replace it so.
        knobs.cache.dir = str(Path(self._folder.name) / "cache")
        knobs.compilation.always_compile = True
        cache.triton_key = lambda: triton.__version__
        knobs.nvidia.dump_ptxas_log = True
        try:
            exec(compile(kernel_module(source), str(self._path), "exec"), self._names)
        except Exception as problem:
            self._fault = f"{type(problem).__name__}: {problem}"

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *failure: Any) -> None:
        self._folder.cleanup()

    def build(self, signature: LaunchSignature, target: int, place: int) -> Compiled:
        """Compile one launch for one target; whatever goes wrong is in ``reason``."""
        try:
            source = self._described(signature)
            options = {
                name: value
                for name, value in (
                    ("num_warps", signature.num_warps),
                    ("num_stages", signature.num_stages),
                    ("num_ctas", signature.num_ctas),
                    ("maxnreg", signature.maxnreg),
                )
                if value is not None
            }
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                made: Any = triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)
            ptx = made.asm["ptx"]
            registers, spilled = _used(printed.getvalue())
        except _Refused as problem:
            return Compiled(signature.kernel, target, place, False, str(problem))
        except Exception as problem:
            return Compiled(signature.kernel, target, place, False, self._reason(problem))
        loads, stores = _widths(ptx)
        return Compiled(
            signature.kernel,
            target,
            place,
            True,
            registers=registers,
            spill_bytes=spilled,
            shared_bytes=int(made.metadata.shared),
            load_bits=loads,
            store_bits=stores,
            tensor_cores=next((name for mark, name in _TENSOR_CORES if mark in ptx), ""),
        )

    def _described(self, signature: LaunchSignature) -> Any:
        """The launch as Triton's own source object."""
        kernel = self._function(signature.kernel)
        parameters = {parameter.name: parameter for parameter in kernel.params}
        types: dict[str, Any] = {}
        constants: dict[tuple[int, ...], Any] = {}
        attributes: dict[tuple[int, ...], Any] = {}
        for argument in signature.arguments:
            parameter = parameters.get(argument.name)
            if parameter is None:
                raise _Refused(f"{signature.kernel} has no parameter {argument.name}")
            types[argument.name] = self._typed(
                argument, (kernel.arg_names.index(argument.name),), parameter, constants, attributes
            )
        return ASTSource(kernel, types, constants, attributes)

    def _typed(
        self,
        argument: ArgumentSignature,
        path: tuple[int, ...],
        parameter: Any,
        constants: dict[tuple[int, ...], Any],
        attributes: dict[tuple[int, ...], Any],
    ) -> Any:
        """The type of an argument, or of an item of a tuple; notes under its path what is constant or aligned."""
        if argument.kind == "tuple":
            return _tuple_like(
                argument,
                (
                    self._typed(item, (*path, place), parameter, constants, attributes)
                    for place, item in enumerate(argument.items)
                ),
            )
        fixed = not (parameter.do_not_specialize or parameter.annotation_type)
        kind, value = self._classified(argument, fixed)
        if kind == "constexpr":
            constants[path] = value
            return kind
        unaligned = parameter.do_not_specialize_on_alignment or parameter.do_not_specialize
        if argument.aligned and not unaligned:
            attributes[path] = _DIVISIBLE
        return parameter.annotation_type if parameter.annotation_type and argument.kind in _NUMBERS else kind

    def _classified(self, argument: ArgumentSignature, fixed: bool) -> tuple[str, Any]:
        match argument.kind:
            case "constexpr" | "none":
                return "constexpr", argument.value
            case "constant tuple":
                return "constexpr", _tuple_like(argument, (self._classified(item, fixed)[1] for item in argument.items))
            case "dtype":
                return "constexpr", tl.dtype(argument.value)
            case "function":
                return "constexpr", self._function(str(argument.value))
            case "int" if argument.value == 1 and fixed:
                return "constexpr", 1
            case "unsupported":
                raise _Refused(f"the parameter {argument.name} is a {argument.type}, which no kernel takes")
        return argument.type, None

    def _function(self, name: str) -> Any:
        if self._fault:
            raise _Refused(self._fault)
        found = self._names.get(name)
        if not isinstance(found, JITFunction):
            raise _Refused(f"{name} is not a @triton.jit function that can be compiled by itself")
        return found

    def _reason(self, problem: Exception) -> str:
        """The compiler's own words, without paths of this machine."""
        text = ""
        step: BaseException | None = problem
        while step is not None:
            cause = str(step).strip() or type(step).__name__
            if cause not in text:
                text = f"{text}; {cause}" if text else cause
            step = step.__cause__
        text = text.replace(str(self._path), "your file").replace(self._folder.name, "")
        return text if len(text) <= _REASON_LIMIT else text[:_REASON_LIMIT] + " ..."


def _tuple_like(argument: ArgumentSignature, items: Iterable[Any]) -> tuple[Any, ...]:
    """A tuple of these items, with names where the argument has them: kernels may ask for an item by its name."""
    return namedtuple("Fields", argument.fields)(*items) if argument.fields else tuple(items)


def _used(log: str) -> tuple[int, int]:
    """Registers a thread and bytes spilled, from the assembler's own account."""
    registers = [int(count) for count in _REGISTERS.findall(log)]
    if not registers:
        raise _Refused(f"the assembler does not say how many registers it used: {log[:_REASON_LIMIT]}")
    return max(registers), sum(int(stored) + int(loaded) for stored, loaded in _SPILLS.findall(log))


def _widths(ptx: str) -> tuple[dict[int, int], dict[int, int]]:
    """How many global loads and stores there are of each width in bits."""
    found: dict[str, Counter[int]] = {"ld": Counter(), "st": Counter()}
    for match in _MEMORY.finditer(ptx):
        found[match.group(1)][int(match.group(2) or 1) * int(match.group(3))] += 1
    for match in _COPY.finditer(ptx):
        found["ld"][8 * int(match.group(1), 16)] += 1
    return dict(found["ld"]), dict(found["st"])
