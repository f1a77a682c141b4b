"""One terminal at a time: a drill's clock must not be beaten by two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grader.errors import RequestError

try:
    import fcntl
except ImportError:  # no such locks on this system: two terminals are then the learner's own affair
    fcntl = None  # type: ignore[assignment]


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold `path` while the block runs; the system lets go of it when the process dies, however it dies.

    Raises:
        RequestError: another process holds it; `what` says what is going on there.
    """
    if fcntl is None:
        yield
        return
    try:
        stream = path.open("a")
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}") from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RequestError(f"{what} is going on in another terminal", "go on there, or end it there") from None
        except OSError:
            pass  # a file system without locks
        yield
