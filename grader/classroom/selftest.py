"""``kit class selftest``: the attack table, run on this machine, and what each isolation level truly stops here.

A row is a folder: `submission.py`, and `expected.toml` with the outcomes that its
tests must have and what some message must contain.  Some rows need something to
attack: a port that listens, a token in the environment, a place for a file that
must not appear.  A row that is stopped only by chance is not stopped, so nothing
here is counted by anything but what the grader showed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from grader import paths
from grader.errors import GraderFault, RequestError
from grader.host import sandbox
from grader.judge.client import JudgeClient
from grader.judge.orders import GradeOrder
from grader.model import Attempt, Isolation, SpeedVerdict

DEFAULT_TESTS = ("test_multi_head_case", "test_one_token", "test_a_second_call")
SECONDS_PER_TEST = 10.0
_LEVELS = (Isolation.PROCESS, Isolation.BWRAP)


class Cheat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cheat at timing: the benchmark it must fail, for one of ``causes``, or by its time where there are none."""

    benchmark: str
    causes: list[str]


class Attack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `expected.toml` says of a row.

    ``isolation`` is the lowest level that must stop it.  ``listen_on_port``: a listener nobody may reach;
    ``canary_variable``: an environment variable of the grader that must not be found; ``absent_file``: a file
    that must not appear; ``survivor_name``: no process of this name may be left; ``runs``: how often in a row;
    ``harmful``: not to be let loose below its level; ``also_under_bwrap``: further outcomes that are right there;
    ``speed``: a cheat at timing, whose tests pass and whose time must not.
    """

    row: int
    exercise: str
    isolation: Isolation
    outcomes: list[str]
    message_contains: list[str]
    seed: int = 11
    only: tuple[str, ...] = DEFAULT_TESTS
    timeout_seconds: float = SECONDS_PER_TEST
    survivor_name: str = ""
    listen_on_port: int = 0
    canary_variable: str = ""
    absent_file: str = ""
    runs: int = 1
    harmful: bool = False
    also_under_bwrap: tuple[str, ...] = ()
    speed: Cheat | None = None


class Result(msgspec.Struct, frozen=True):
    """One row at one level: whether the grader showed what it must, whether it must at this level, what was seen."""

    name: str
    row: int
    isolation: Isolation
    stopped: bool
    required: bool
    seen: str


@dataclass(frozen=True)
class SelfTest:
    """All results, and the levels that could not be tried, with the reason."""

    results: tuple[Result, ...]
    missing: dict[Isolation, str]

    @property
    def holds(self) -> bool:
        """Whether every attack is stopped at every tried level that must stop it, with the strongest level tried."""
        return not self.missing and all(result.stopped for result in self.results if result.required)


def attack_folder() -> Path:
    """Where the table lies: in a checkout's tests.

    Raises:
        RequestError: this installation does not carry it.
    """
    for folder in (paths.content_root() / "tests" / "attacks", paths.content_root() / "attacks"):
        if folder.is_dir():
            return folder
    raise RequestError("this installation does not carry the attacks", "name a checkout's tests/attacks with --attacks")


def read_attacks(folder: Path) -> dict[str, Attack]:
    """Every row by the name of its folder.

    Raises:
        GraderFault: a row that cannot be read, named.
    """
    found = {}
    for path in sorted(folder.glob("*/expected.toml")):
        try:
            found[path.parent.name] = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Attack)
        except (msgspec.ValidationError, tomllib.TOMLDecodeError) as error:
            raise GraderFault(f"{path} cannot be read: {error}") from error
    if not found:
        raise RequestError(f"{folder} holds no attacks")
    return found


def run_selftest(
    folder: Path,
    levels: Sequence[Isolation] = (),
    rows: Sequence[int] = (),
    step: Callable[[str, str], None] = lambda name, level: None,
) -> SelfTest:
    """Run the table.

    Args:
        folder: the rows.
        levels: which isolation levels; all that work here by default.
        rows: which rows of the table; all by default.
        step: told of each row before it runs.

    Raises:
        RequestError: no such row.
        GraderFault: the grader itself failed.
    """
    attacks = {name: attack for name, attack in read_attacks(folder).items() if not rows or attack.row in rows}
    if not attacks:
        raise RequestError(f"the table has no row {', '.join(map(str, rows))} that is a submission")
    missing: dict[Isolation, str] = {}
    results: list[Result] = []
    for level in levels or _LEVELS:
        if level is Isolation.BWRAP and (reason := sandbox.why_not()):
            missing[level] = reason
            continue
        variables = [attack.canary_variable for attack in attacks.values() if attack.canary_variable]
        with _canaries(variables), JudgeClient() as client:
            for name, attack in attacks.items():
                step(name, level.value)
                if attack.harmful and not _at_least(level, attack.isolation):
                    results.append(
                        Result(name, attack.row, level, False, False, "not tried: it would harm this machine")
                    )
                else:
                    results.append(run_attack(client, folder / name, attack, level))
    return SelfTest(tuple(results), missing)


def run_attack(client: JudgeClient, folder: Path, attack: Attack, level: Isolation) -> Result:
    """Run one row at one level.

    Raises:
        GraderFault: the grader itself failed, which no submission may bring about.
    """
    source = (folder / "submission.py").read_bytes()
    order = GradeOrder(
        attack.exercise,
        str(paths.content_root()),
        source,
        f"{attack.exercise}.py",
        "submission.py",
        seed=attack.seed,
        isolation=level,
        only=attack.only,
        timeout_seconds=attack.timeout_seconds,
        speed=attack.speed is not None,
        diagnose=False,
    )
    traces = [Path(attack.absent_file)] if attack.absent_file else []
    for trace in traces:
        trace.unlink(missing_ok=True)
    if level is Isolation.BWRAP:
        attack = msgspec.structs.replace(attack, outcomes=[*attack.outcomes, *attack.also_under_bwrap])
        if attack.also_under_bwrap:
            attack = msgspec.structs.replace(attack, message_contains=[])
    wrong = ""
    with _listener(attack.listen_on_port) as reached:
        for _ in range(attack.runs):
            attempt = client.grade(order, lambda event: None)
            wrong = wrong or _what_is_wrong(attempt, attack)
    if reached:
        wrong = f"it reached a port of this machine {len(reached)} times"
    if attack.absent_file and Path(attack.absent_file).exists():
        Path(attack.absent_file).unlink()
        wrong = f"it made {attack.absent_file}"
    if attack.survivor_name and (left := survivors(attack.survivor_name)):
        wrong = f"{len(left)} processes of it are still there"
    return Result(
        folder.name, attack.row, level, not wrong, _at_least(level, attack.isolation), wrong or _seen(attempt)
    )


def table_text(found: SelfTest) -> str:
    """The results as a table: a line per row, a column per level."""
    levels = list(dict.fromkeys(result.isolation for result in found.results))
    names = list(dict.fromkeys(result.name for result in found.results))
    by_key = {(result.name, result.isolation): result for result in found.results}
    width = max(map(len, names))
    lines = [" " * width + "".join(f"  {level.value:<12}" for level in levels)]
    for name in names:
        cells, remarks = [], []
        for level in levels:
            result = by_key[name, level]
            word = "stopped" if result.stopped else "NOT STOPPED" if result.required else "not stopped"
            cells.append(f"  {word:<12}")
            if not result.stopped:
                remarks.append(f"{level.value}: {' '.join(result.seen.split())[:100]}")
        lines.append(f"{name:<{width}}{''.join(cells)}{'; '.join(remarks)}".rstrip())
    for level in levels:
        of_level = [result for result in found.results if result.isolation is level]
        stopped = sum(result.stopped for result in of_level)
        lines.append(f"{level.value}: {stopped} of {len(of_level)} are as they must be")
    lines += [f"{level.value}: not tried, {reason}" for level, reason in found.missing.items()]
    return "\n".join(lines)


def _what_is_wrong(attempt: Attempt, attack: Attack) -> str:
    """Why what the grader showed is not what the table says, or an empty string."""
    if not attempt.tests:
        return "no test was reported"
    outcomes = {str(test.outcome) for test in attempt.tests}
    if not outcomes <= set(attack.outcomes):
        first = next(test for test in attempt.tests if str(test.outcome) not in attack.outcomes)
        return f"{first.outcome}: {first.message[:120]}"
    messages = "\n".join([attempt.load_error, *(test.message for test in attempt.tests)])
    if attack.speed is not None:
        return _timing_fault(attempt, attack.speed)
    lacking = [text for text in attack.message_contains if text not in messages]
    return f"{attempt.tests[0].outcome}: {attempt.tests[0].message[:120]}" if lacking else ""


def _timing_fault(attempt: Attempt, cheat: Cheat) -> str:
    """Why a cheat at timing gained something, or an empty string."""
    timed = [item for item in attempt.speed if item.name == cheat.benchmark]
    if not timed:
        return f"the benchmark {cheat.benchmark} was not run"
    for item in timed:
        found_out = any(cause in item.cause for cause in cheat.causes) if cheat.causes else item.low > item.target
        if item.verdict is not SpeedVerdict.FAIL or not found_out:
            return f"speed {item.verdict}: {item.ratio:.2f}x {item.cause}".strip()
    return ""


def _seen(attempt: Attempt) -> str:
    test = attempt.tests[0]
    return f"{test.outcome}: {test.message[:80]}" if test.message else str(test.outcome)


def _at_least(level: Isolation, needed: Isolation) -> bool:
    return _LEVELS.index(level) >= _LEVELS.index(needed)


@contextlib.contextmanager
def _canaries(variables: Sequence[str]) -> Iterator[None]:
    """Tokens in this process's environment, as a grading service has them."""
    before = {name: os.environ.get(name) for name in variables}
    for name in variables:
        os.environ[name] = f"kit-canary-{secrets.token_hex(8)}"
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _listener(port: int) -> Iterator[list[str]]:
    """Something that listens on this machine's loopback and in its abstract sockets; who reached it is in the list."""
    reached: list[str] = []
    if not port:
        yield reached
        return
    with contextlib.ExitStack() as stack:
        for family, address in (
            (socket.AF_INET, ("127.0.0.1", port)),
            (socket.AF_UNIX, "\0kit-listener"),
        ):
            server = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            if family is socket.AF_INET:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                server.bind(address)
            except OSError as error:
                raise GraderFault(f"port {port} is taken, so row 34 cannot be tried: {error}") from error
            server.listen()
            # Closing alone does not wake a thread that waits in accept, and the port would stay taken.
            stack.callback(_hang_up, server)
            threading.Thread(target=_accept, args=(server, reached), daemon=True).start()
        yield reached


def _hang_up(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket, reached: list[str]) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            connection.close()
            reached.append("reached")


def survivors(name: str) -> list[int]:
    """The processes of this machine that have the name and are not dead."""
    left = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "comm").read_text().strip() == name and "\nState:\tZ" not in (entry / "status").read_text():
                left.append(int(entry.name))
    return left
