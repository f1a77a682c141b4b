"""The learner's folder: where it is, what is written there (never over a file without a backup), what is read."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from grader.errors import RequestError

WORKSPACE_VARIABLE = "KIT_WORKSPACE"
STATE_FOLDER = ".kit"
MAX_FILE_BYTES = 1 << 20
"""A learner's file larger than this is refused: no exercise comes near it."""

_PYTEST_FILES = ("conftest.py", "pytest.ini", "tox.ini", "setup.cfg", "sitecustomize.py", "usercustomize.py")
_LIBRARIES = frozenset({"torch", "numpy", "triton", "pytest", "grader", "hidden_tests"}) | sys.stdlib_module_names


def find_root(folder: Path, environment: Mapping[str, str]) -> Path:
    """The workspace seen from ``folder``.

    ``KIT_WORKSPACE`` comes first, then the nearest folder, upwards, that holds ``.kit/``, then ``./workspace``.
    """
    named = environment.get(WORKSPACE_VARIABLE)
    if named:
        return (folder / Path(named).expanduser()).resolve()
    for candidate in (folder, *folder.parents):
        if (candidate / STATE_FOLDER).is_dir():
            return candidate
    return folder / "workspace"


class Workspace:
    """One learner's folder: ``<slug>.py`` files, and ``.kit/`` with the journal and the backups."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / STATE_FOLDER
        self.journal_path = self.state / "journal.db"
        self.backup_folder = self.state / "backups"

    @classmethod
    def find(cls) -> Workspace:
        """The workspace seen from the current folder and environment."""
        return cls(find_root(Path.cwd(), os.environ))

    @property
    def exists(self) -> bool:
        """True once something was started here."""
        return self.state.is_dir()

    def file(self, slug: str) -> Path:
        """The learner's file for an exercise."""
        return self.root / f"{slug}.py"

    def prepare(self) -> None:
        """Make the folder and its ``.kit/``.

        Raises:
            RequestError: it cannot be made or written to.
        """
        try:
            self.state.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(self.root, error) from error
        if not os.access(self.root, os.W_OK | os.X_OK) or not os.access(self.state, os.W_OK | os.X_OK):
            raise _unwritable(self.root, PermissionError(13, "Permission denied"))

    def write_new(self, slug: str, text: str) -> bool:
        """Write the learner's file unless there is one; True when it was written.

        Raises:
            RequestError: the folder cannot be written to.
        """
        self.prepare()
        path = self.file(slug)
        if os.path.lexists(path):
            return False
        try:
            with path.open("x", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
        except FileExistsError:
            return False
        except OSError as error:
            raise _unwritable(path, error) from error
        return True

    def replace(self, slug: str, text: str) -> Path | None:
        """Write the learner's file over what is there, after a backup; the backup, None when there was no file.

        The new text appears at once or not at all.

        Raises:
            RequestError: the folder cannot be written to; the old file is then as it was.
        """
        self.prepare()
        backup = self.back_up(slug)
        _write_at_once(self.file(slug), text.encode())
        return backup

    def back_up(self, slug: str) -> Path | None:
        """Copy the learner's file to a new file among the backups; None when there is nothing to copy.

        Raises:
            RequestError: it cannot be read or the backup cannot be written.
        """
        path = self.file(slug)
        if not path.exists():
            return None
        stamp = time.strftime("%Y%m%d-%H%M%S")
        try:
            self.backup_folder.mkdir(parents=True, exist_ok=True)
            for attempt in range(1000):
                target = self.backup_folder / f"{slug}-{stamp}{f'-{attempt}' if attempt else ''}.py"
                try:
                    target.touch(exist_ok=False)
                except FileExistsError:
                    continue
                shutil.copyfile(path, target)
                return target
        except OSError as error:
            raise _unwritable(self.backup_folder, error) from error
        raise RequestError(f"{self.backup_folder} holds a thousand backups of this second")

    def backups(self, slug: str) -> list[Path]:
        """The backups of an exercise's file, newest first."""
        stamped = ((_stamp(path.stem, slug), path) for path in self.backup_folder.glob(f"{slug}-*.py"))
        return [path for stamp, path in sorted((pair for pair in stamped if pair[0]), reverse=True)]

    def restore(self, slug: str, backup: Path) -> Path | None:
        """Put a backup's text back as the learner's file; what was there is backed up first and returned.

        Raises:
            RequestError: the backup cannot be read, or the folder cannot be written to.
        """
        try:
            content = backup.read_bytes()
        except OSError as error:
            raise RequestError(f"{backup} cannot be read: {error.strerror}") from error
        self.prepare()
        replaced = self.back_up(slug)
        _write_at_once(self.file(slug), content)
        return replaced

    @contextmanager
    def preserved(self, slug: str) -> Iterator[None]:
        """Whatever happens inside, Ctrl-C included, the learner's file is afterwards as it was before."""
        path = self.file(slug)
        before = path.read_bytes() if path.exists() else None
        try:
            yield
        finally:
            if before is None:
                path.unlink(missing_ok=True)
            elif not path.exists() or path.read_bytes() != before:
                _write_at_once(path, before)


def read_submission(path: Path, start_hint: str = "") -> bytes:
    """A learner's file, checked as far as can be done without running it.

    Raises:
        RequestError: it is missing, a directory, not a regular file, too large, empty, unreadable or not UTF-8.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise RequestError(f"there is no file {path}", start_hint) from None
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error
    if stat.S_ISDIR(status.st_mode):
        raise RequestError(f"{path} is a directory, not a Python file", f"name the file: --file {path / 'NAME.py'}")
    if not stat.S_ISREG(status.st_mode):
        raise RequestError(f"{path} is not a regular file")
    if status.st_size > MAX_FILE_BYTES:
        raise RequestError(f"{path} is {status.st_size} bytes long; at most {MAX_FILE_BYTES} are graded")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error
    if not content.strip():
        raise RequestError(f"{path} is empty", start_hint)
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise RequestError(
            f"{path} is not UTF-8 text: byte 0x{content[error.start]:02x} in line {line}", "save it as UTF-8"
        ) from None
    if b"\0" in content:
        raise RequestError(f"{path} holds a NUL byte in line {content[: content.index(0)].count(10) + 1}")
    return content


def neighbour_notes(path: Path) -> tuple[str, ...]:
    """What lies beside the learner's file and looks as if it could change grading, each with why it does not."""
    notes = []
    try:
        entries = sorted(entry.name for entry in os.scandir(path.parent))
    except OSError:
        return ()
    ignored = [name for name in entries if name in _PYTEST_FILES]
    if ignored:
        notes.append(f"{' and '.join(ignored)} beside your file: ignored, grading does not read it")
    shadows = [name for name in entries if name.endswith(".py") and name[:-3] in _LIBRARIES and name not in ignored]
    if path.name in shadows:
        shadows.remove(path.name)
        notes.append(
            f"{path.name} shadows a library of that name when Python runs beside it; grading does not import it"
        )
    if shadows:
        notes.append(f"{' and '.join(shadows)} beside your file shadows a library; grading uses the real one")
    return tuple(notes)


def _stamp(stem: str, slug: str) -> tuple[int, ...]:
    """The numbers of ``slug-YYYYMMDD-HHMMSS[-N]``, which sort by age; empty when the name is of another form."""
    pieces = stem[len(slug) + 1 :].split("-")
    return tuple(int(piece) for piece in pieces) if len(pieces) >= 2 and all(map(str.isdigit, pieces)) else ()


def _write_at_once(path: Path, content: bytes) -> None:
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            os.chmod(temporary, (path.stat().st_mode & 0o777) if path.exists() else 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> RequestError:
    return RequestError(f"{path} cannot be written: {error.strerror}", f"set {WORKSPACE_VARIABLE} to another folder")
