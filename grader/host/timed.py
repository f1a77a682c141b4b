"""Timed calls in a host: many calls for one request, their answers frozen before the request is answered.

The judge's clock runs from sending the arguments to receiving the digests of all
results.  So nothing can be computed before the clock starts (the arguments are
not there yet) or after it stops (an answer that is fetched later must have the
digest that was sent), and which call will be looked at is not known until all
are done.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import torch

from grader.host import wire

DIGEST_BYTES = 16
_Call = tuple[list[Any], dict[str, Any], list[torch.Tensor]]
"""Arguments by place, by name, and those among them that want gradients."""


def digest(encoded: bytes) -> bytes:
    """What stands for a result: a hash of its encoded value."""
    return hashlib.blake2b(encoded, digest_size=DIGEST_BYTES).digest()


class TimedCalls:
    """The timed calls of one session; keeps the last request's results, as bytes.

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
        self._results: list[bytes] = []

    def run(self, request: wire.Timed) -> wire.Reply:
        """Run one call per argument set, in order, and answer with a digest of each result."""
        function = self._resolve(request.target, request.method)
        torch.set_num_threads(1)  # the learner's file may have asked for more; a time is that of one thread
        sets = [self._arguments(values) for values in request.arguments]
        if request.device == "cuda":
            results, inside_ns = self._on_events(function, sets, request.backward)
        else:
            begin_ns = time.perf_counter_ns()
            results = [_one(function, *each, request.backward) for each in sets]
            inside_ns = time.perf_counter_ns() - begin_ns
        self._results = [wire.encode(self._encode(result)) for result in results]
        return wire.TimedRun([digest(result) for result in self._results], inside_ns)

    def answer(self, request: wire.TimedAnswer) -> wire.Reply:
        """The result of one of the last request's calls, as it was when the clock stopped."""
        return wire.Frozen(self._results[request.place])

    def _arguments(self, values: wire.Arguments) -> _Call:
        leaves: list[torch.Tensor] = []
        args = [self._decode(value, leaves) for value in values.args]
        return args, {name: self._decode(value, leaves) for name, value in values.kwargs}, leaves

    def _on_events(self, function: Callable[..., Any], sets: list[_Call], backward: bool) -> tuple[list[Any], int]:
        from grader.meter.cuda import CudaClock, time_calls

        results: list[Any] = []

        def runner(each: _Call) -> Callable[[], object]:
            return lambda: results.append(_one(function, *each, backward))

        sample = time_calls([runner(each) for each in sets], CudaClock.of(torch.device("cuda")))
        return results, sample.event_ns


def _one(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], leaves: list[torch.Tensor], backward: bool
) -> Any:
    """One call; with `backward`, its result and the gradients of its arguments under the sum of its floats."""
    if not backward:
        with torch.no_grad():
            return function(*args, **kwargs)
    owner = getattr(function, "__self__", function)
    if isinstance(owner, torch.nn.Module):
        torch.nn.Module.zero_grad(owner)
    result = function(*args, **kwargs)
    total = _sum_of_floats(result)
    if total.requires_grad:
        total.backward()  # type: ignore[no-untyped-call]
    return result, tuple(leaf.grad for leaf in leaves)


def _sum_of_floats(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.float().sum() if value.is_floating_point() and value.requires_grad else torch.zeros(())
    if isinstance(value, tuple | list):
        return sum((_sum_of_floats(item) for item in value), torch.zeros(()))
    return torch.zeros(())
