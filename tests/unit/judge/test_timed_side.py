"""What a timed call is charged for."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from grader.host import wire
from grader.judge import timing
from grader.judge.timing import TimedSide


def test_a_wait_before_the_request_is_not_taken_off_the_call(monkeypatch):
    """The judge itself may be kept from running between waking the host and asking it; the host waits meanwhile."""
    waited_ns = 0

    def woken_late(pid, number):
        time.sleep(0.02)

    def ask(request, deadline):
        nonlocal waited_ns
        waited_ns += 20_000_000  # the kernel books a wait when it is over
        time.sleep(0.005)
        return wire.TimedRun([b""], 5_000_000)

    side = TimedSide(SimpleNamespace(pid=4, ask=ask), 1.0, trusted=True)
    monkeypatch.setattr(timing.os, "killpg", woken_late)
    monkeypatch.setattr(timing, "account_of", lambda pid: timing.Account(0, waited_ns))
    wall_ns, _ = side.run(SimpleNamespace(turns=[0]))
    assert wall_ns >= 5_000_000


def test_a_wait_that_began_before_a_call_does_not_make_it_shorter_than_it_ran(monkeypatch):
    """On a busy machine a host notices late that it should stop; the kernel books that wait within the next call."""
    books = iter([timing.Account(5_000_000, 1_000_000), timing.Account(8_000_000, 900_000_000)])
    monkeypatch.setattr(timing, "account_of", lambda pid: next(books))
    monkeypatch.setattr(timing.os, "killpg", lambda pid, number: None)
    side = TimedSide(SimpleNamespace(pid=4, ask=lambda *_: wire.TimedRun([b""], 0)), 1.0, trusted=True)
    charged_ns, _ = side.run(SimpleNamespace(turns=[0]))
    assert charged_ns == 3_000_000


def test_what_was_asked_to_stop_has_stopped(monkeypatch):
    """Until it has, it waits for a processor, and the next call would be credited with that."""
    monkeypatch.setattr(timing, "STOP_SECONDS", 10.0)  # the machine may be busy with other tests
    busy = subprocess.Popen(
        [sys.executable, "-c", "import os; os.setsid(); print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    )
    busy.stdout.read(1)
    side = TimedSide(SimpleNamespace(pid=busy.pid), 1.0, trusted=True)
    states = []
    try:
        for _ in range(200):
            side.resume()
            side.stop()
            states.append(Path(f"/proc/{busy.pid}/stat").read_text().rpartition(")")[2].split()[0])
    finally:
        busy.kill()
        busy.wait()
        busy.stdout.close()
    assert set(states) == {"T"}
