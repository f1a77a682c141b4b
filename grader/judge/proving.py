"""Scoring a learner's own tests: which known mistakes they catch, and whether they refuse a right answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from grader.errors import RequestError
from grader.host import limits, wire
from grader.host.process import HostLost
from grader.host.values import type_name
from grader.judge.faults import TestFault
from grader.judge.lanes import HostChannel
from grader.judge.orders import GradeOrder, Measuring, Progress, ProofResult, ProveOrder
from grader.judge.pack import Pack
from grader.judge.session import Judge
from grader.judge.view import Submission

TOTAL_SECONDS = 30.0
"""All tests of one module together."""


def prove(judge: Judge, order: ProveOrder, progress: Callable[[Progress], None]) -> tuple[ProofResult, ...]:
    """Run the tests against every module, the solution first; when they fail there, nothing further is run.

    Raises:
        RequestError: there is no such exercise, or its mistakes are sealed.
    """
    pack = judge.pack(GradeOrder(order.exercise, order.content_root, b"", order.filename, order.filename))
    if not pack.mistakes:
        raise RequestError(
            f"the known mistakes of {order.exercise} are not in this kit", "kit list shows other exercises"
        )
    results: list[ProofResult] = []
    for kind, name, source in _modules(pack, Path(order.content_root)):
        progress(Measuring(f"{kind} {name}"))
        results.append(_against(judge, order, pack, kind, name, source))
        if kind == "solution" and (results[0].failed or results[0].trouble):
            break
    return tuple(results)


def _modules(pack: Pack, root: Path) -> Iterator[tuple[str, str, str]]:
    yield "solution", pack.exercise.slug, pack.solution
    for path in sorted((root / "tests" / "submissions" / pack.exercise.slug / "right").glob("*.py")):
        yield "right", path.stem, path.read_text(encoding="utf-8")
    for mistake in pack.mistakes:
        if mistake.kind == "wrong" and (variant := pack.variant(mistake)) is not None:
            yield "mistake", mistake.id, variant


def _against(judge: Judge, order: ProveOrder, pack: Pack, kind: str, name: str, source: str) -> ProofResult:
    bounds = limits.Limits()
    host = judge.zygote(order.isolation).host(bounds)
    channel = HostChannel(host, TOTAL_SECONDS, bounds)
    try:
        submission = Submission(channel, pack.reference)
        submission.load(source.encode(), f"{pack.exercise.slug}.py", order.seed)
        reply = channel.ask(wire.Prove(order.tests, order.filename, pack.exercise.slug, order.seed))
    except TestFault as fault:
        return ProofResult(kind, name, trouble=fault.message)
    except (HostLost, wire.ProtocolError) as error:
        return ProofResult(kind, name, trouble=f"{type_name(type(error))}: {error}")
    finally:
        host.kill(wait=False)
    if isinstance(reply, wire.Raised):
        line = f" (line {reply.frames[-1].line})" if reply.frames else ""
        return ProofResult(kind, name, trouble=f"{reply.type_name}: {reply.message}{line}")
    outcomes = _outcomes(reply)
    failed = [(test, message) for test, outcome, message in outcomes if outcome != "passed"]
    return ProofResult(
        kind, name, tuple(test for test, _ in failed), len(outcomes), "", tuple(message for _, message in failed)
    )


def _outcomes(reply: wire.Reply) -> list[tuple[str, str, str]]:
    """The rows of a reply, or none where it has another form (a host that was tampered with proves nothing)."""
    if not isinstance(reply, wire.Returned) or not isinstance(reply.value, wire.Items):
        return []
    rows = []
    for item in reply.value.items:
        if isinstance(item, wire.Items) and len(item.items) == 3 and all(isinstance(word, str) for word in item.items):
            rows.append((str(item.items[0]), str(item.items[1]), str(item.items[2])))
    return rows
