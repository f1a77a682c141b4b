"""Timed calls in a host: many calls for one request, their answers bound before the request is answered.

The judge's clock runs from sending the arguments to receiving a fingerprint of
every result.  So nothing can be computed before the clock starts (the arguments
are not there yet) or after it stops (an answer that is fetched later must have
the fingerprint that was sent), and which call will be looked at is not known
until all are done.  Between calls the arguments are rolled in place: an answer
kept for the same object, or the same memory, is a wrong answer.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import time
from collections.abc import Callable
from typing import Any

import torch

from grader.host import wire
from grader.host.values import Encoder

ROLLED_ELEMENTS = 4096
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
_LARGEST_BYTES = 32 << 20
"""The most that glibc takes for its second threshold; larger tensors still come from the kernel."""
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
_Call = tuple[list[Any], dict[str, Any], list[torch.Tensor]]
"""Arguments by place, by name, and those among them that want gradients."""


def fingerprint(value: Any) -> bytes:
    """What stands for a result: its structure, and the sum of every tensor's bits as 64-bit words.

    A sum is quick, so that taking it hardly counts beside the call; and it binds: who knows the sum of the right
    answer's bits has computed the right answer.
    """
    return hashlib.blake2b(repr(_outline(value)).encode(), digest_size=16).digest()


def roll(value: Any, turn: int) -> None:
    """Roll a block of every tensor inside a value, in place; `turn` decides which block, and by how much.

    A block is enough to make an old answer wrong, and leaves the time between two calls short.
    """
    if isinstance(value, torch.Tensor):
        count = value.numel()
        if count > 1:
            flat = value.detach().reshape(-1)
            size = min(count, ROLLED_ELEMENTS)
            start, step = turn % (count - size + 1), 1 + turn % (size - 1)
            block = flat[start : start + size]
            block.copy_(torch.cat((block[step:], block[:step])))
            if not value.is_contiguous():
                value.detach().copy_(flat.view(value.shape))
    elif isinstance(value, tuple | list):
        for item in value:
            roll(item, turn)
    elif isinstance(value, dict):
        roll(list(value.values()), turn)


@functools.cache
def keep_freed_memory() -> None:
    """Have glibc keep what is freed for the next allocation, from here on.

    Otherwise large tensors are taken from the kernel anew in every call, page by page, which may take as long as the
    work: of a quick call more than of a slow one, so that ratios come out nearer to 1 than they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's alone has these two
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
        mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)


class TimedCalls:
    """The timed calls of one session; keeps the last request's results.

    Args:
        decode: a wire value to this side's, collecting leaves that want gradients.
        encode: a result to its wire value.
        resolve: the callable that a target and a method name.
    """

    def __init__(
        self,
        decode: Callable[[wire.Value, list[torch.Tensor]], Any],
        encode: Callable[[Any], wire.Value],
        resolve: Callable[[str | wire.Ref, str | None], Callable[..., Any]],
    ) -> None:
        self._decode, self._encode, self._resolve = decode, encode, resolve
        self._results: list[Any] = []

    def run(self, request: wire.Timed) -> wire.Reply:
        """Run the calls in order and answer with a fingerprint of each result."""
        self._results = []
        keep_freed_memory()
        function = self._resolve(request.target, request.method)
        torch.set_num_threads(1)  # the learner's file may have asked for more; a time is that of one thread
        sets = [self._arguments(values) for values in request.arguments * request.copies]
        calls = [sets[place % len(sets)] for place in range(len(request.turns))]

        def prepare(place: int) -> None:
            if request.turns[place]:
                roll(calls[place][:2], request.turns[place])

        results: list[Any] = []
        if request.device == "cuda":
            inside_ns = _on_events(function, calls, prepare, request.backward, results)
        else:
            inside_ns = 0
            for place, call in enumerate(calls):
                prepare(place)
                begin_ns = time.thread_time_ns()  # not the wall's: being kept from running is no work
                result = _one(function, call, request.backward)
                inside_ns += time.thread_time_ns() - begin_ns
                results.append(result)
        self._results = results
        return wire.TimedRun([fingerprint(result) for result in results], inside_ns)

    def answer(self, request: wire.TimedAnswer) -> wire.Reply:
        """The result of one of the last request's calls."""
        return wire.Returned(0, self._encode(self._results[request.place]))

    def _arguments(self, values: wire.Arguments) -> _Call:
        leaves: list[torch.Tensor] = []
        args = [self._decode(value, leaves) for value in values.args]
        return args, {name: self._decode(value, leaves) for name, value in values.kwargs}, leaves


def _on_events(
    function: Callable[..., Any],
    calls: list[_Call],
    prepare: Callable[[int], None],
    backward: bool,
    results: list[Any],
) -> int:
    from grader.meter.cuda import CudaClock, time_calls

    def runner(call: _Call) -> Callable[[], object]:
        return lambda: results.append(_one(function, call, backward))

    clock = CudaClock.of(torch.device("cuda"))
    return time_calls([runner(call) for call in calls], clock, prepare).event_ns


def _one(function: Callable[..., Any], call: _Call, backward: bool) -> Any:
    """One call; with `backward`, its result and the gradients of its arguments under the sum of its floats."""
    args, kwargs, leaves = call
    if not backward:
        with torch.no_grad():
            return function(*args, **kwargs)
    owner = getattr(function, "__self__", function)
    if isinstance(owner, torch.nn.Module):
        torch.nn.Module.zero_grad(owner)
    for leaf in leaves:
        leaf.grad = None
    result = function(*args, **kwargs)
    total = sum_of_floats(result)
    if total.requires_grad:
        total.backward()  # type: ignore[no-untyped-call]
    return without_graph(result), tuple(leaf.grad for leaf in leaves)


def sum_of_floats(value: Any) -> torch.Tensor:
    """The sum of all floating tensors with a gradient inside a value."""
    if isinstance(value, torch.Tensor):
        wanted = value.is_floating_point() and value.requires_grad
        return value.float().sum() if wanted else torch.zeros((), device=value.device)
    if isinstance(value, tuple | list):
        sums = [sum_of_floats(item) for item in value]
        return sum(sums[1:], sums[0]) if sums else torch.zeros(())
    return torch.zeros(())


def without_graph(value: Any) -> Any:
    """The value with its tensors detached."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, tuple | list):
        items = [without_graph(item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return value


def _outline(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN_TENSORS and value.layout is torch.strided:
        return (str(value.dtype), tuple(value.shape), _sum_of_bits(value))
    if isinstance(value, tuple | list):
        return [isinstance(value, tuple), *(_outline(item) for item in value)]
    if kind is dict:
        return [(repr(key), _outline(item)) for key, item in value.items()]
    return wire.encode(Encoder()(value))


def _sum_of_bits(tensor: torch.Tensor) -> int:
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if not flat.numel():
        return 0
    if flat.storage_offset() * flat.element_size() % 8:
        flat = flat.clone()  # 64-bit words start at multiples of 8 bytes
    words = flat.view(torch.uint8)
    whole = words.numel() // 8 * 8
    total = int(words[whole:].sum()) if whole < words.numel() else 0
    return total + (int(words[:whole].view(torch.int64).sum()) if whole else 0)
