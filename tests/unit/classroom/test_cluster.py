"""The same batch on a real Dask cluster: a scheduler and two worker processes, one of which is killed on the way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from grader.classroom.batch import BatchOptions, Status, grade_class
from grader.classroom.cluster import Cluster, grade_remote
from grader.classroom.identity import kit_fingerprint, pack_sha256
from grader.classroom.work import Done, Task
from grader.errors import RequestError
from grader.model import Isolation

pytest.importorskip("distributed")
OPTIONS = BatchOptions(isolation=Isolation.PROCESS, seed=3, speed=False)


@contextlib.contextmanager
def started(arguments, folder, name):
    log = open(folder / f"{name}.log", "wb")  # noqa: SIM115
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "20s"}
    process = subprocess.Popen([sys.executable, "-m", *arguments], stdout=log, stderr=log, env=environment, cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        log.close()


@pytest.fixture
def cluster(course, tmp_path):
    """(address, the two worker processes)."""
    where = tmp_path / "scheduler.json"
    scheduler = ["distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(where)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(started(scheduler, tmp_path, "scheduler"))
        deadline = time.monotonic() + 60
        while not where.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(0.2)
        address = json.loads(where.read_text())["address"]
        worker = [
            "distributed.cli.dask_worker",
            address,
            "--nthreads",
            "1",
            "--nworkers",
            "1",
            "--no-nanny",
            "--no-dashboard",
        ]
        workers = [stack.enter_context(started(worker, tmp_path, f"worker{number}")) for number in range(2)]
        _wait_for_workers(address, 2)
        yield address, workers


def _wait_for_workers(address, count):
    from distributed import Client

    with Client(address, timeout=60, set_as_default=False) as client:
        client.wait_for_workers(count, timeout=120)


def write_class(folder, course, count):
    """Right, wrong by a known mistake, and crashing answers, no two files alike."""
    right = (course / "solutions" / "shift.py").read_text()
    kinds = [
        right,
        right.replace("return x + 1", "return 2 * x + 1"),
        right.replace("return x + 1", "import os; os._exit(0)"),
    ]
    for number in range(count):
        (folder / f"s{number:02d}").mkdir(parents=True)
        (folder / f"s{number:02d}" / "shift.py").write_text(f"# {number}\n{kinds[number % 3]}")


def verdicts(book):
    """Everything of a grade that must not depend on where it was made."""
    return {
        row.entry.student: (
            row.points,
            row.attempt.passed,
            [(test.id, test.outcome, test.message, test.mismatch) for test in row.attempt.tests],
            row.attempt.diagnosis,
        )
        for row in book.rows
    }


def test_a_cluster_grades_as_this_machine_does_and_a_killed_worker_loses_nothing(cluster, catalogue, course, tmp_path):
    address, workers = cluster
    write_class(tmp_path / "class", course, 12)
    exercises = [catalogue.exercise("shift")]
    here = grade_class(tmp_path / "class", tmp_path / "here", catalogue, exercises, OPTIONS)
    seen = []

    def kill_one(state):
        seen.append(state.done)
        if state.done >= 3 and workers[0].poll() is None:
            os.kill(workers[0].pid, signal.SIGKILL)

    executor = Cluster(address)
    try:
        there = grade_class(tmp_path / "class", tmp_path / "there", catalogue, exercises, OPTIONS, kill_one, executor)
    finally:
        executor.close()
    assert workers[0].wait(10) == -signal.SIGKILL and workers[1].poll() is None
    assert seen[-1] == 12
    assert not [row.fault for row in there.rows if row.status is not Status.GRADED]
    assert verdicts(there) == verdicts(here)
    assert [row.points for row in there.rows[:3]] == [10, 5, 5]


def test_a_worker_with_other_tests_or_another_kit_does_not_grade(catalogue):
    exercise = catalogue.exercise("shift")
    good = Task("shift", b"", "f", "l", 1, Isolation.PROCESS, "cpu", pack_sha256(exercise), kit_fingerprint())
    for changes, message in (
        ({"pack": "0" * 64}, "other tests of shift"),
        ({"kit": "0.0+0"}, "graded with 0.0+0"),
        ({"isolation": Isolation.NONE}, "cannot grade"),
        ({"exercise": "nowhere"}, "no exercise"),
    ):
        answer = msgspec.json.decode(
            grade_remote(msgspec.json.encode(msgspec.structs.replace(good, **changes))), type=Done
        )
        assert answer.attempt is None and message in answer.fault


def test_no_scheduler_is_a_wrong_request(monkeypatch):
    monkeypatch.setattr("grader.classroom.cluster.CONNECT_SECONDS", 0.5)
    with pytest.raises(RequestError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        Cluster("tcp://127.0.0.1:9")
