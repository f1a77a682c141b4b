"""Tasks on a Dask cluster: the same work as bytes and JSON, graded by the workers' own kits.

A worker keeps a warm judge for each of its threads.  It grades only what its own
tests and grader are the same for (the task carries their hashes), so where a grade
was made does not show in it.  A worker that dies takes no task with it: what it had
is given to another; after some deaths in a row the scheduler gives up on a task, and
the batch tries it again.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from grader.catalogue import Catalogue
from grader.classroom.batch import check_isolation
from grader.classroom.work import Done, Task, do_task
from grader.errors import GraderFault, KitError, RequestError
from grader.judge.client import JudgeClient

CONNECT_SECONDS = 10.0

_local = threading.local()


def grade_remote(payload: bytes) -> bytes:
    """What a worker runs: a task as JSON in, what became of it as JSON out.  Nothing is raised."""
    task = msgspec.json.decode(payload, type=Task)
    try:
        check_isolation(task.isolation)
        if not hasattr(_local, "catalogue"):
            _local.catalogue = Catalogue()
        if getattr(_local, "client", None) is not None and _local.device != task.device:
            _local.client.close()
            _local.client = None
        if getattr(_local, "client", None) is None:
            _local.client = JudgeClient(device=task.device, isolation=task.isolation)
            _local.device = task.device
        result = do_task(task, _local.catalogue, _local.client)
    except KitError as error:
        result = Done(None, f"a worker cannot grade: {error.message}")
    if result.attempt is None:
        client, _local.client = getattr(_local, "client", None), None
        if client is not None:
            client.close()
    return msgspec.json.encode(result)


class Cluster:
    """Executor on a Dask cluster.

    Args:
        address: of the scheduler, as ``tcp://host:8786``.

    Raises:
        RequestError: nothing answers there, or it has no workers.
        GraderFault: distributed is not installed.
    """

    def __init__(self, address: str) -> None:
        self._distributed = _distributed()
        try:
            self._client = self._distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise RequestError(
                f"no Dask scheduler answers at {address}: {error}", "dask scheduler starts one"
            ) from error
        if not self._client.scheduler_info()["workers"]:
            self._client.close()
            raise RequestError(f"the scheduler at {address} has no workers", f"dask worker {address} starts one")

    def run(self, tasks: Iterable[Task], started: Callable[[Task], None], done: Callable[[Task, Done], None]) -> None:
        """Do every task.  A task whose worker died is done by another."""
        futures: dict[Any, Task] = {}
        for task in tasks:
            # A fresh name each time: the cluster must not answer from what it remembers of an earlier batch.
            name = f"kit-{task.exercise}-{uuid.uuid4().hex}"
            futures[self._client.submit(grade_remote, msgspec.json.encode(task), key=name, pure=False)] = task
            started(task)
        try:
            for future, answer in self._distributed.as_completed(
                list(futures), loop=self._client.loop, with_results=True, raise_errors=False
            ):
                task = futures.pop(future)
                done(task, _read(answer))
                future.release()
        finally:
            if futures:
                self._client.cancel(list(futures), force=True)

    def close(self) -> None:
        """Leave the cluster as it is and disconnect."""
        self._client.close()


def _read(answer: Any) -> Done:
    if isinstance(answer, bytes):
        try:
            return msgspec.json.decode(answer, type=Done)
        except msgspec.DecodeError as error:
            return Done(None, f"a worker answered what cannot be read: {error}")
    reason = answer[1] if isinstance(answer, tuple) and len(answer) == 3 else answer
    return Done(None, f"the cluster could not do it: {type(reason).__name__}: {reason}")


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise GraderFault("--scheduler needs the package distributed", "pip install kit-grader[cluster]") from error
    return distributed
